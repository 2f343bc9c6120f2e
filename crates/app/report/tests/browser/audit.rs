//! The audit's page: clicks, keys, filters, files, a phone.

use super::*;

const CELL: &str = "document.querySelectorAll('.panel.open tr[data-v]')[2].cells[3]";

#[test]
fn a_click_on_a_cell_opens_its_drill_down() {
    let Some(mut page) = open(audit(), "", DESK, false) else {
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
    let Some(mut page) = open(audit(), "", DESK, false) else {
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
    let Some(mut page) = open(audit(), &fragment, DESK, true) else {
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
fn filters_leave_the_requested_claims() {
    let Some(mut page) = open(audit(), "", DESK, false) else {
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
    let Some(mut page) = open(audit(), "", DESK, true) else {
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
    let context = page.browser.context.clone();
    let denied = json!({"behavior": "deny", "browserContextId": context});
    page.browser
        .call("Browser.setDownloadBehavior", denied)
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
        let Some(mut page) = open(audit(), &fragment, PHONE, true) else {
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
    let Some(mut page) = open(audit(), "", DESK, true) else {
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

#[test]
fn script_and_static_plots_write_numbers_alike() {
    let Some(mut page) = open(audit(), "", DESK, false) else {
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
    let page = isolane_app_report::audit(&result);
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
