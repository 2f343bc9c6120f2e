//! Claim files: what reads and what is refused.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const HEAD: &str = "id = \"x\"\nsystem = \"justitia\"\npaper = \"Justitia 3.1\"\nstatement = \"One thing.\"\nkind = \"prediction\"\n";

/// A claim of `system` with one run, `r`; `published` has the unit too.
pub(crate) fn parsed(
    (system, published): (&str, &str),
    metric: &str,
    rest: &str,
    run: &str,
) -> Result<Claim, String> {
    let text = format!(
        "id = \"a\"\nsystem = \"{system}\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\n{published}\n\
         metric = \"{metric}\"\n{rest}\n[[run]]\nlabel = \"r\"\n{run}\n"
    );
    Claim::parse(&text, &format!("claims/{system}/a.toml")).map_err(|error| error.to_string())
}

fn check(rest: &str, expected: Expect) {
    let outcome = match Claim::parse(&format!("{HEAD}{rest}"), "claims/justitia/x.toml") {
        Ok(claim) => format!(
            "{:?} {:?} {:?}",
            claim.published, claim.tolerance, claim.seeds
        ),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&outcome);
}

#[test]
fn a_ratio_has_a_quarter_of_tolerance_and_three_seeds() {
    check(
        "unit = \"x\"\npublished = 1.85\nmetric = \"2\"\n",
        expect!["Value(1.85) Relative(0.25) [1, 2, 3]"],
    );
}

#[test]
fn a_share_has_a_tenth() {
    check(
        "unit = \"share\"\npublished = 0.5\nmetric = \"0.5\"\nseeds = [7]\n",
        expect!["Value(0.5) Relative(0.1) [7]"],
    );
}

#[test]
fn a_comparison_is_an_ordering() {
    check(
        "unit = \"ordering\"\nmetric = \"1 < 2\"\n",
        expect!["Ordering Exact [1, 2, 3]"],
    );
}

#[test]
fn a_withheld_number_is_reported_only() {
    check(
        "unit = \"x\"\nwithheld = true\nmetric = \"2\"\n",
        expect!["Withheld Relative(0.25) [1, 2, 3]"],
    );
}

#[test]
fn a_misspelt_key_is_named_with_its_line() {
    check(
        "unit = \"x\"\npublised = 1.85\nmetric = \"2\"\n",
        expect![[
            r#"claims/justitia/x.toml:7: unknown field `publised`, expected one of `id`, `system`, `paper`, `statement`, `kind`, `unit`, `published`, `at_least`, `at_most`, `withheld`, `tolerance`, `metric`, `seeds`, `over`, `testbed`, `seen`, `premise`, `note`, `miss_reason`, `check`, `run`, `audit`, did you mean "published"?"#
        ]],
    );
}

#[test]
fn a_label_without_a_run_is_refused() {
    check(
        "unit = \"x\"\npublished = 1.0\nmetric = \"sole:a.share\"\n[[run]]\nlabel = \"solo\"\nscenario = \"a.toml\"\n",
        expect![[
            r#"claims/justitia/x.toml:8: metric: no [[run]] has the label "sole", did you mean "solo"?"#
        ]],
    );
}

#[test]
fn a_run_needs_one_source() {
    check(
        "unit = \"x\"\npublished = 1.0\nmetric = \"solo:a.share\"\n[[run]]\nlabel = \"solo\"\n",
        expect![[
            r#"claims/justitia/x.toml:9: run "solo": needs one of scenario, inline, nic, plan, hunt and lab"#
        ]],
    );
}

#[test]
fn two_published_forms_are_refused() {
    check(
        "unit = \"x\"\npublished = 1.0\nat_most = 2.0\nmetric = \"1\"\n",
        expect!["claims/justitia/x.toml:1: give one of published, at_least, at_most and withheld"],
    );
}

#[test]
fn a_bound_has_no_tolerance() {
    check(
        "unit = \"x\"\nat_most = 2.0\ntolerance = { relative = 0.5 }\nmetric = \"1\"\n",
        expect!["claims/justitia/x.toml:8: tolerance 50 %: bounds and orderings are exact"],
    );
}

#[test]
fn a_formula_error_names_line_and_character() {
    check(
        "unit = \"x\"\npublished = 1.0\nmetric = \"1 +\"\n",
        expect![
            "claims/justitia/x.toml:8: metric: a number, a measurement (label:tenant.field) or a function was expected here (character 4 of the metric)"
        ],
    );
}

#[test]
fn a_claim_is_at_the_path_of_its_id() {
    let text = format!("{HEAD}unit = \"x\"\npublished = 1.0\nmetric = \"1\"\n");
    let error = Claim::parse(&text, "claims/palos/x.toml").unwrap_err();
    expect![[
        r#"claims/palos/x.toml:1: id "x" of system "justitia" belongs into claims/justitia/x.toml"#
    ]]
    .assert_eq(&error.to_string());
}

proptest! {
    /// Reading a file with any content gives a claim or an error.
    #[test]
    fn no_text_makes_reading_panic(rest in "(unit|metric|published|tolerance|\\[\\[run\\]\\]|label|[=\"{} .0-9a-z\n-]){0,60}") {
        let _ = Claim::parse(&format!("{HEAD}{rest}"), "claims/justitia/x.toml");
    }
}
