//! The page of a hunt says what the hunt says.

use crate::synthetic_hunt::{hunt, space, victim};

#[test]
fn the_page_names_every_anomaly_and_marks_it_in_the_search() {
    let result = hunt();
    let page = crate::hunt(&result, &space());
    for anomaly in &result.anomalies {
        let id = format!("id=\"anomaly-{}\"", anomaly.number);
        assert!(page.contains(&id), "{id}");
        let title = format!("<title>#{} {}", anomaly.number, anomaly.symptom.name());
        assert!(page.contains(&title), "{title}");
    }
    assert!(page.contains("not reduced: the hunt ended before"));
    assert!(
        page.contains("service = ud-send, post_list &gt;= 64"),
        "conditions in words"
    );
    assert_eq!(
        page,
        crate::hunt(&result, &space()),
        "equal results give equal bytes"
    );
}

#[test]
fn the_worst_attack_comes_first() {
    let page = crate::hunt(&victim(), &space());
    let place = |id: &str| page.find(id).expect("it is there");
    assert!(place("id=\"anomaly-2\"") < place("id=\"anomaly-1\""));
    assert!(page.contains("Who hurts small-write under sriov?"));
}

#[test]
fn markup_in_a_target_stays_text() {
    let mut result = hunt();
    result.target = "<script>alert(1)</script>".to_owned();
    result.counters[0] = "<img src=x>".to_owned();
    let page = crate::hunt(&result, &space());
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
}

#[test]
fn an_empty_hunt_is_a_page_too() {
    let mut result = hunt();
    result.anomalies.clear();
    result.trace.clear();
    let page = crate::hunt(&result, &space());
    assert!(page.contains("Nothing was found") && page.contains("no proof"));
    assert!(!page.contains("id=\"trace\""), "no counter was followed");
}
