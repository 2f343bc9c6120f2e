//! A screenshot of a report: `cargo run -p isolane-app-report --example screenshot -- IN.html[#FRAGMENT] OUT.png [WIDTH] [dark]`.
//!
//! WIDTH is in CSS pixels, 1280 unless given. `whole` takes the whole page instead of a window of 16 by 10, `dark`
//! prefers the dark colours, and `print` shows what a printer gets. The image has two pixels per CSS pixel. In place
//! of `IN.html`: `synthetic`, `synthetic-many`, `synthetic-run` or `synthetic-runs` for made-up results, or an audit, a
//! recommendation or a run in JSON form. Needs Chromium on the path.

use anyhow::{Context, Result};
use std::path::Path;

#[path = "../tests/support/devtools.rs"]
mod devtools;
#[path = "../tests/support/synthetic.rs"]
mod synthetic;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!(
            "usage: screenshot IN.html[#FRAGMENT] OUT.png [WIDTH] [dark] [whole] [print]"
        );
    };
    let width: u32 = match rest
        .iter()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
    {
        Some(word) => word
            .parse()
            .with_context(|| format!("{word} is no width in pixels"))?,
        None => 1280,
    };
    let has = |wanted: &str| rest.iter().any(|word| word == wanted);
    let (file, fragment) = input.split_once('#').unwrap_or((input, ""));

    let made_up = match file {
        "synthetic" => Some(isolane_app_report::audit(&synthetic::audit(
            synthetic::FULL,
        ))),
        "synthetic-many" => {
            let policies = isolane_rdma_scenario::stack::ALL;
            let audit = synthetic::audit_under(synthetic::FULL, policies);
            Some(isolane_app_report::audit(&audit))
        }
        "synthetic-run" => Some(isolane_app_report::run(&synthetic::run("justitia"), &[])),
        "synthetic-runs" => Some(isolane_app_report::runs(
            &["none", "justitia"].map(synthetic::run),
            &[],
        )),
        json if json.ends_with(".json") => Some(report_of(json)?),
        _ => None,
    };
    let folder = tempfile::tempdir().context("cannot make a directory")?;
    let page = folder.path().join("report.html");
    let file = match made_up {
        Some(text) => {
            std::fs::write(&page, text).context("cannot write the made-up report")?;
            page.as_path()
        }
        None => Path::new(file),
    };

    let program = devtools::find().context("no Chromium on the path; install one")?;
    let mut browser = devtools::Browser::start(&program)?;
    let height = if width < 600 { 844 } else { width * 10 / 16 };
    browser.window((width, height), 2.0, has("dark"))?;
    if has("print") {
        browser.call(
            "Emulation.setEmulatedMedia",
            serde_json::json!({"media": "print"}),
        )?;
    }
    let address = devtools::address(file)?;
    let separator = if fragment.is_empty() { "" } else { "#" };
    browser.open(&format!("{address}{separator}{fragment}"))?;
    let image = browser.screenshot(has("whole"))?;
    std::fs::write(output, image).with_context(|| format!("cannot write {output}"))?;
    Ok(())
}

/// The report of an audit, a recommendation or a run in JSON form.
fn report_of(file: &str) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    if let Ok(audit) = serde_json::from_str(&text) {
        return Ok(isolane_app_report::audit(&audit));
    }
    if let Ok(answer) = serde_json::from_str(&text) {
        return Ok(isolane_app_report::recommendation(&answer));
    }
    let run = serde_json::from_str(&text)
        .with_context(|| format!("{file} is neither audit nor recommendation nor run"))?;
    Ok(isolane_app_report::run(&run, &[]))
}
