//! Every kind of page: what it begins with, and that it fits a desk and a phone.

use super::*;

/// Every kind of page.
fn every_page() -> Vec<(&'static str, String)> {
    let space = synthetic_hunt::space();
    let mut empty = synthetic_hunt::hunt();
    empty.anomalies.clear();
    empty.trace.clear();
    let networks = ["none", "aequitas"].map(synthetic_fabric::result);
    let scenarios = [synthetic_fabric::scenario(), synthetic_fabric::scenario()];
    let study = synthetic_nic::study(&["C1", "C6", "T3", "isolane"], &[3, 12], 2);
    let memories = ["none", "mercury", "fcfs"].map(|policy| synthetic_mem::run(policy, "llama"));
    vec![
        ("audit", audit().to_owned()),
        (
            "audit-many",
            isolane_app_report::audit(&synthetic::audit_under(
                SIZE,
                isolane_rdma_scenario::stack::ALL,
            )),
        ),
        (
            "run",
            isolane_app_report::run(
                &synthetic::run("justitia"),
                &["web: 3 completions with an error".to_owned()],
            ),
        ),
        (
            "runs",
            isolane_app_report::runs(&["none", "justitia"].map(synthetic::run), &[]),
        ),
        (
            "network",
            isolane_app_report::network(&scenarios[..1], &networks[..1], &[]),
        ),
        (
            "networks",
            isolane_app_report::network(&scenarios, &networks, &[]),
        ),
        (
            "nic",
            isolane_app_report::nic(&synthetic_nic::study(&["C6"], &[12], 1)),
        ),
        (
            "nic-many-flows",
            isolane_app_report::nic(&synthetic_nic::study(&["C6"], &[48], 1)),
        ),
        ("nic-study", isolane_app_report::nic(&study)),
        (
            "nic-cluster",
            isolane_app_report::nic(&[synthetic_nic::cluster("C6", 6, 1)]),
        ),
        ("memory", isolane_app_report::memory(&memories[..1], &[])),
        ("memories", isolane_app_report::memory(&memories, &[])),
        (
            "hunt",
            isolane_app_report::hunt(&synthetic_hunt::hunt(), &space),
        ),
        (
            "hunt-victim",
            isolane_app_report::hunt(&synthetic_hunt::victim(), &space),
        ),
        ("hunt-empty", isolane_app_report::hunt(&empty, &space)),
        (
            "comparison",
            isolane_app_report::comparison(&synthetic_hunt::comparison()),
        ),
        (
            "recommendation",
            isolane_app_report::recommendation(&synthetic_recommend::recommendation()),
        ),
        (
            "explanation",
            isolane_app_report::explanation(&story::explanation("web")),
        ),
        (
            "wfq",
            isolane_app_report::wfq(&synthetic_wfq::delays(&[0.0, 0.25, 0.5, 0.75, 1.0])),
        ),
        (
            "wfq-mix",
            isolane_app_report::wfq(&synthetic_wfq::delays(&[0.5])),
        ),
    ]
}

/// The pages' common rules, checked in the browser: each returns what breaks them.
const RULES: &str = include_str!("../support/rules.js");

