//! Notes on a run of a network: classes that miss their objective and why, and figures that need a warning.
//!
//! Method: a class misses its objective when the part of its calls that met the latency is below the percentile. Likely
//! causes follow from the counters: dropped packets, pauses, a class above its guaranteed share, busy links.
//! Limits: of a class without calls, only a note that it had none.

use isolane_network_scenario::model::{
    CallSlo, FabricPolicyKind, FabricScenario, PortScheduler, TrafficClass,
};
use isolane_study_results::network::{ClassResult, FabricResult};

/// Utilisation of a port from which its queue is the cause of delay.
const BUSY: f64 = 0.9;
/// Part of the packets that must be dropped for drops to be a cause.
const DROPPED: f64 = 0.0001;
/// Part of the time that a port is paused from which pauses are a cause.
const PAUSED: f64 = 0.01;
/// Calls above a percentile that make it a figure rather than an accident.
const TAIL_MIN: f64 = 10.0;
/// Part of the calls that may be open at the end without a word.
const OPEN: f64 = 0.001;

/// The remarks on `result`, a run of `scenario`; the most important first.
pub(crate) fn notes(scenario: &FabricScenario, result: &FabricResult) -> Vec<String> {
    let mut notes = Vec::new();
    for (class, spec) in result.classes.iter().zip(&scenario.classes) {
        if let Some(slo) = &spec.slo {
            notes.extend(objective(class, slo, scenario, result));
        }
    }
    notes.extend(inversions(scenario, result));
    notes.extend(open(result));
    notes.extend(few(scenario, result));
    notes
}

fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        v if v != 0.0 && v.abs() < 0.1 => format!("{value:.4} %"),
        v if v > 99.0 && v < 100.0 => format!("{value:.3} %"),
        _ => format!("{value:.1} %"),
    }
}

/// Whether a class met its objective, and if not, why not.
fn objective(
    class: &ClassResult,
    slo: &CallSlo,
    scenario: &FabricScenario,
    result: &FabricResult,
) -> Option<String> {
    let name = &class.name;
    if class.issued == 0 {
        let early = match scenario.calls {
            Some(calls) => format!(
                "; the limit calls = {calls} may have been reached in the warm-up of {}: raise the limit, or shorten the warm-up",
                scenario.warmup
            ),
            None => String::new(),
        };
        return Some(format!(
            "{name}: no call requested this class in the measured time{early}"
        ));
    }
    let Some(met) = class.ran_met_slo_share else {
        return Some(format!(
            "{name} misses its objective: {} calls requested the class, and none that ran in it ended within the run",
            class.issued
        ));
    };
    let wanted = slo.percentile / 100.0;
    let per = if slo.per_mtu { " per MTU" } else { "" };
    let refused = 1.0 - class.admitted_share;
    let price = match refused > 0.0005 {
        true => format!(
            "; {} of the calls that requested the class ran in the lowest class",
            percent(refused)
        ),
        false => String::new(),
    };
    // Calls that ran in it and are open at the end may have missed it already.
    let ended = class.rnl_us.map_or(0, |summary| summary.count) + class.terminated;
    let open = class.admitted.saturating_sub(ended);
    if met >= wanted && open as f64 > (1.0 - wanted) * class.admitted as f64 {
        return Some(format!(
            "{name} may miss its objective: {} of the calls that ended took at most {}{per}, but {} of {} calls had not \
             ended; use a longer drain or a lower load{price}",
            percent(met),
            slo.target,
            open,
            class.admitted
        ));
    }
    if met >= wanted {
        return Some(format!(
            "{name} meets its objective: {} of the calls that ran in it took at most {}{per}{price}",
            percent(met),
            slo.target
        ));
    }
    let mut text = format!(
        "{name} misses its objective: {} of the calls that ran in it took at most {}{per}, and the objective is {}{price}",
        percent(met),
        slo.target,
        percent(wanted)
    );
    let causes = causes(class, scenario, result);
    if !causes.is_empty() {
        text.push_str(": ");
        text.push_str(&causes.join("; "));
    }
    Some(text)
}

