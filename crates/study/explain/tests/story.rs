//! Stories of small pairs on the simulator: what they name, that they are honest, and that equal questions get
//! equal answers.

use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::PolicySpec;
use isolane_study_explain::explanation::Explanation;
use isolane_study_explain::measure::Settings;
use isolane_study_explain::{Subject, explain, text};
use std::collections::BTreeMap;

fn settings(measured_us: u64) -> Settings {
    Settings {
        policy: PolicySpec {
            name: "none".to_owned(),
            parameters: BTreeMap::new(),
        },
        seed: 1,
        duration: Duration::from_us(measured_us),
        warmup: Duration::from_us(100),
        cap: None,
    }
}

fn story(victim: &str, attacker: &str) -> Explanation {
    story_of(victim, attacker, 600)
}

fn story_of(victim: &str, attacker: &str, measured_us: u64) -> Explanation {
    let library = Library::embedded();
    let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
    let subject = Subject::of_catalogue(&library.catalogue, profile, victim, attacker)
        .unwrap_or_else(|error| panic!("{error}"));
    explain(
        &subject,
        profile,
        &settings(measured_us),
        "isolane explain".to_owned(),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

/// Two tenants of a scenario, the first the victim.
fn own(victim: &str, attacker: &str) -> Explanation {
    let text = format!(
        "profile = \"cx5-100g-roce\"\n[[tenant]]\nname = \"victim\"\nclass = \"latency\"\n[[tenant.traffic]]\n{victim}\n\
         [[tenant]]\nname = \"other\"\n[[tenant.traffic]]\n{attacker}\n"
    );
    let library = Library::embedded();
    let scenario = isolane_rdma_scenario::parse(&text, "test.toml", &library)
        .unwrap_or_else(|error| panic!("{error}"));
    let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
    let subject = Subject::of_scenario(&scenario, profile, "victim", None)
        .unwrap_or_else(|error| panic!("{error}"));
    explain(
        &subject,
        profile,
        &settings(600),
        "isolane explain".to_owned(),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_point_of_the_series_is_a_whole_interval() {
    // 1,000 us are no multiple of their 60th part.
    let series = story_of("large_bw_ib_write_bw", "BW-1MB_ib_write_bw", 1_000).series;
    assert_eq!(series.attacker_gbps.len(), 60);
    assert_eq!(series.victim_gbps.len(), 60);
    assert_eq!(series.victim_p99_us.len(), 60);
    assert!(series.occupancy.iter().all(|one| one.values.len() == 60));
    assert!(series.attacker_gbps[59] > 0.0 && series.victim_gbps[59] > 0.0);
}

#[test]
fn evicted_contexts_are_named_with_who_evicted_them() {
    // The attacker's first work requests fill PCIe for 400 us; misses follow.
    let story = story_of("small_tput_ib_write_bw", "Cache-QPC_ib_write_bw", 3000);
    assert!(story.loss.hurt);
    let contexts = story
        .caches
        .iter()
        .find(|cache| cache.cache == "contexts" && cache.miss_ratio_attacked > 0.0)
        .expect("contexts miss");
    assert_eq!(contexts.evicted_by[0].tenant, "Cache-QPC_ib_write_bw");
    let slots = story
        .causes
        .iter()
        .find(|cause| cause.resource == "context-miss-slots")
        .expect("misses wait for slots");
    assert!(slots.share > 0.2, "{slots:?}");
    assert_eq!(slots.caused_by[0].tenant, "Cache-QPC_ib_write_bw");
}

#[test]
fn a_pause_is_attributed_to_what_keeps_the_buffer_from_draining() {
    let story = story("small_tput_ib_write_bw", "PU-RNR_RC-RNR-longms");
    let stall = &story.causes[0];
    assert_eq!(stall.resource, "not-ready-stall", "{:?}", story.chain);
    assert_eq!(stall.caused_by[0].tenant, "PU-RNR_RC-RNR-longms");
}

#[test]
fn a_victim_that_is_not_hurt_is_not_called_hurt() {
    let quiet = "verb = \"write\"\nsize = 16\ndepth = 1\narrival = \"open\"\ninterval = \"100us\"";
    let story = own(
        "verb = \"write\"\nsize = 16\ninline = 16\ndepth = 1\narrival = \"ping-pong\"",
        quiet,
    );
    assert!(!story.loss.hurt, "{}", story.verdict);
    assert!(story.verdict.contains("does not hurt"), "{}", story.verdict);
}

#[test]
fn parts_add_up_to_the_mean_latency() {
    for (victim, attacker) in [
        ("small_tput_ib_write_bw", "Cache-QPC_ib_write_bw"),
        ("lat_ib_write_16", "BW-1MB_ib_write_bw"),
    ] {
        let story = story(victim, attacker);
        let sum = |of: fn(&isolane_study_explain::explanation::StageTime) -> f64| -> f64 {
            story.stages.iter().map(of).sum()
        };
        let alone = sum(|stage| stage.waited_alone_us + stage.served_alone_us);
        let attacked = sum(|stage| stage.waited_attacked_us + stage.served_attacked_us);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-6 * other;
        assert!(near(alone, story.latency.alone_us), "{victim}: {alone}");
        assert!(
            near(attacked, story.latency.attacked_us),
            "{victim}: {attacked}"
        );
        for cause in &story.causes {
            let shares: f64 = cause.caused_by.iter().map(|part| part.share).sum();
            assert!(
                cause.caused_by.is_empty() || (0.99..1.001).contains(&shares),
                "{cause:?}"
            );
        }
    }
}

#[test]
fn equal_questions_get_equal_answers() {
    let ask = || story("lat_ib_write_16", "BW-1MB_ib_write_bw");
    assert_eq!(ask(), ask());
    assert_eq!(text::render(&ask(), None), text::render(&ask(), None));
}
