//! Results made up for tests: plausible in shape, from arithmetic alone, and meant to say nothing about any device.

use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::model::Host;
use isolane_study_audit::cell::*;
use isolane_study_audit::figures::{COLUMNS, ColumnSummary, PolicyFigures};
use isolane_study_audit::matrix::*;

#[path = "synthetic_run.rs"]
mod tenants;
#[allow(unused_imports)]
pub(crate) use tenants::run;

/// How large an audit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Victims, at most 25.
    pub(crate) victims: usize,
    /// Attackers, at most 50.
    pub(crate) attackers: usize,
    /// Seeds.
    pub(crate) seeds: u64,
}
/// The whole catalogue.
#[allow(dead_code)]
pub(crate) const FULL: Size = Size {
    victims: 25,
    attackers: 50,
    seeds: 3,
};

const VERBS: [&str; 3] = ["read", "send", "write"];
fn victims() -> Vec<Victim> {
    let mut all = Vec::new();
    let mut push = |name: String, kind, category: &str| {
        all.push(Victim {
            name,
            kind,
            category: category.to_owned(),
            measured_us: None,
        });
    };
    for (prefix, category) in [
        ("large_bw", "large bandwidth"),
        ("mtu_tput", "MTU throughput"),
        ("small_tput", "small throughput"),
    ] {
        for verb in VERBS {
            push(format!("{prefix}_ib_{verb}_bw"), VictimKind::Rate, category);
        }
    }
    for (prefix, category) in [
        ("te_many_mr", "many regions"),
        ("te_many_qp", "many queue pairs"),
    ] {
        for verb in ["r", "s", "w"] {
            for size in [4096, 512] {
                push(
                    format!("{prefix}_{verb}_1_{size}"),
                    VictimKind::Rate,
                    category,
                );
            }
        }
    }
    for name in [
        "lat_ib_write_16",
        "lat_ib_send_16",
        "lat_ib_read_16",
        "lat_ib_write_1024",
    ] {
        push(name.to_owned(), VictimKind::Latency, "latency");
    }
    all
}

fn column(category: &str, name: &str) -> Column {
    match category {
        "BW" => Column::Bandwidth,
        "PCIe" => Column::PcieData,
        "PU" if name.contains("RC-RNR") => Column::PuErrorRc,
        "PU" if name.contains("RNR") => Column::PuErrorUnreliable,
        "PU" => Column::PuData,
        _ if name.contains("ctrl") => Column::CacheControl,
        _ => Column::CacheData,
    }
}

fn attackers() -> Vec<Attacker> {
    let mut all = Vec::new();
    let mut push = |category: &str, name: String, resource: &str| {
        all.push(Attacker {
            name: format!("{category}-{name}"),
            category: category.to_owned(),
            resource: resource.to_owned(),
            column: Some(column(category, &name)),
        });
    };
    for size in ["1MB", "4KB"] {
        for verb in VERBS {
            push("BW", format!("{size}_ib_{verb}_bw"), "link bandwidth");
        }
    }
    for name in [
        "loopback_receiver",
        "loopback_sender",
        "size_w_1_129",
        "size_w_1_257",
    ] {
        push("PCIe", name.to_owned(), "PCIe bandwidth");
    }
    for name in ["RC-RNR-longms", "RC-RNR-shortus", "UC-RNR", "UD-RNR"] {
        push("PU", format!("RNR_{name}"), "receive processing units");
    }
    for verb in ["cas", "faa", "read", "send", "write"] {
        for direction in ["backward", "forward"] {
            push(
                "PU",
                format!("request_{verb}_{direction}"),
                "request processing units",
            );
        }
    }
    for verb in VERBS {
        push(
            "Cache",
            format!("QPC_ib_{verb}_bw"),
            "queue-pair context cache",
        );
    }
    for kind in ["all", "num", "size"] {
        for verb in ["r", "s", "w"] {
            push(
                "Cache",
                format!("access_mr_{kind}_{verb}"),
                "address translation cache",
            );
        }
    }
    for kind in ["all", "all_pd", "num", "num_pd", "size"] {
        for side in ["receiver", "sender"] {
            push(
                "Cache",
                format!("ctrl_{kind}_{side}"),
                "address translation, invalidation",
            );
        }
    }
    for kind in ["RC_read", "RC_recv", "UC_recv", "UD_recv"] {
        push(
            "Cache",
            format!("recvwqe_{kind}"),
            "receive work queue elements",
        );
    }
    all
}