fn causes(class: &ClassResult, scenario: &FabricScenario, result: &FabricResult) -> Vec<String> {
    let mut causes = Vec::new();
    let dropped: u64 = result.packets.dropped.values().sum();
    if dropped as f64 > DROPPED * result.packets.sent as f64 {
        causes.push(format!(
            "{dropped} packets were dropped and {} retransmitted",
            result.packets.repeated
        ));
    }
    let weights: u32 = scenario.classes.iter().map(|one| one.weight).sum();
    let busiest = result.ports.busiest.first();
    let busy = busiest.filter(|port| port.utilisation >= BUSY);
    let own = scenario.classes.iter().find(|one| one.name == class.name);
    if let Some(own) = own
        && let Some(sure) = guaranteed(own, weights, scenario)
        && class.ran_share > sure
        && busy.is_some()
    {
        causes.push(format!(
            "the class carries {} of the payload, and its weight guarantees {} / {weights} = {} of a link",
            percent(class.ran_share),
            own.weight,
            percent(sure)
        ));
    }
    if let Some(port) = busy {
        causes.push(format!(
            "{} is busy {} of the time",
            port.name,
            percent(port.utilisation)
        ));
    }
    let paused = result
        .ports
        .fullest
        .iter()
        .chain(&result.ports.busiest)
        .max_by(|a, b| a.paused_share.total_cmp(&b.paused_share));
    if let Some(port) = paused.filter(|port| port.paused_share >= PAUSED) {
        causes.push(format!(
            "{} is paused {} of the time",
            port.name,
            percent(port.paused_share)
        ));
    }
    if scenario.policy.kind == FabricPolicyKind::None {
        causes.push("the policy does not limit the class (--policy aequitas does)".to_owned());
    }
    causes
}

/// The part of a link that the weight of a class guarantees; none where weights have no effect.
fn guaranteed(class: &TrafficClass, weights: u32, scenario: &FabricScenario) -> Option<f64> {
    let weighted = matches!(
        scenario.ports.scheduler,
        PortScheduler::Wfq | PortScheduler::Dwrr
    ) && matches!(
        scenario.policy.kind,
        FabricPolicyKind::None | FabricPolicyKind::Aequitas | FabricPolicyKind::Aequitas2
    );
    (weighted && scenario.classes.len() > 1)
        .then(|| f64::from(class.weight) / f64::from(weights.max(1)))
}

/// Higher classes that took longer than lower ones (3.4.1).
fn inversions(scenario: &FabricScenario, result: &FabricResult) -> Vec<String> {
    let tail = |class: &ClassResult| {
        let enough = class
            .rnl_us
            .filter(|summary| summary.count as f64 * 0.001 >= TAIL_MIN);
        enough.map(|summary| summary.p999)
    };
    let mut notes = Vec::new();
    for (index, pair) in result.classes.windows(2).enumerate() {
        let (Some(high), Some(low)) = (tail(&pair[0]), tail(&pair[1])) else {
            continue;
        };
        if high > low {
            let weights = (
                scenario.classes[index].weight,
                scenario.classes[index + 1].weight,
            );
            notes.push(format!(
                "priority inversion: p99.9 of {} is {high:.1} us and that of {} {low:.1} us: {} and {} of the \
                 payload ran in them, with weights {} and {}",
                pair[0].name,
                pair[1].name,
                percent(pair[0].ran_share),
                percent(pair[1].ran_share),
                weights.0,
                weights.1
            ));
        }
    }
    notes
}

/// Calls without an end.
fn open(result: &FabricResult) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |of: fn(&ClassResult) -> u64| result.classes.iter().map(of).sum::<u64>();
    let issued = sum(|class| class.issued).max(1);
    let unfinished = sum(|class| class.unfinished);
    let part = unfinished as f64 / issued as f64;
    if part > OPEN {
        notes.push(format!(
            "{unfinished} calls ({}) had not ended at the end of the run, and the latencies do not include them; use a \
             longer drain or a lower load",
            percent(part)
        ));
    }
    let terminated = sum(|class| class.terminated);
    if terminated > 0 {
        notes.push(format!(
            "{} ended {terminated} calls ({}), because their deadlines could not be met",
            result.policy,
            percent(terminated as f64 / issued as f64)
        ));
    }
    notes
}

/// Percentiles of too few calls.
fn few(scenario: &FabricScenario, result: &FabricResult) -> Vec<String> {
    let mut notes = Vec::new();
    for (class, spec) in result.classes.iter().zip(&scenario.classes) {
        let percentile = spec.slo.map_or(99.9, |slo| slo.percentile);
        let Some(summary) = class.rnl_us else {
            continue;
        };
        let beyond = summary.count as f64 * (1.0 - percentile / 100.0);
        if beyond < TAIL_MIN {
            let needed = (TAIL_MIN / (1.0 - percentile / 100.0)).round();
            notes.push(format!(
                "p{percentile} of {} comes from only {} calls, {beyond:.1} of them above it; at least {needed:.0} are \
                 needed (a longer --duration)",
                class.name, summary.count
            ));
        }
    }
    notes
}
