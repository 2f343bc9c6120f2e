//! A plan as text.

use crate::host::HostDevice;
use crate::plan::Plan;
use crate::setting::rate_shown;
use isolane_common_text_output::{Table, counted};
use std::fmt::Write;

/// The whole plan; tables are at most `width` columns wide if possible.
pub fn render(plan: &Plan, device: &HostDevice, width: Option<usize>) -> String {
    let mut text = format!(
        "{} ({}, {}): {}; {}\n",
        device.name,
        device.driver,
        match device.rate_bps {
            0 => "rate unknown".to_owned(),
            rate => rate_shown(rate),
        },
        counted(plan.settings.len() as u64, "hardware setting"),
        match plan.remaining.len() {
            0 => "nothing remains for software".to_owned(),
            1 => "1 need remains".to_owned(),
            several => format!("{several} needs remain"),
        }
    );
    if !plan.settings.is_empty() {
        let mut table = Table::new("lll", &["object", "value", "because"]).keys(1);
        for setting in &plan.settings {
            table.row(vec![
                setting.target.to_string(),
                setting.value.to_string(),
                setting.reason.clone(),
            ]);
        }
        section(&mut text, "Settings", &table.render_within(width, false));
    }
    if !plan.environments.is_empty() {
        let mut table = Table::new("lll", &["tenant", "variables", "because"]).keys(1);
        for environment in &plan.environments {
            let variables = environment.variables.iter();
            let words: Vec<String> = variables
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            table.row(vec![
                environment.tenant.clone(),
                words.join(" "),
                environment.reason.clone(),
            ]);
        }
        section(
            &mut text,
            "Environment of programs",
            &table.render_within(width, false),
        );
    }
    if !plan.remaining.is_empty() {
        let mut table = Table::new("llll", &["who", "need", "done by", "because"]).keys(2);
        for remaining in &plan.remaining {
            table.row(vec![
                remaining.subject.clone(),
                remaining.need.clone(),
                remaining.by.name().to_owned(),
                remaining.reason.clone(),
            ]);
        }
        section(&mut text, "Remaining", &table.render_within(width, false));
    }
    writeln!(
        text,
        "\nThe simulator's policy with these mechanisms: {}.",
        plan.simulated_by
    )
    .expect("a string takes every text");
    text
}

fn section(text: &mut String, title: &str, table: &str) {
    write!(text, "\n{title}\n{table}").expect("a string takes every text");
}
