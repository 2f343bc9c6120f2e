//! A plan as text.

use crate::host::HostDevice;
use crate::plan::Plan;
use crate::setting::rate_shown;
use isolane_common_text_output::{Table, counted, wrapped};
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
    if !plan.simulated.is_empty() {
        simulated(&mut text, plan, width);
    }
    text
}

/// What the simulator knows of the plan, and the command that audits it.
fn simulated(text: &mut String, plan: &Plan, width: Option<usize>) {
    let mut table = Table::new("lll", &["setting", "policy", "difference"]).keys(1);
    for one in &plan.simulated {
        let by = one.by.clone().unwrap_or_else(|| "not simulated".to_owned());
        table.row(vec![one.setting.clone(), by, one.difference.clone()]);
    }
    section(text, "In the simulator", &table.render_within(width, false));
    let (sentence, command) = match plan.simulated_by.as_str() {
        "none" => (
            "No policy of the simulator has these settings.".to_owned(),
            String::new(),
        ),
        policy => {
            // Each setting alone, then all together.
            let mut policies: Vec<&str> = policy.split('+').collect();
            if policies.len() > 1 {
                policies.push(policy);
            }
            let weights = plan.simulated_weights.iter();
            let words: Vec<String> = weights
                .map(|(tenant, weight)| format!("{tenant} {weight}"))
                .collect();
            (
                format!(
                    "To audit them, write the tenants' traffic as a scenario with the weights {}, and run:",
                    words.join(", ")
                ),
                format!(
                    "  isolane audit --scenario TENANTS.toml --policies none,{}\n",
                    policies.join(",")
                ),
            )
        }
    };
    write!(text, "\n{}\n{command}", wrapped(&sentence, width)).expect("a string takes every text");
}

fn section(text: &mut String, title: &str, table: &str) {
    write!(text, "\n{title}\n{table}").expect("a string takes every text");
}
