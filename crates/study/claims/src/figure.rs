//! Which figures and tables of a paper a claim is about, read from the claim's source.
//!
//! A source names them in words: "Justitia 6.1, figure 11a", "Aequitas 3.6.1, figures 3.8 and 3.10", "Titan 3, table 5".

use crate::claim::Claim;
use crate::error::ClaimError;
use std::collections::BTreeSet;

/// The members of `claims` that are about figure (or table, by `kind`) `number` of their paper; without any, an error that lists
/// the numbers that `claims` name.
pub fn select<'a>(
    claims: &[&'a Claim],
    kind: &'static str,
    number: &str,
) -> Result<Vec<&'a Claim>, ClaimError> {
    let selected: Vec<&Claim> = claims
        .iter()
        .copied()
        .filter(|claim| shows(claim, kind, number))
        .collect();
    if !selected.is_empty() {
        return Ok(selected);
    }
    let named: BTreeSet<&str> = claims
        .iter()
        .flat_map(|claim| numbers(&claim.paper, kind))
        .collect();
    let named = match named.is_empty() {
        true => "none".to_owned(),
        false => Vec::from_iter(named).join(", "),
    };
    Err(ClaimError::NoFigure {
        kind,
        number: number.to_owned(),
        named,
    })
}

/// Whether the source of `claim` names the figure (or, with `kind` "table", the table) `number`. "11" also names figure 11a.
fn shows(claim: &Claim, kind: &str, number: &str) -> bool {
    numbers(&claim.paper, kind).any(|named| {
        named
            .strip_prefix(number)
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_lowercase()))
    })
}

/// The numbers that follow the word `kind`, or its plural, in `source`.
fn numbers<'a>(source: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
    let mut after_kind = false;
    source.split([' ', ',']).filter(move |word| {
        let is_kind = word.strip_suffix('s').unwrap_or(word) == kind;
        let is_number = word.contains(|c: char| c.is_ascii_digit());
        after_kind = is_kind || (after_kind && (is_number || word.is_empty() || *word == "and"));
        after_kind && is_number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, kind: &str, expected: &[&str]) {
        assert_eq!(numbers(source, kind).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn sections_are_no_figures() {
        check("Justitia 6.1, figure 11a", "figure", &["11a"]);
        check("Justitia 6.1, figure 11a", "table", &[]);
        check("Harmonic 5.4.4, 5.6.5 and 5.7", "figure", &[]);
    }

    #[test]
    fn a_source_names_several_figures() {
        check(
            "Aequitas 3.6.1, figures 3.8 and 3.10",
            "figure",
            &["3.8", "3.10"],
        );
        check(
            "Vulcan 4.6.2 and appendix C.1.2, figures 4.10 and C.1",
            "figure",
            &["4.10", "C.1"],
        );
    }

    #[test]
    fn a_figure_has_its_parts_and_no_longer_number() {
        let claims = crate::embedded_claims().expect("the claims of the repository are valid");
        let of = |number: &str| {
            let mut sources: Vec<&str> = claims
                .iter()
                .filter(|claim| claim.system == "justitia" && shows(claim, "figure", number))
                .map(|claim| claim.paper.as_str())
                .collect();
            sources.sort_unstable();
            sources.dedup();
            sources
        };
        assert_eq!(
            of("11"),
            ["Justitia 6.1, figure 11a", "Justitia 6.1, figure 11b"]
        );
        assert_eq!(of("3"), ["Justitia 3.1.1, figure 3"]);
    }

    #[test]
    fn an_unknown_figure_is_an_error_that_lists_the_known_ones() {
        let claims = crate::embedded_claims().expect("the claims of the repository are valid");
        let collie: Vec<&Claim> = claims.iter().filter(|one| one.system == "collie").collect();
        let error = select(&collie, "table", "99").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no selected claim is about table 99; the selected claims have these tables: 3.2"
        );
    }
}