/// A number from 0 to 1 that depends on its arguments alone.
fn noise(parts: [u64; 4]) -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts {
        state = (state ^ part.wrapping_add(0x2545_f491)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 29;
    }
    (state >> 11) as f64 / (1u64 << 53) as f64
}

/// What a made-up attacker leaves to a made-up victim, 0 to 1.
fn left_over(policy: usize, attacker: &Attacker, noise: f64) -> f64 {
    let base = match attacker.category.as_str() {
        "BW" => 0.55,
        "PCIe" => 0.4,
        "PU" if attacker.name.contains("RC-RNR") => 0.02,
        "PU" if attacker.name.contains("RNR") => 0.2,
        "PU" => 0.7,
        _ if attacker.name.contains("ctrl") => 0.3,
        _ => 0.75,
    };
    let base = if policy > 0 && attacker.category != "Cache" {
        f64::max(base, 0.5)
    } else {
        base
    };
    (base * (0.6 + 0.9 * noise)).min(1.0)
}

/// An audit under `none` and `justitia`.
pub(crate) fn audit(size: Size) -> AuditResult {
    audit_under(size, &["none", "justitia"])
}

/// An audit under the policies named; all but the first are made up alike.
pub(crate) fn audit_under(size: Size, policies: &[&str]) -> AuditResult {
    let policies: Vec<String> = policies.iter().map(|&name| name.to_owned()).collect();
    let victims: Vec<Victim> = victims()
        .into_iter()
        .rev()
        .take(size.victims)
        .rev()
        .collect();
    let step = (50 / size.attackers.max(1)).max(1);
    let attackers: Vec<Attacker> = attackers()
        .into_iter()
        .step_by(step)
        .take(size.attackers)
        .collect();
    let seeds: Vec<u64> = (1..=size.seeds).collect();
    let mut solo = Vec::new();
    let mut cells = Vec::new();
    for (p, policy) in policies.iter().enumerate() {
        for (v, victim) in victims.iter().enumerate() {
            let alone = alone(victim, v);
            solo.push(Solo {
                policy: policy.clone(),
                victim: victim.name.clone(),
                median: Some(alone),
                settling: None,
                not_applicable: None,
            });
            for (a, attacker) in attackers.iter().enumerate() {
                cells.push(cell((p, policy), (v, victim, alone), (a, attacker), &seeds));
            }
        }
    }
    let summaries = policies
        .iter()
        .map(|policy| summarise(policy, &cells, &attackers))
        .collect();
    let runs = cells.len() as u64 * size.seeds;
    AuditResult {
        version: AUDIT_VERSION,
        profile: "cx5-100g-roce".to_owned(),
        testbed: "sim".to_owned(),
        predicate: PredicateName::Share,
        alpha: 0.25,
        tenants: 2,
        seeds,
        warmup_us: 500.0,
        measured_us: 5000.0,
        cap_us: None,
        policies,
        policies_left_out: Vec::new(),
        victims,
        attackers,
        solo,
        cells,
        summaries,
        progress: Progress {
            runs_done: runs,
            runs_total: runs,
            partial: false,
        },
        rerun: "isolane audit --profile cx5-100g-roce --policies none,justitia --alpha 0.25 --seeds 1,2,3".to_owned(),
    }
}

fn alone(victim: &Victim, index: usize) -> Metrics {
    let small = victim.category.contains("small");
    let goodput_gbps = match victim.kind {
        VictimKind::Latency => 0.05,
        VictimKind::Rate if small => 2.1 + index as f64 * 0.05,
        VictimKind::Rate | VictimKind::Application => 92.0 - index as f64 * 1.3,
    };
    Metrics {
        goodput_gbps,
        message_rate_per_s: if small {
            goodput_gbps * 1e9 / 64.0
        } else {
            goodput_gbps * 1e9 / 32_768.0
        },
        p50_us: Some(2.0 + index as f64 * 0.07),
        p99_us: Some(2.6 + index as f64 * 0.09),
        ..Metrics::default()
    }
}

