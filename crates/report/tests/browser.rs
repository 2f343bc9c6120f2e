//! The reports in a real browser: what a reader clicks, types and sees.
//!
//! Skips with a printed reason where there is no Chromium, unless `ISOLANE_REQUIRE_BROWSER=1` is set. Reports are
//! made from made-up results. Screenshots go to `report-screenshots` in the tests' folder of the build.

#[path = "support/devtools.rs"]
mod devtools;
#[path = "support/story.rs"]
mod story;
#[path = "support/synthetic.rs"]
mod synthetic;
#[path = "support/synthetic_fabric.rs"]
mod synthetic_fabric;
#[path = "support/synthetic_hunt.rs"]
mod synthetic_hunt;
#[path = "support/synthetic_mem.rs"]
mod synthetic_mem;
#[path = "support/synthetic_nic.rs"]
mod synthetic_nic;
#[path = "support/synthetic_recommend.rs"]
mod synthetic_recommend;

use devtools::Browser;
use isolane_report::{number, svg};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use synthetic::Size;

const SIZE: Size = Size {
    victims: 25,
    attackers: 10,
    seeds: 3,
};

const DESK: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// A report in a browser; the folder goes with it.
struct Opened {
    browser: Browser,
    address: String,
    folder: tempfile::TempDir,
}

impl Opened {
    fn value(&mut self, expression: &str) -> Value {
        self.browser
            .evaluate(expression)
            .expect("the page evaluates")
    }

    fn text(&mut self, selector: &str) -> String {
        self.browser.text(selector).expect("the element has text")
    }

    fn keys(&mut self, keys: &[&str]) {
        for key in keys {
            self.browser.key(key).expect("the key is sent");
        }
    }

    fn screenshot(&mut self, name: &str, whole: bool) {
        let folder = screenshots();
        let image = self
            .browser
            .screenshot(whole)
            .expect("the browser takes a screenshot");
        assert!(image.starts_with(b"\x89PNG"), "a screenshot is a PNG");
        std::fs::write(folder.join(format!("{name}.png")), image)
            .expect("the build's folder is writable");
    }

    /// Another page in the same browser.
    fn show(&mut self, page: &str, window: (u32, u32), dark: bool) {
        self.browser.forget();
        std::fs::write(self.folder.path().join("report.html"), page)
            .expect("the temporary folder is writable");
        self.browser
            .window(window, 1.0, dark)
            .expect("the window can be sized");
        self.browser.open(&self.address).expect("the report opens");
    }

    /// Nothing went wrong, and nothing but the file itself was asked for.
    fn is_clean(&mut self) {
        assert_eq!(
            self.browser.problems().expect("the browser answers"),
            Vec::<String>::new()
        );
        for file in self.browser.files() {
            assert_eq!(file.split('#').next(), Some(self.address.as_str()));
        }
    }
}

fn screenshots() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-screenshots");
    std::fs::create_dir_all(&folder).expect("the build's folder is writable");
    folder
}

/// Opens `page`, or says why this test is skipped.
fn open(page: &str, fragment: &str, window: (u32, u32), dark: bool) -> Option<Opened> {
    let Some(program) = devtools::find() else {
        let required = std::env::var("ISOLANE_REQUIRE_BROWSER").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "ISOLANE_REQUIRE_BROWSER=1, but no Chromium is on the path"
        );
        let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("skipped ({count} so far): no Chromium on the path");
        return None;
    };
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let file = folder.path().join("report.html");
    std::fs::write(&file, page).expect("the temporary folder is writable");
    let address = devtools::address(&file).expect("the report is there");
    let mut browser = Browser::start(&program).expect("Chromium starts");
    browser
        .window(window, 1.0, dark)
        .expect("the window can be sized");
    browser
        .open(&format!("{address}{fragment}"))
        .expect("the report opens");
    Some(Opened {
        browser,
        address,
        folder,
    })
}

fn audit() -> String {
    isolane_report::audit(&synthetic::audit(SIZE))
}

const CELL: &str = "document.querySelectorAll('.panel.open tr[data-v]')[2].cells[3]";
/// The width of the layout, not that of the window: a phone shows a page that is too wide by zooming out.
const NO_SIDEWAYS_SCROLL: &str =
    "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

