//! The page of a study, on made-up runs.

use super::*;
use crate::synthetic_nic::{cluster, study};
use expect_test::expect;

/// Tags to newlines, so that a page's words can be compared.
fn words(page: &str) -> String {
    let mut out = String::new();
    let mut tag = false;
    for character in page.chars() {
        match character {
            '<' => tag = true,
            '>' => {
                tag = false;
                out.push(' ');
            }
            _ if !tag => out.push(character),
            _ => {}
        }
    }
    let lines: Vec<String> = out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}

fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\">")).expect(id);
    let end = page[start..].find("</section>").expect("sections end");
    &page[start..start + end]
}

#[test]
fn a_table_has_a_row_for_each_configuration_and_the_best_in_bold() {
    let page = page(&study(&["C6", "T1", "isolane"], &[3, 12], 2));
    expect![[r#"
        12 flows configuration throughput, Gb/s CPU, % of one ping p90, ms NFM 1 ms NFM 1 s
        C6 9.41 55 0.540 1.30 0.50
        T1 9.41 55 0.539 0.26 0.10
        isolane 9.41 54 0.527 0.25 0.10"#]]
    .assert_eq(&words(section(&page, "flows-12")));
    assert_eq!(page.matches("<section id=\"flows-").count(), 2);
    assert!(
        section(&page, "flows-3").contains("<b>0.10</b>"),
        "{}",
        section(&page, "flows-3")
    );
}

#[test]
fn figures_show_groups_that_ran() {
    let page = page(&study(&["C6", "T1", "T2"], &[3, 48], 1));
    let ids: Vec<&str> = page
        .split("<section id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    expect!["flows-3 flows-48 assignment weights costs configurations"].assert_eq(&ids.join(" "));
}

#[test]
fn clusters_have_their_own_table_and_distributions() {
    let page = page(&[cluster("C1", 6, 1), cluster("T1", 6, 2)]);
    expect![[r#"
        6 hosts, all to all Every host opens a connection to every other at once. A host's spread is its last completion less its first. configuration spread p50, ms spread p90, ms completion p50, ms completion p90, ms last, ms
        C1 115.6 153.0 461.9 532.9 558.1
        T1 13.94 19.06 408.3 418.4 419.5"#]].assert_eq(&words(section(&page, "hosts-6")));
    let plots = section(&page, "cluster-6");
    assert_eq!(plots.matches("<svg").count(), 2);
    assert!(!page.contains("NFM"), "clusters have no such column");
}

#[test]
fn what_was_not_done_is_said_once_for_all_configurations() {
    let mut runs = study(&["C6", "T1"], &[3], 2);
    for run in &mut runs {
        run.not_done = vec!["no <interrupts> to moderate".to_owned()];
    }
    let page = page(&runs);
    expect!["What this testbed could not do C6, T1 : no &lt;interrupts&gt; to moderate"]
        .assert_eq(&words(section(&page, "not-done")));
    assert!(page.contains("no &lt;interrupts&gt;"));
}

#[test]
fn a_page_without_runs_states_it_and_equal_runs_give_equal_bytes() {
    assert!(page(&[]).contains("nothing to report"));
    let runs = study(&["C6", "T1"], &[3, 12], 3);
    assert_eq!(page(&runs), page(&runs));
}
