//! The page of tiered memory, on made-up runs.

use super::*;
use crate::synthetic_mem::run;

fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\">")).expect(id);
    let end = page[start..].find("</section>").expect("sections end");
    &page[start..start + end]
}

fn pages() -> String {
    let runs = ["tpp", "mercury", "fcfs"].map(|policy| run(policy, "llama"));
    page(&runs, &[vec!["local_limit has no effect".to_owned()]])
}

#[test]
fn every_application_has_its_figures_with_its_objective_first() {
    let page = pages();
    let redis = section(&page, "app-0");
    assert_eq!(redis.matches("<svg").count(), 4);
    let (latency, bandwidth) = (redis.find("Latency of"), redis.find("Bandwidth"));
    assert!(latency < bandwidth);
    assert!(redis.contains("≤ 160") && redis.contains("measured from here"));
    let llama = section(&page, "app-1");
    assert!(llama.find("Bandwidth") < llama.find("Latency of"));
    assert!(llama.contains("≥ 50"));
    // Lines of three policies in each figure.
    assert_eq!(llama.matches("class=\"line ").count(), 4 * 3);
    let late = section(&page, "app-2");
    assert!(late.contains("No points over time"), "it is in no point");
}

#[test]
fn who_is_refused_and_why_is_said_before_everything_else() {
    let page = pages();
    let notes = section(&page, "notes");
    assert!(notes.contains("<b>fcfs</b> rejects <b>late</b>: 3.1 GB of near memory short."));
    assert!(notes.contains("local_limit has no effect"));
    assert!(page.find("id=\"notes\"") < page.find("id=\"comparison\""));
    let row = section(&page, "comparison")
        .split("<tr>")
        .last()
        .expect("rows");
    assert!(
        row.contains("rejected") && row.matches('–').count() >= 8,
        "{row}"
    );
}

#[test]
fn the_last_changes_are_listed_and_all_are_counted() {
    let page = pages();
    let changes = section(&page, "changes-1");
    assert!(changes.contains("20 changes in all"));
    assert!(changes.contains("gives bandwidth to redis (15)"));
    let rows = changes.matches("<tr><th").count();
    assert_eq!(
        rows,
        1 + 5 + 8,
        "head, five of Redis, the last eight of llama"
    );
    assert!(!page.contains("id=\"changes-0\""), "tpp has no limits");
}

#[test]
fn names_are_text_and_equal_runs_give_equal_bytes() {
    let hostile = "<img src=x onerror=alert(1)>";
    let runs = [run("mercury", hostile)];
    let text = page(&runs, &[]);
    assert!(!text.contains("<img") && text.contains("&lt;img"));
    assert_eq!(text, page(&runs, &[]));
    assert!(page(&[], &[]).contains("nothing to report"));
}

#[test]
fn a_run_without_points_has_no_plot_over_time() {
    let mut one = run("tpp", "llama");
    one.series.clear();
    let text = page(&[one], &[]);
    assert_eq!(text.matches("class=\"line").count(), 0);
    assert!(section(&text, "app-0").contains("No points over time"));
}