#[test]
fn a_click_on_a_cell_opens_its_drill_down() {
    let Some(mut page) = open(&audit(), "", DESK, false) else {
        return;
    };
    let result = synthetic::audit(SIZE);
    let (victim, attacker) = (&result.victims[2].name, &result.attackers[2].name);
    assert_eq!(
        page.value("document.getElementById('drill').hidden"),
        json!(true)
    );
    page.browser.click(CELL).expect("the cell can be clicked");
    let text = page.text("#drill");
    let cell = result
        .cell("none", victim, attacker)
        .expect("every pair has a cell");
    let exhausted = cell.exhausted.as_ref().expect("made-up cells have it");
    for expected in [
        victim.as_str(),
        attacker,
        "alone",
        "under attack",
        "What ran out",
        &exhausted.counter,
        "Every seed",
        "goodput, Gb/s",
        "measured time, ms",
        &format!(
            "isolane audit --profile cx5-100g-roce --alpha 0.25 --seeds 1,2,3 --policies none --victims {victim} --attackers {attacker}"
        ),
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    assert!(
        text.to_lowercase()
            .contains(&exhausted.resource.to_lowercase())
    );
    let hash = page.value("location.hash");
    assert_eq!(
        hash,
        json!(format!("#policy=none&victim={victim}&attacker={attacker}"))
    );
    page.screenshot("audit-drill-down", false);

    page.browser
        .click("[...document.querySelectorAll('#drill .tabs button')][1]")
        .expect("the policy can be clicked");
    assert!(page.text("#drill .badge").ends_with("under justitia"));
    assert_eq!(
        page.value("document.querySelector('#tab-1').getAttribute('aria-selected')"),
        json!("true")
    );
    page.browser
        .click("document.querySelector('#drill .close')")
        .expect("the panel can be closed");
    assert_eq!(
        page.value("document.getElementById('drill').hidden"),
        json!(true)
    );
    assert_eq!(page.value("location.hash"), json!(""));
    page.is_clean();
}

#[test]
fn the_keyboard_alone_reaches_every_pair() {
    let Some(mut page) = open(&audit(), "", DESK, false) else {
        return;
    };
    let active = "document.activeElement.closest('td') ? [document.activeElement.parentNode.dataset.v, \
                  document.activeElement.cellIndex] : null";
    let mut tabs = 0;
    while page.value(active).is_null() {
        page.keys(&["Tab"]);
        tabs += 1;
        assert!(tabs < 60, "Tab never reaches the matrix");
    }
    assert_eq!(page.value(active), json!(["0", 1]));
    let outline = page.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, json!("solid"));
    page.keys(&[
        "ArrowRight",
        "ArrowRight",
        "ArrowDown",
        "ArrowLeft",
        "ArrowUp",
        "ArrowUp",
    ]);
    assert_eq!(page.value(active), json!(["0", 2]));
    page.keys(&["End", "ArrowRight", "Home", "ArrowDown", "Enter"]);
    assert_eq!(
        page.value("document.activeElement.id"),
        json!("drill-title")
    );
    let result = synthetic::audit(SIZE);
    assert!(
        page.text("#drill-title")
            .starts_with(result.victims[1].name.as_str())
    );
    page.keys(&["Escape"]);
    assert_eq!(page.value(active), json!(["1", 1]));
    let label = page.value("document.activeElement.getAttribute('aria-label')");
    assert!(
        label.as_str().is_some_and(|label| label.contains("owed")),
        "{label}"
    );
    page.is_clean();
}

#[test]
fn an_address_with_a_fragment_opens_its_pair() {
    let result = synthetic::audit(SIZE);
    let (victim, attacker) = (&result.victims[24].name, &result.attackers[9].name);
    let fragment = format!("#policy=justitia&victim={victim}&attacker={attacker}");
    let Some(mut page) = open(&audit(), &fragment, DESK, true) else {
        return;
    };
    let text = page.text("#drill");
    assert!(
        text.contains(victim.as_str()) && text.contains("under justitia"),
        "{text}"
    );
    assert!(text.contains("99th percentile latency over time"), "{text}");
    page.screenshot("audit-latency-dark", false);
    page.browser
        .open(&format!("{}#policy=gone&victim=x&attacker=y", page.address))
        .expect("the report opens");
    assert_eq!(
        page.value("document.getElementById('drill').hidden"),
        json!(true)
    );
    page.is_clean();
}

#[test]
fn filters_leave_what_was_asked_for() {
    let Some(mut page) = open(&audit(), "", DESK, false) else {
        return;
    };
    let shown = "[[...document.querySelectorAll('.panel.open tr[data-v]')].filter(r => !r.hidden).length, \
                 [...document.querySelectorAll('.panel.open .names th')].filter(c => !c.hidden).length]";
    assert_eq!(page.value(shown), json!([25, 10]));
    page.value(
        "(() => { const f = document.getElementById('filter-victim'); f.value = 'SMALL'; \
                f.dispatchEvent(new Event('input')); })()",
    );
    assert_eq!(page.value(shown), json!([3, 10]));
    page.value(
        "(() => { const f = document.getElementById('filter-group'); f.selectedIndex = 1; \
                f.dispatchEvent(new Event('change')); })()",
    );
    let [rows, columns] = [
        page.value(&format!("{shown}[0]")),
        page.value(&format!("{shown}[1]")),
    ];
    assert_eq!(rows, json!(3));
    assert!(
        columns
            .as_u64()
            .is_some_and(|columns| (1..10).contains(&columns)),
        "{columns}"
    );
    page.value(
        "(() => { const f = document.getElementById('filter-victim'); f.value = 'no such'; \
                f.dispatchEvent(new Event('input')); })()",
    );
    assert!(page.text("#readout").contains("No pair matches"));
    page.is_clean();
}

