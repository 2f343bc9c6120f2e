//! The answer for a terminal: the advice, a line per policy and tenant, and what each policy cannot protect against.

use crate::needs::digits;
use crate::result::{ObjectiveOutcome, PolicyOutcome, Recommendation, TenantOutcome};
use std::fmt::Write;

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Use ANSI colours.
    pub colour: bool,
}

const RED: &str = "\x1b[31;1m";
const GREEN: &str = "\x1b[32m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("{code}{text}{RESET}"),
            false => text.to_owned(),
        }
    }
}

/// The whole answer, ending in a newline.
pub fn render(answer: &Recommendation, style: Style) -> String {
    let mut text = format!(
        "{}\n{} on {}, {} seed{}\n\n",
        style.paint(BOLD, &sentence(&answer.advice)),
        answer.scenario,
        answer.profile,
        answer.seeds.len(),
        if answer.seeds.len() == 1 { "" } else { "s" }
    );
    table(&mut text, answer, style);
    text.push_str("\nWhat each one cannot protect against\n");
    for alike in reasons(answer) {
        let names: Vec<&str> = alike.iter().map(|one| one.policy.as_str()).collect();
        let _ = writeln!(text, "  {}", style.paint(BOLD, &names.join(", ")));
        if alike[0].misses.is_empty() {
            text.push_str("    nothing that these tenants do to each other\n");
        }
        for miss in &alike[0].misses {
            let _ = writeln!(text, "    {}", miss.words);
        }
    }
    if !answer.left_out.is_empty() {
        text.push_str("\nLeft out\n");
    }
    for left in &answer.left_out {
        let _ = writeln!(text, "  {}: {}", left.policy, left.reason);
    }
    text
}

/// The policies in groups of those that fail in the same words, in the order of the first of each.
pub fn reasons(answer: &Recommendation) -> Vec<Vec<&PolicyOutcome>> {
    let mut groups: Vec<Vec<&PolicyOutcome>> = Vec::new();
    for policy in &answer.policies {
        let words = |one: &PolicyOutcome| -> Vec<String> {
            one.misses.iter().map(|miss| miss.words.clone()).collect()
        };
        match groups
            .iter_mut()
            .find(|group| words(group[0]) == words(policy))
        {
            Some(group) => group.push(policy),
            None => groups.push(vec![policy]),
        }
    }
    groups
}

/// The advice as a sentence.
fn sentence(advice: &str) -> String {
    let mut letters = advice.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    // A policy's name stays as it is.
    match advice.starts_with("no policy") {
        true => format!("{}{}.", first.unwrap_or_default(), letters.as_str()),
        false => format!("{advice}."),
    }
}

/// A row per policy, a column per objective.
fn table(text: &mut String, answer: &Recommendation, style: Style) {
    let mut header = vec![
        "policy".to_owned(),
        "met".to_owned(),
        "used".to_owned(),
        "cores".to_owned(),
    ];
    for tenant in &answer.tenants {
        for objective in &tenant.objectives {
            header.push(format!("{}: {}", tenant.name, objective.words()));
        }
    }
    let rows: Vec<Vec<(String, &str)>> = answer.policies.iter().map(row).collect();
    // Objectives' headings are longer than their values: they stand in a legend, by letter.
    let letters: Vec<String> = (0..header.len() - FIXED).map(letter).collect();
    for (letter, heading) in letters.iter().zip(&header[FIXED..]) {
        let _ = writeln!(text, "  {letter}  {heading}");
    }
    text.push('\n');
    let headings: Vec<String> = header[..FIXED].iter().cloned().chain(letters).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].0.chars().count());
        cells
            .chain([headings[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let plain: Vec<(String, &str)> = headings.into_iter().map(|text| (text, "")).collect();
    for row in std::iter::once(&plain).chain(&rows) {
        let mut line = String::new();
        for ((cell, code), width) in row.iter().zip(&widths) {
            let padding = " ".repeat(width - cell.chars().count());
            let painted = match *code {
                "" => cell.clone(),
                code => style.paint(code, cell),
            };
            let _ = write!(line, "  {painted}{padding}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Columns before the objectives.
const FIXED: usize = 4;

fn row(policy: &PolicyOutcome) -> Vec<(String, &'static str)> {
    let all = policy.met == policy.objectives;
    let mut row = vec![
        (policy.policy.clone(), BOLD),
        (
            format!("{}/{}", policy.met, policy.objectives),
            if all { GREEN } else { RED },
        ),
        (format!("{:.0} %", policy.utilisation * 100.0), ""),
        (digits_or_zero(policy.policy_cores), ""),
    ];
    let objectives = policy.tenants.iter().flat_map(outcomes);
    row.extend(objectives.map(|one| (value(one), if one.met { GREEN } else { RED })));
    row
}

fn outcomes(tenant: &TenantOutcome) -> impl Iterator<Item = &ObjectiveOutcome> {
    tenant.objectives.iter()
}

fn value(one: &ObjectiveOutcome) -> String {
    let mark = if one.met { "✓" } else { "✗" };
    let edge = if one.borderline { "~" } else { "" };
    format!("{mark}{edge} {}", one.kind.words(one.measured))
}

fn digits_or_zero(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value => digits(value),
    }
}

/// `A` to `Z`, then numbers.
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index) if index < 26 => char::from(b'A' + index).to_string(),
        _ => (index + 1).to_string(),
    }
}