fn cell(
    (p, policy): (usize, &String),
    (v, victim, alone): (usize, &Victim, Metrics),
    (a, attacker): (usize, &Attacker),
    seeds: &[u64],
) -> Cell {
    let key = |salt: u64| [p as u64, v as u64, a as u64, salt];
    let left = left_over(p, attacker, noise(key(0)));
    let control = attacker.name.contains("ctrl");
    let scaled = |factor: f64| Metrics {
        goodput_gbps: alone.goodput_gbps * left * factor,
        message_rate_per_s: alone.message_rate_per_s * left * factor,
        p50_us: alone.p50_us.map(|value| value / (left * factor).max(0.01)),
        p99_us: alone.p99_us.map(|value| value / (left * factor).max(0.005)),
        ..Metrics::default()
    };
    let attack = |factor: f64| Metrics {
        goodput_gbps: if control {
            0.0
        } else {
            40.0 * factor * (1.0 - left * 0.4)
        },
        message_rate_per_s: if control { 0.0 } else { 3.0e6 * factor },
        control_rate_per_s: if control { 21_000.0 * factor } else { 0.0 },
        p50_us: Some(11.0),
        p99_us: Some(40.0),
        ..Metrics::default()
    };
    let small = victim.category.contains("small");
    let metric = match victim.kind {
        VictimKind::Latency => JudgedMetric::P99Us,
        VictimKind::Rate if small => JudgedMetric::MessageRatePerS,
        VictimKind::Rate | VictimKind::Application => JudgedMetric::GoodputGbps,
    };
    let value = |metrics: &Metrics| match metric {
        JudgedMetric::GoodputGbps => metrics.goodput_gbps,
        JudgedMetric::MessageRatePerS | JudgedMetric::OperationsPerS => metrics.message_rate_per_s,
        JudgedMetric::P99Us => metrics.p99_us.expect("made-up victims have latencies"),
    };
    let solo = value(&alone);
    let (bound, guarantee) = match metric {
        JudgedMetric::P99Us => (solo * 3.0, None),
        JudgedMetric::GoodputGbps => (0.75 * solo.min(50.0), Some(50.0)),
        JudgedMetric::MessageRatePerS | JudgedMetric::OperationsPerS => {
            (0.75 * solo.min(2.0e7), Some(2.0e7))
        }
    };
    let measured = value(&scaled(1.0));
    let fails = if metric == JudgedMetric::P99Us {
        measured > bound
    } else {
        measured < bound
    };
    let factors: Vec<f64> = seeds
        .iter()
        .map(|&seed| 0.97 + 0.06 * noise(key(seed)))
        .collect();
    let series = |scale: f64, salt: u64| -> Vec<f64> {
        (0..SERIES_POINTS as u64)
            .map(|point| scale * (0.9 + 0.2 * noise(key(1000 * salt + point))))
            .collect()
    };
    let solo_series = |scale: f64| -> Vec<f64> {
        (0..SERIES_POINTS as u64)
            .map(|point| scale * (0.98 + 0.04 * noise([0, v as u64, 0, point])))
            .collect()
    };
    let latency = victim.kind == VictimKind::Latency;
    let resource = format!("{}, stalled or busy", attacker.resource);
    let evidence = format!(
        "host B's NIC: {} were {:.0} % busy, {:.0} % alone",
        attacker.resource,
        100.0 - left * 60.0,
        12.0
    );
    Cell {
        policy: policy.clone(),
        victim: victim.name.clone(),
        attacker: attacker.name.clone(),
        verdict: if fails {
            Verdict::Violation
        } else {
            Verdict::Pass
        },
        why: format!("owed {bound:.2}, got {measured:.2}: {evidence}"),
        expected: Some(Expected {
            metric,
            bound,
            solo,
            guarantee,
            rule: format!(
                "owed {bound:.2}, from {solo:.2} alone and a guarantee of {:.2}",
                guarantee.unwrap_or(solo)
            ),
        }),
        measured: Some(measured),
        retained: Some(if metric == JudgedMetric::P99Us {
            solo / measured
        } else {
            measured / solo
        }),
        borderline: false,
        settling: None,
        spread: Some(Spread {
            min: measured * 0.97,
            max: measured * 1.03,
        }),
        victim_median: Some(scaled(1.0)),
        attacker_median: Some(attack(1.0)),
        runs: seeds
            .iter()
            .zip(&factors)
            .map(|(&seed, &factor)| SeedRun {
                seed,
                victim: scaled(factor),
                attacker: attack(factor),
            })
            .collect(),
        exhausted: Some(Exhausted {
            resource,
            host: Host::B,
            counter: "responder_unit_utilisation".to_owned(),
            solo: 0.12,
            contended: 1.0 - left * 0.6,
            evidence,
        }),
        series: Some(Series {
            seed: seeds[0],
            sample_us: 200.0,
            solo_goodput_gbps: solo_series(alone.goodput_gbps),
            victim_goodput_gbps: series(alone.goodput_gbps * left, 1),
            attacker_goodput_gbps: series(attack(1.0).goodput_gbps, 2),
            solo_p99_us: with_a_gap(latency, solo_series(solo)),
            victim_p99_us: with_a_gap(latency, series(measured, 3)),
        }),
        figures: Some(CellFigures {
            shares: vec![alone.goodput_gbps * left / 100.0, 0.4 * (1.0 - left * 0.4)],
            fairness: (!control).then_some(0.5 + left / 2.0),
            policy_cores: p as f64 * 0.1,
        }),
    }
}