#[test]
fn files_carry_the_table_and_the_plots() {
    let Some(mut page) = open(&audit(), "", DESK, true) else {
        return;
    };
    let csv = page.value("isolane.csv()");
    let csv = csv.as_str().expect("the table is text");
    assert_eq!(csv.lines().count(), 1 + 2 * 25 * 10);
    assert!(csv.starts_with("\"policy\",\"victim\""));
    let svg = page.value("isolane.standalone(document.querySelector('figure svg')).text");
    let svg = svg.as_str().expect("a plot is text");
    assert!(
        svg.contains("rgb(") && !svg.contains("var(") && !svg.contains("class="),
        "{svg:.300}"
    );
    let size = page.value(
        "isolane.pngOf(isolane.standalone(document.querySelector('figure svg'))).then(b => b.size)",
    );
    assert!(size.as_u64().is_some_and(|size| size > 1000), "{size}");
    page.browser
        .call("Browser.setDownloadBehavior", json!({"behavior": "deny"}))
        .expect("downloads can be refused");
    page.browser
        .click("document.querySelector('[data-save=png]')")
        .expect("the button can be clicked");
    page.browser
        .click("document.querySelector('[data-matrix=svg]')")
        .expect("the button can be clicked");
    page.is_clean();
}

#[test]
fn a_phone_scrolls_down_only() {
    for (name, fragment) in [
        ("audit-phone", String::new()),
        ("audit-phone-drill-down", first_pair()),
    ] {
        let Some(mut page) = open(&audit(), &fragment, PHONE, true) else {
            return;
        };
        assert_eq!(page.value(NO_SIDEWAYS_SCROLL), json!(true));
        let panel = "(() => { const d = document.getElementById('drill'); return d.scrollWidth <= d.clientWidth; })()";
        assert_eq!(page.value(panel), json!(true));
        page.screenshot(name, fragment.is_empty());
        page.is_clean();
    }
}

fn first_pair() -> String {
    let result = synthetic::audit(SIZE);
    format!(
        "#policy=none&victim={}&attacker={}",
        result.victims[0].name, result.attackers[0].name
    )
}

#[test]
fn colours_follow_the_system_and_the_button() {
    let ground = "getComputedStyle(document.body).backgroundColor";
    let Some(mut page) = open(&audit(), "", DESK, true) else {
        return;
    };
    let dark = page.value(ground);
    page.screenshot("audit-dark", true);
    page.browser
        .window(DESK, 1.0, false)
        .expect("the window can be set");
    let light = page.value(ground);
    assert_ne!(dark, light);
    page.screenshot("audit-light", true);
    // From auto to light, then to dark.
    for _ in 0..2 {
        page.browser
            .click("document.getElementById('theme')")
            .expect("the button can be clicked");
    }
    assert_eq!(page.value(ground), dark);
    page.is_clean();
}

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
        ("audit", audit()),
        (
            "audit-many",
            isolane_report::audit(&synthetic::audit_under(SIZE, isolane_scenario::stack::ALL)),
        ),
        (
            "run",
            isolane_report::run(
                &synthetic::run("justitia"),
                &["web: 3 completions with an error".to_owned()],
            ),
        ),
        (
            "runs",
            isolane_report::runs(&["none", "justitia"].map(synthetic::run), &[]),
        ),
        (
            "network",
            isolane_report::network(&scenarios[..1], &networks[..1], &[]),
        ),
        (
            "networks",
            isolane_report::network(&scenarios, &networks, &[]),
        ),
        (
            "nic",
            isolane_report::nic(&synthetic_nic::study(&["C6"], &[12], 1)),
        ),
        (
            "nic-many-flows",
            isolane_report::nic(&synthetic_nic::study(&["C6"], &[48], 1)),
        ),
        ("nic-study", isolane_report::nic(&study)),
        (
            "nic-cluster",
            isolane_report::nic(&[synthetic_nic::cluster("C6", 6, 1)]),
        ),
        ("memory", isolane_report::memory(&memories[..1], &[])),
        ("memories", isolane_report::memory(&memories, &[])),
        (
            "hunt",
            isolane_report::hunt(&synthetic_hunt::hunt(), &space),
        ),
        (
            "hunt-victim",
            isolane_report::hunt(&synthetic_hunt::victim(), &space),
        ),
        ("hunt-empty", isolane_report::hunt(&empty, &space)),
        (
            "comparison",
            isolane_report::comparison(&synthetic_hunt::comparison()),
        ),
        (
            "recommendation",
            isolane_report::recommendation(&synthetic_recommend::recommendation()),
        ),
        (
            "explanation",
            isolane_report::explanation(&story::explanation("web")),
        ),
        (
            "wfq",
            isolane_report::wfq(&wfq(&[0.0, 0.25, 0.5, 0.75, 1.0])),
        ),
        ("wfq-mix", isolane_report::wfq(&wfq(&[0.5]))),
    ]
}

