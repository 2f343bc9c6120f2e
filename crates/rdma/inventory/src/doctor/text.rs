//! The report as text: the machine first, then each device; one line per check, followed by its action.

use super::{Check, Examination, Verdict};
use std::fmt::Write;

/// The report. Ends in a newline.
pub fn render(examination: &Examination) -> String {
    let mut text = String::new();
    group(
        &mut text,
        match examination.rdma {
            true => "machine",
            false => "This machine has no RDMA device. From the kernel up:",
        },
        examination
            .checks
            .iter()
            .filter(|check| check.device.is_none()),
    );
    for device in &examination.devices {
        let firmware = match device.firmware.as_str() {
            "" | "0.0.0" => String::new(),
            firmware => format!(", firmware {firmware}"),
        };
        let title = format!("\n{} ({}{firmware})", device.name, device.driver);
        let of_device = |check: &&Check| check.device.as_deref() == Some(&device.name);
        group(
            &mut text,
            &title,
            examination.checks.iter().filter(of_device),
        );
    }
    text.push('\n');
    text.push_str(&summary(examination));
    text.push('\n');
    text
}

fn group<'a>(text: &mut String, title: &str, checks: impl Iterator<Item = &'a Check>) {
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a string does not fail");
    };
    line(format_args!("{title}"));
    for check in checks {
        line(format_args!(
            "  {:<7} {:<15} {}",
            check.verdict, check.name, check.seen
        ));
        for action in check.action.iter().flat_map(|action| action.lines()) {
            line(format_args!("{:26}do: {action}", ""));
        }
    }
}

fn summary(examination: &Examination) -> String {
    let count = |verdict, one: &str, many: &str| {
        let count = examination.count(verdict);
        format!("{count} {}", if count == 1 { one } else { many })
    };
    format!(
        "{} ok, {}, {}, {} unknown",
        examination.count(Verdict::Ok),
        count(Verdict::Warn, "warning", "warnings"),
        count(Verdict::Fail, "failure", "failures"),
        examination.count(Verdict::Unknown)
    )
}