fn summarise(policy: &str, cells: &[Cell], attackers: &[Attacker]) -> PolicySummary {
    let of_policy: Vec<&Cell> = cells.iter().filter(|cell| cell.policy == policy).collect();
    let broken: Vec<&Cell> = of_policy
        .iter()
        .copied()
        .filter(|cell| cell.verdict == Verdict::Violation)
        .collect();
    let mut categories: Vec<CategorySummary> = Vec::new();
    for attacker in attackers {
        if categories
            .iter()
            .any(|summary| summary.category == attacker.category)
        {
            continue;
        }
        let inside = |cell: &&&Cell| cell.attacker.starts_with(&attacker.category);
        let distinct = |name: fn(&Cell) -> &String| {
            let mut names: Vec<&String> = broken
                .iter()
                .filter(inside)
                .map(|cell| name(cell))
                .collect();
            names.sort();
            names.dedup();
            names.len() as u32
        };
        categories.push(CategorySummary {
            category: attacker.category.clone(),
            cells: of_policy.iter().filter(inside).count() as u32,
            violations: broken.iter().filter(inside).count() as u32,
            attackers_that_break: distinct(|cell| &cell.attacker),
            victims_broken: distinct(|cell| &cell.victim),
        });
    }
    let worst = broken.iter().min_by(|one, other| {
        one.retained
            .partial_cmp(&other.retained)
            .expect("made-up numbers are finite")
    });
    PolicySummary {
        policy: policy.to_owned(),
        on_sale: isolane_rdma_scenario::stack::is_on_sale(policy),
        cells: of_policy.len() as u32,
        violations: broken.len() as u32,
        not_applicable: 0,
        not_settled: 0,
        categories,
        columns: COLUMNS
            .into_iter()
            .map(|column| {
                let goes_for = |cell: &&&Cell| {
                    let mut all = attackers.iter();
                    all.any(|one| one.name == cell.attacker && one.column == Some(column))
                };
                ColumnSummary {
                    column,
                    cells: of_policy.iter().filter(goes_for).count() as u32,
                    violations: broken.iter().filter(goes_for).count() as u32,
                }
            })
            .filter(|summary| summary.cells > 0)
            .collect(),
        figures: Some(PolicyFigures {
            utilisation: 0.8 - broken.len() as f64 / 10_000.0,
            utilisation_of_none: Some(1.04),
            fairness: Some(0.86),
            policy_cores_mean: 0.35,
            policy_cores_max: 0.8,
            idle_p50_added_us: Some(0.12),
            idle_p99_added_us: Some(0.31),
        }),
        worst: worst.map(|cell| WorstVictim {
            victim: cell.victim.clone(),
            attacker: cell.attacker.clone(),
            retained: cell.retained.expect("made-up cells have it"),
            violations: broken
                .iter()
                .filter(|other| other.victim == cell.victim)
                .count() as u32,
            why: cell.why.clone(),
        }),
    }
}

/// The series without a value at the fifth point, where nothing completed; empty without latencies.
fn with_a_gap(latency: bool, values: Vec<f64>) -> Vec<Option<f64>> {
    let points = values.into_iter().enumerate().filter(|_| latency);
    points
        .map(|(at, value)| (at != 4).then_some(value))
        .collect()
}