fn wfq(shares: &[f64]) -> isolane_report::WfqDelays {
    let point = |share: &f64| isolane_report::WfqPoint {
        share: *share,
        delay_periods: vec![*share, 1.0 - share],
        delay_us: None,
        case: Some("both wait".to_owned()),
    };
    isolane_report::WfqDelays {
        version: 1,
        weights: vec![4.0, 1.0],
        load: 0.8,
        burst: 2.0,
        rest: vec![1.0],
        period_us: None,
        admissible_share: vec![[0.0, 0.5]],
        guaranteed_line_rates: vec![0.32],
        undelayed_share_max: 0.4,
        points: shares.iter().map(point).collect(),
    }
}

/// The pages' common rules, checked in the browser: each returns what breaks them.
const RULES: &str = include_str!("support/rules.js");

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
    let good = isolane_report::run(&synthetic::run("justitia"), &[]);
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
    let one = isolane_report::run(&synthetic::run("justitia"), &[]);
    let two = isolane_report::runs(&["none", "justitia"].map(synthetic::run), &[]);
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
fn script_and_static_plots_write_numbers_alike() {
    let Some(mut page) = open(&audit(), "", DESK, false) else {
        return;
    };
    let values = [
        0.0, 1e-6, 0.000_5, 0.01, 0.0999, 0.9996, 1.0, 42.42, 99.95, 999.6, 1234.6, 65_432.1,
        1.234e7, 9.996e8,
    ];
    for value in values {
        let ours = json!([
            number::significant(value, 3),
            number::bit_rate(value),
            number::rate(value, "msg"),
            number::time(value),
            number::percent(value),
        ]);
        let theirs = page.value(&format!(
            "(({{significant, bitRate, rate, time, percent}}) => [significant({value:?}, 3), bitRate({value:?}), \
             rate({value:?}, 'msg'), time({value:?}), percent({value:?})])(isolane)"
        ));
        assert_eq!(theirs, ours, "{value}");
    }
    for high in [0.034, 1.0, 7.3, 97.3, 100.0, 12_500.0] {
        let ours = json!(svg::linear(0.0, high, 4).labels);
        let theirs = page.value(&format!(
            "isolane.ticks(0, {high:?}, 4).map(([, label]) => label)"
        ));
        assert_eq!(theirs, ours, "{high}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let mut result = synthetic::audit(Size {
        victims: 2,
        attackers: 2,
        seeds: 1,
    });
    let hostile = "</script><img src=x onerror=alert(1)>\"'&%20#";
    for cell in &mut result.cells {
        if cell.victim == result.victims[0].name {
            cell.victim = hostile.to_owned();
        }
        cell.why = hostile.to_owned();
    }
    result.victims[0].name = hostile.to_owned();
    let page = isolane_report::audit(&result);
    let Some(mut page) = open(&page, "", DESK, false) else {
        return;
    };
    page.browser
        .click("document.querySelector('.panel.open tr[data-v]').cells[1]")
        .expect("the cell can be clicked");
    assert!(page.text("#drill-title").starts_with(hostile));
    assert_eq!(page.value("document.images.length"), json!(0));
    let fragment = page.value("location.hash");
    let address = format!(
        "{}{}",
        page.address,
        fragment.as_str().expect("a fragment is text")
    );
    page.browser.open(&address).expect("the report opens");
    assert!(page.text("#drill-title").starts_with(hostile));
    page.is_clean();
}

#[test]
fn an_explanation_shows_its_chain_and_plots_on_desk_and_phone() {
    let text = isolane_report::explanation(&story::explanation("web"));
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
    let text = isolane_report::explanation(&story::explanation(hostile));
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
    let text = isolane_report::nic(&results);
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
    let text = isolane_report::memory(&runs, &[]);
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
        assert!(page.text("#notes").contains("fcfs refuses late"));
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
        let html = isolane_report::hunt(&result, &space);
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
