//! The answer for a terminal: the advice, a line per policy and tenant, and what each policy cannot protect against.

use crate::derive;
use crate::needs::digits;
use crate::result::{Objective, ObjectiveOutcome, PolicyOutcome, Recommendation, TenantOutcome};
use isolane_common_text_output::{Cell, Table, counted};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::fmt::Write;

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Use ANSI colours.
    pub colour: bool,
    /// Columns of the terminal; the table folds where it is wider. None for as wide as it is.
    pub width: Option<usize>,
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
        "{}\n{} on {}, {}\n\n",
        style.paint(BOLD, &sentence(&answer.advice)),
        answer.scenario,
        answer.profile,
        counted(answer.seeds.len() as u64, "seed")
    );
    table(&mut text, answer, style);
    derived(&mut text, answer);
    text.push_str("\nWhat each policy cannot protect against\n");
    for alike in reasons(answer) {
        let names: Vec<&str> = alike.iter().map(|one| one.policy.as_str()).collect();
        let _ = writeln!(text, "  {}", style.paint(BOLD, &names.join(", ")));
        let failures = failures(alike[0]);
        if failures.is_empty() {
            text.push_str("    nothing that these tenants do to each other\n");
        }
        for failure in failures {
            let _ = writeln!(text, "    {failure}");
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

/// A sentence for each tenant that misses objectives under the policy, and for each objective without a verdict.
pub fn failures(policy: &PolicyOutcome) -> Vec<String> {
    let misses = policy.misses.iter().map(|miss| miss.words.clone());
    let open = policy.tenants.iter().flat_map(|tenant| {
        let open = tenant.objectives.iter().filter(|one| !one.settled);
        open.map(|one| {
            let objective = Objective {
                kind: one.kind,
                target: one.target,
            };
            format!(
                "no verdict on {} ({}, got {}): the runs did not settle",
                tenant.name,
                objective.words(),
                one.kind.words(one.measured)
            )
        })
    });
    misses.chain(open).collect()
}

/// The policies in groups of those that fail in the same words, in the order of the first of each.
pub fn reasons(answer: &Recommendation) -> Vec<Vec<&PolicyOutcome>> {
    let mut groups: Vec<Vec<&PolicyOutcome>> = Vec::new();
    for policy in &answer.policies {
        match groups
            .iter_mut()
            .find(|group| failures(group[0]) == failures(policy))
        {
            Some(group) => group.push(policy),
            None => groups.push(vec![policy]),
        }
    }
    groups
}

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
    // Objectives' headings are longer than their values: they are in a legend, by letter.
    let letters: Vec<String> = (0..header.len() - FIXED).map(letter).collect();
    for (letter, heading) in letters.iter().zip(&header[FIXED..]) {
        let _ = writeln!(text, "  {letter}  {heading}");
    }
    text.push('\n');
    let headings: Vec<String> = header[..FIXED].iter().cloned().chain(letters).collect();
    let mut table = Table::new("l".repeat(headings.len()), &headings);
    for policy in &answer.policies {
        table.row(row(policy));
    }
    text.push_str(&table.render_within(style.width, style.colour));
    if answer.policies.iter().any(|policy| !policy.on_sale) {
        let _ = writeln!(text, "  {NOT_ON_SALE}, and comes after hardware on sale");
    }
    if let Some(settling) = &answer.settling {
        let _ = writeln!(text, "  {}", settling.words("run"));
    }
}

/// Where the objectives are derived: by which rule, and how to write one's own.
fn derived(text: &mut String, answer: &Recommendation) {
    let derived = answer.tenants.iter().filter(|tenant| tenant.derived);
    let with: Vec<_> = derived.filter(|one| !one.objectives.is_empty()).collect();
    if with.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nNo tenant states an objective, so these are derived: {}. To set other objectives, change these lines and add them \
         to the [[tenant]] tables",
        derive::rule()
    );
    for tenant in with {
        let _ = writeln!(
            text,
            "  {}: {}",
            tenant.name,
            derive::as_written(&tenant.objectives)
        );
    }
}

/// Columns before the objectives.
const FIXED: usize = 4;

fn row(policy: &PolicyOutcome) -> Vec<Cell> {
    let code = |met: bool| if met { GREEN } else { RED };
    let all = policy.met == policy.objectives;
    let mut row = vec![
        Cell::painted(marked(&policy.policy), BOLD),
        Cell::painted(format!("{}/{}", policy.met, policy.objectives), code(all)),
        Cell::from(format!("{:.0} %", policy.utilisation * 100.0)),
        Cell::from(digits_or_zero(policy.policy_cores)),
    ];
    let objectives = policy.tenants.iter().flat_map(outcomes);
    row.extend(objectives.map(|one| Cell::painted(value(one), code(one.met))));
    row
}

fn outcomes(tenant: &TenantOutcome) -> impl Iterator<Item = &ObjectiveOutcome> {
    tenant.objectives.iter()
}

fn value(one: &ObjectiveOutcome) -> String {
    let edge = if one.borderline { "~" } else { "" };
    format!("{}{edge} {}", one.mark(), one.kind.words(one.measured))
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