#[test]
fn every_page_begins_with_a_verdict_and_a_plot_and_fits_a_desk_and_a_phone() {
    let pages = every_page();
    let Some(mut opened) = open(&pages[0].1, "", DESK, false) else {
        return;
    };
    let mut wrong = Vec::new();
    for (name, html) in &pages {
        for (device, window, dark) in [("dark desk", DESK, true), ("light phone", PHONE, false)] {
            opened.show(html, window, dark);
            let found = opened.value(RULES);
            for one in found.as_array().expect("the rules give a list") {
                wrong.push(format!("{name} {device}: {one}"));
            }
            opened.is_clean();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A rule that nothing breaks says nothing; these pages break one each.
#[test]
fn the_rules_of_pages_find_what_is_wrong() {
    let good = isolane_app_report::run(&synthetic::run("justitia"), &[]);
    let Some(mut opened) = open(&good, "", PHONE, false) else {
        return;
    };
    let broken = [
        (
            good.replace("class=\"verdict\"", "class=\"lede\""),
            "verdict",
        ),
        (
            good.replace("<div class=\"opening\">", "<div class=\"opening\" hidden>"),
            "plot",
        ),
        (
            good.replace("<h1>", "<h1 style=\"color:#eee\">"),
            "contrast",
        ),
        (good.replace("<h1>", "<h1 style=\"width:500px\">"), "wider"),
        (
            good.replace("class=\"tick\"", "class=\"tick\" style=\"font-size:70px\""),
            "overlap",
        ),
    ];
    for (html, expected) in broken {
        assert_ne!(html, good, "{expected}");
        opened.show(&html, PHONE, false);
        let found = opened.value(RULES).to_string();
        assert!(found.contains(expected), "{expected:?} is not in {found}");
    }
}

#[test]
fn runs_fit_a_desk_and_a_phone() {
    let one = isolane_app_report::run(&synthetic::run("justitia"), &[]);
    let two = isolane_app_report::runs(&["none", "justitia"].map(synthetic::run), &[]);
    for (name, html) in [("run", one), ("runs", two)] {
        for (device, window) in [("desk", DESK), ("phone", PHONE)] {
            let Some(mut page) = open(&html, "", window, false) else {
                return;
            };
            assert_eq!(
                page.value(NO_SIDEWAYS_SCROLL),
                json!(true),
                "{name} on a {device}"
            );
            page.screenshot(&format!("{name}-{device}"), true);
            page.is_clean();
        }
    }
}

#[test]
fn an_explanation_shows_its_chain_and_plots_on_desk_and_phone() {
    let text = isolane_app_report::explanation(&story::explanation("web"));
    for (device, window, dark) in [("desk", DESK, false), ("phone", PHONE, true)] {
        let Some(mut page) = open(&text, "", window, dark) else {
            return;
        };
        let words = page.text("body");
        for expected in [
            "web keeps 20 % of its goodput.",
            "crowd runs WRITE of 512 B on 1536 queue pairs.",
            "context miss slots, A",
            "contexts, host A",
            "isolane explain web crowd",
        ] {
            assert!(words.contains(expected), "{expected:?} is not in {words}");
        }
        assert_eq!(page.value(NO_SIDEWAYS_SCROLL), json!(true), "{device}");
        page.screenshot(&format!("explanation-{device}"), true);
        page.is_clean();
    }
}

#[test]
fn an_explanation_s_hostile_name_is_only_text() {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let text = isolane_app_report::explanation(&story::explanation(hostile));
    let Some(mut page) = open(&text, "", DESK, false) else {
        return;
    };
    assert!(page.text("h1").contains(hostile));
    assert_eq!(page.value("document.images.length"), json!(0));
    page.is_clean();
}

#[test]
fn a_study_of_cards_fits_a_desk_and_a_phone() {
    let configs = [
        "C1", "C6", "XPS", "T1", "T2", "T3", "TX3", "fq_codel", "isolane",
    ];
    let mut results = synthetic_nic::study(&configs, &[3, 12, 48], 2);
    for config in ["C1", "C6", "T1"] {
        results.push(synthetic_nic::cluster(config, 6, 1));
    }
    let text = isolane_app_report::nic(&results);
    for (device, window, dark) in [("desk", DESK, false), ("phone", PHONE, true)] {
        let Some(mut page) = open(&text, "", window, dark) else {
            return;
        };
        assert_eq!(
            page.value("document.querySelectorAll('#flows-12 tbody tr').length"),
            json!(9)
        );
        assert_eq!(
            page.value("document.querySelectorAll('#cluster-6 svg.plot').length"),
            json!(2)
        );
        assert_eq!(page.value(NO_SIDEWAYS_SCROLL), json!(true), "{device}");
        // The keyboard reaches a table that is wider than the screen, and can scroll it.
        let focused = "(document.querySelector('#flows-12 .scroller').focus(), \
                       document.activeElement.getAttribute('aria-label'))";
        assert_eq!(page.value(focused), json!("12 flows"));
        page.screenshot(&format!("nic-study-{device}"), true);
        page.is_clean();
    }
}

#[test]
fn tiered_memory_fits_a_desk_and_a_phone_and_a_hostile_name_is_only_text() {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let runs = ["none", "tpp", "mercury", "fcfs"].map(|policy| synthetic_mem::run(policy, hostile));
    let text = isolane_app_report::memory(&runs, &[]);
    for (device, window, dark) in [("desk", DESK, false), ("phone", PHONE, true)] {
        let Some(mut page) = open(&text, "", window, dark) else {
            return;
        };
        assert_eq!(
            page.value("document.querySelectorAll('#comparison tbody tr').length"),
            json!(12)
        );
        assert_eq!(
            page.value("document.querySelectorAll('#app-1 svg.plot').length"),
            json!(4)
        );
        assert!(page.text("#app-1 h2").contains(hostile));
        assert!(page.text("#notes").contains("fcfs rejects late"));
        assert_eq!(page.value("document.images.length"), json!(0));
        assert_eq!(page.value(NO_SIDEWAYS_SCROLL), json!(true), "{device}");
        // The keyboard reaches a table that is wider than the screen, and can scroll it.
        let focused = "(document.querySelector('#comparison .scroller').focus(), \
                       document.activeElement.getAttribute('aria-label'))";
        assert_eq!(page.value(focused), json!("applications side by side"));
        page.screenshot(&format!("tiered-memory-{device}"), true);
        page.is_clean();
    }
}

#[test]
fn a_hunt_fits_a_desk_and_a_phone() {
    let space = synthetic_hunt::space();
    let pages = [
        ("hunt", synthetic_hunt::hunt()),
        ("hunt-victim", synthetic_hunt::victim()),
    ];
    for (name, result) in pages {
        let html = isolane_app_report::hunt(&result, &space);
        for (device, window, dark) in [
            ("desk", DESK, false),
            ("desk-dark", DESK, true),
            ("phone", PHONE, true),
        ] {
            let Some(mut page) = open(&html, "", window, dark) else {
                return;
            };
            let plots = 1
                + result.counters.len()
                + result.anomalies.iter().filter(|a| a.set.is_some()).count();
            assert_eq!(
                page.value("document.querySelectorAll('svg.plot').length"),
                json!(plots)
            );
            let marks = "document.querySelectorAll('.opening circle').length";
            assert_eq!(page.value(marks), json!(result.anomalies.len()));
            assert_eq!(
                page.value(NO_SIDEWAYS_SCROLL),
                json!(true),
                "{name} {device}"
            );
            // The keyboard reaches the table, which may be wider than the screen.
            let focused = "(document.querySelector('#found .scroller').focus(), \
                           document.activeElement.getAttribute('aria-label'))";
            assert_eq!(page.value(focused), json!("what was found"));
            page.screenshot(&format!("{name}-{device}"), true);
            page.is_clean();
        }
    }
}
