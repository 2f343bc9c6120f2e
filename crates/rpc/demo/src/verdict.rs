//! The lab's verdicts, computed from its runs.
//!
//! Units: fractions of one; milliseconds in sentences. Method: a fraction of calls is compared with the allowed one
//! plus three standard errors by bursts; halves of a run are compared with the differences of replays in a model;
//! counts are compared exactly. If the machine delayed the calls, a port without the required overload is not judged,
//! because the latencies then say nothing about the port.

use crate::job::Call;
use crate::measure::{apart, mix};
use crate::plan::{CLASSES, CONTROLLED, Plan};
use crate::report::{Objective, RunKind, RunReport, Verdict};
use std::fmt::Write;

/// Standard errors of tolerance: about one false alarm in a thousand labs.
const ERRORS: f64 = 3.0;
/// Tolerated relative difference between a class's bytes at the port and the bytes of its calls: handshakes,
/// acknowledgements, retransmitted packets.
const BYTES_SLACK: f64 = 0.05;

/// All verdicts on the runs: target mix, without, with.
pub(crate) fn all(plan: &Plan, runs: &[RunReport], objectives: &[Objective]) -> Vec<Verdict> {
    let [target, without, with] = runs else {
        return Vec::new();
    };
    let overload = overload(target, without, objectives);
    let judged = overload.judged;
    let mut verdicts = vec![overload];
    if with.kind == RunKind::With {
        // Objectives and latencies that the machine caused say nothing about admission.
        let of_time = |verdict: Verdict| Verdict {
            passed: verdict.passed && judged,
            judged,
            ..verdict
        };
        let timed = [
            kept(with, objectives),
            converged(with),
            reached(plan, with),
            fair(with),
        ];
        verdicts.extend(timed.map(of_time));
    }
    verdicts.extend([marked(with), lost(runs), sorted(plan, runs)]);
    verdicts
}

/// Mixes that ran in the first and the second half of `calls`.
pub(crate) fn halves(calls: &[Call]) -> [[f64; CLASSES]; 2] {
    let (first, second) = calls.split_at(calls.len() / 2);
    [first, second].map(|half| mix(half, |call| call.1))
}

fn overload(target: &RunReport, without: &RunReport, objectives: &[Objective]) -> Verdict {
    let mut words = String::from("without admission control");
    let mut passed = false;
    for (objective, misses) in objectives.iter().zip(&without.misses) {
        passed |= misses.share - ERRORS * misses.error > objective.allowed();
        let _ = write!(
            words,
            "{} {:.1} % of the calls of class {} took longer than {:.1} ms",
            separator(objective),
            100.0 * misses.share,
            objective.class,
            objective.slo_ms
        );
    }
    if passed {
        return verdict("overload", true, words);
    }
    let slowed = objectives.iter().find(|objective| {
        objective.measured_ms > BUSY * objective.model_ms.max(objective.theory_ms)
    });
    let Some(slowed) = slowed else {
        words.push_str(": the port was not overloaded, so the lab shows nothing");
        return verdict("overload", false, words);
    };
    let late_ms = target.late_ms_max.max(without.late_ms_max);
    let words = format!(
        "this machine was too busy to judge: at the target mix {} % of class {} took up to {:.1} ms, where an ideal port makes \
         {:.1} ms of the same calls, and calls were issued up to {late_ms:.1} ms late, so they waited for processors and not \
         for the port; end other programs, or load the processors less with a lower --line-mbit or fewer --clients",
        slowed.percentile, slowed.class, slowed.measured_ms, slowed.model_ms
    );
    Verdict {
        judged: false,
        ..verdict("overload", false, words)
    }
}

/// Ratio to the latency on an ideal port above which the machine is the cause: more than half of a call's time was then
/// spent outside the port. Real packets and TCP on a fast enough machine took up to 1.5 times as long.
const BUSY: f64 = 2.0;

fn kept(with: &RunReport, objectives: &[Objective]) -> Verdict {
    let mut words = String::from("with admission control");
    let mut passed = true;
    for (objective, misses) in objectives.iter().zip(&with.misses) {
        let enough = with.classes[objective.class].ran > 0;
        passed &= enough && misses.share <= objective.allowed() + ERRORS * misses.error;
        let _ = write!(
            words,
            "{} {:.1} % (+- {:.1}) of the admitted calls of class {} took longer than {:.1} ms",
            separator(objective),
            100.0 * misses.share,
            100.0 * misses.error,
            objective.class,
            objective.slo_ms
        );
    }
    let allowed = objectives.first().map_or(0.0, Objective::allowed);
    let _ = write!(
        words,
        "; at most {:.1} % plus {ERRORS} errors (+-) are allowed to",
        100.0 * allowed
    );
    verdict("slo", passed, words)
}

fn separator(objective: &Objective) -> &'static str {
    if objective.class == 0 { "" } else { "," }
}

fn converged(with: &RunReport) -> Verdict {
    let [first, second] = with.mix_halves;
    let errors = with.chance.unwrap_or_default().halves;
    let passed = (0..CLASSES)
        .all(|class| (first[class] - second[class]).abs() <= MIX_ERRORS * errors[class]);
    let words = format!(
        "parts of classes 0/1/2 of all calls: {} were requested, {} ran in the first half and {} in the second; chance explains \
         differences up to {}",
        parts(&with.mix_asked),
        parts(&first),
        parts(&second),
        parts(&errors.map(|error| MIX_ERRORS * error))
    );
    verdict("mix", passed, words)
}

/// Part of the target mix that must run in each controlled class.
const TARGET_PART: f64 = 0.9;

/// Whether the mix that ran has the port's target mix, less what chance takes.
fn reached(plan: &Plan, with: &RunReport) -> Verdict {
    let chance = with.chance.unwrap_or_default().mix;
    let (mut passed, mut settled) = (true, true);
    let mut words = String::from("of all calls that ran,");
    for (class, ran) in with.mix_ran.iter().enumerate().take(CONTROLLED) {
        let target = plan.target_mix[class];
        let error = MIX_ERRORS * chance[class];
        passed &= *ran >= TARGET_PART * target - error;
        settled &= error <= (1.0 - TARGET_PART) * target;
        let comma = if class == 0 { "" } else { "," };
        let _ = write!(
            words,
            "{comma} a part of {ran:.3} (+- {error:.3}) was in class {class}, whose target is {target:.2}"
        );
    }
    let least = format!("at least {TARGET_PART} of each target must run");
    by_samples(
        "target",
        passed,
        settled,
        with,
        &format!("{words}; {least}"),
    )
}

/// Largest relative difference of a client's part of a class from the mean of all clients.
const CLIENTS_APART: f64 = 0.2;

/// Whether clients of all languages had equal parts of each controlled class, apart from chance.
fn fair(with: &RunReport) -> Verdict {
    if with.clients.len() < 2 {
        return verdict(
            "fair",
            true,
            "the lab ran one client, so there are no shares to compare".to_owned(),
        );
    }
    let chance = with.chance.unwrap_or_default().clients;
    let mixes: Vec<[f64; CLASSES]> = with.clients.iter().map(|client| client.mix_ran).collect();
    let apart = apart(&mixes);
    let (mut passed, mut settled) = (true, true);
    let mut words = String::from("the client farthest from the clients' mean differs by");
    for class in 0..CONTROLLED {
        let error = MIX_ERRORS * chance[class];
        passed &= apart[class] <= CLIENTS_APART + error;
        settled &= error <= CLIENTS_APART;
        let comma = if class == 0 { "" } else { "," };
        let _ = write!(
            words,
            "{comma} {:.0} % in class {class} (+- {:.0})",
            100.0 * apart[class],
            100.0 * error
        );
    }
    let _ = write!(
        words,
        "; at most {:.0} % are allowed",
        100.0 * CLIENTS_APART
    );
    by_samples("fair", passed, settled, with, &words)
}

/// A verdict from a number of calls. It says whether the number is enough to see a difference of the permitted size.
fn by_samples(
    name: &'static str,
    passed: bool,
    settled: bool,
    with: &RunReport,
    words: &str,
) -> Verdict {
    let calls = with.classes.iter().map(|class| class.ran).sum();
    let state = match settled {
        true => "settled",
        false => {
            "not settled: chance explains more than the verdict permits, so a longer run is needed"
        }
    };
    Verdict {
        settled: Some(settled),
        calls: Some(calls),
        ..verdict(
            name,
            passed,
            format!("{words}; {state}, from {calls} calls"),
        )
    }
}

/// Permitted difference of a mix's halves, standard errors. Misses come in bursts, so the tail is longer than a
/// Gaussian's: of a thousand labs of the model about one fails (a test counts them).
pub(crate) const MIX_ERRORS: f64 = 5.0;

fn marked(with: &RunReport) -> Verdict {
    let expected = match with.kind {
        RunKind::Shadow => 0,
        _ => with.moved,
    };
    let counts = [with.notified, with.seen_downgraded];
    let (passed, words) = match with.kind {
        RunKind::Shadow => (
            with.moved == 0,
            format!(
                "shadow mode: {} calls would have been downgraded, {} were downgraded",
                with.notified, with.moved
            ),
        ),
        _ => (
            expected > 0 && counts == [expected; 2],
            format!(
                "{expected} calls were downgraded; applications were told of {}, servers of {}",
                with.notified, with.seen_downgraded
            ),
        ),
    };
    verdict("marked", passed, words)
}

fn lost(runs: &[RunReport]) -> Verdict {
    let sum = |of: fn(&RunReport) -> u64| runs.iter().map(of).sum::<u64>();
    let dropped: u64 = runs
        .iter()
        .flat_map(|run| &run.port)
        .map(|class| class.dropped)
        .sum();
    let (issued, served) = (sum(|run| run.issued), sum(|run| run.served));
    let (failed, unanswered) = (sum(|run| run.failed), sum(|run| run.unanswered));
    let mut words = format!(
        "{issued} calls issued, {served} served, {failed} failed, {unanswered} unanswered, {dropped} packets dropped at the port"
    );
    if let Some(error) = runs.iter().find_map(|run| run.first_error.as_ref()) {
        let _ = write!(words, "; first error: {error}");
    }
    let passed = issued == served && failed == 0 && unanswered == 0 && dropped == 0;
    verdict("nothing lost", passed, words)
}

fn sorted(plan: &Plan, runs: &[RunReport]) -> Verdict {
    let mut passed = true;
    let mut worst: f64 = 0.0;
    for run in runs {
        let total: u64 = run.port.iter().map(|class| class.bytes).sum();
        for (class, count) in run.port.iter().enumerate() {
            let expected = run.ran[class] * plan.wire_bytes();
            // A class with few calls is compared with the bytes of all classes: handshakes of idle connections are not
            // an error.
            let slack = BYTES_SLACK * total as f64 / CLASSES as f64;
            let off = (count.bytes as f64 - expected as f64).abs();
            passed &= off <= slack;
            worst = worst.max(off / total.max(1) as f64);
        }
    }
    let apart = format!(
        "bytes in the port's queues differ from those of the calls by at most {:.1} %",
        100.0 * worst
    );
    let words = match passed {
        true => format!("packets of each class passed the class's own queue of the port; {apart}"),
        false => format!(
            "packets passed the queue of another class, and {apart} of all bytes; are code points set on all sockets?"
        ),
    };
    verdict("code points", passed, words)
}

fn parts(mix: &[f64; CLASSES]) -> String {
    mix.map(|part| format!("{part:.2}")).join("/")
}

fn verdict(name: &'static str, passed: bool, words: String) -> Verdict {
    Verdict {
        name,
        passed,
        judged: true,
        settled: None,
        calls: None,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Language;
    use crate::measure::Misses;
    use crate::network::ClassCount;
    use crate::report::{Chance, ClientReport};

    fn objectives() -> Vec<Objective> {
        let one = |class| Objective {
            class,
            slo_ms: 10.0,
            measured_ms: 10.0,
            theory_ms: 5.0,
            model_ms: 9.0,
            per_mtu_us: 1000.0,
            percentile: 99.0,
            increment: 0.01,
        };
        vec![one(0), one(1)]
    }

    /// A correct run of 1,000 calls: 300 of class 0 were downgraded.
    fn run(kind: RunKind, missed: f64) -> RunReport {
        let plan = Plan::quick();
        let ran = [200, 350, 450];
        let mix_ran = [0.2, 0.35, 0.45];
        let misses = Misses {
            share: missed,
            error: 0.002,
        };
        let classes = std::array::from_fn(|class| crate::measure::ClassFigures {
            ran: ran[class] as usize,
            ..Default::default()
        });
        RunReport {
            kind,
            from_ms: 0,
            classes,
            misses: vec![misses; 2],
            mix_asked: plan.asked_mix,
            mix_ran,
            mix_halves: [mix_ran; 2],
            chance: Some(Chance {
                halves: [0.03; CLASSES],
                mix: [0.002; CLASSES],
                clients: [0.02; CLASSES],
            }),
            issued: 1000,
            answered: 1000,
            failed: 0,
            unanswered: 0,
            first_error: None,
            moved: 300,
            notified: 300,
            served: 1000,
            seen_downgraded: 300,
            ran,
            port: ran
                .map(|calls| ClassCount {
                    bytes: calls * plan.wire_bytes(),
                    ..Default::default()
                })
                .to_vec(),
            late_ms_max: 1.0,
            theory: plan.theory(&plan.asked_mix).unwrap(),
            clients: vec![client(mix_ran), client(mix_ran)],
        }
    }

    fn client(mix_ran: [f64; CLASSES]) -> ClientReport {
        ClientReport {
            language: Language::Go,
            server: Language::Rust,
            mix_ran,
            classes: Default::default(),
            probability: Vec::new(),
            late_ms_max: 1.0,
        }
    }

    /// The failed verdicts after `spoil` changes the run with admission.
    fn refused(spoil: impl Fn(&mut RunReport)) -> Vec<&'static str> {
        let mut with = run(RunKind::With, 0.01);
        spoil(&mut with);
        let runs = [run(RunKind::Target, 0.01), run(RunKind::Without, 0.4), with];
        let verdicts = all(&Plan::quick(), &runs, &objectives());
        assert_eq!(verdicts.len(), 8);
        let no = verdicts.into_iter().filter(|verdict| !verdict.passed);
        no.map(|verdict| verdict.name).collect()
    }

    #[test]
    fn every_verdict_finds_what_it_is_about() {
        assert!(refused(|_| {}).is_empty());
        assert_eq!(refused(|run| run.misses[1].share = 0.02), ["slo"]);
        assert_eq!(refused(|run| run.classes[0].ran = 0), ["slo"]);
        assert_eq!(
            refused(|run| run.mix_halves[1] = [0.5, 0.35, 0.15]),
            ["mix"]
        );
        assert_eq!(
            refused(|run| run.mix_halves[1] = [0.34, 0.35, 0.31]),
            [""; 0]
        );
        // 0.9 of the target of 0.2, less five errors of 0.002.
        assert_eq!(refused(|run| run.mix_ran[0] = 0.171), [""; 0]);
        assert_eq!(refused(|run| run.mix_ran[0] = 0.169), ["target"]);
        // 0.26 and 0.14 are 30 % from their mean; 20 % and five errors of 2 % are permitted.
        let unequal = |apart: f64| {
            move |run: &mut RunReport| {
                run.clients[0].mix_ran[0] += apart;
                run.clients[1].mix_ran[0] -= apart;
            }
        };
        assert_eq!(refused(unequal(0.059)), [""; 0]);
        assert_eq!(refused(unequal(0.061)), ["fair"]);
        assert_eq!(refused(|run| run.notified = 299), ["marked"]);
        assert_eq!(refused(|run| run.seen_downgraded = 301), ["marked"]);
        assert_eq!(refused(|run| run.unanswered = 1), ["nothing lost"]);
        assert_eq!(refused(|run| run.served = 999), ["nothing lost"]);
        assert_eq!(refused(|run| run.port[2].dropped = 1), ["nothing lost"]);
        // All packets in the class for packets without a code point.
        assert_eq!(
            refused(|run| {
                let all = run.port.iter().map(|class| class.bytes).sum();
                run.port[0].bytes = 0;
                run.port[1].bytes = 0;
                run.port[2].bytes = all;
            }),
            ["code points"]
        );
    }

    #[test]
    fn a_short_run_says_that_it_is_not_settled() {
        let verdicts = |error: f64| {
            let mut with = run(RunKind::With, 0.01);
            with.chance = Some(Chance {
                halves: [0.03; CLASSES],
                mix: [error; CLASSES],
                clients: [error; CLASSES],
            });
            let runs = [run(RunKind::Target, 0.01), run(RunKind::Without, 0.4), with];
            all(&Plan::quick(), &runs, &objectives())
        };
        let of = |error, name| {
            let mut all = verdicts(error).into_iter();
            all.find(|verdict| verdict.name == name).unwrap()
        };
        for name in ["target", "fair"] {
            let (short, long) = (of(0.05, name), of(0.003, name));
            assert_eq!((short.settled, short.calls), (Some(false), Some(1000)));
            assert!(
                short
                    .words
                    .ends_with("so a longer run is needed, from 1000 calls")
            );
            assert_eq!(long.settled, Some(true));
            assert!(
                long.words.ends_with("; settled, from 1000 calls"),
                "{}",
                long.words
            );
        }
        assert_eq!(of(0.003, "marked").settled, None);
    }

    #[test]
    fn a_port_that_was_not_overloaded_shows_nothing() {
        let runs = [
            run(RunKind::Target, 0.01),
            run(RunKind::Without, 0.012),
            run(RunKind::With, 0.01),
        ];
        let verdict = &all(&Plan::quick(), &runs, &objectives())[0];
        assert!(
            !verdict.passed && verdict.judged && verdict.words.contains("not overloaded"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_busy_machine_does_not_count_as_a_port_without_overload() {
        let verdicts = |missed: f64, measured_ms: f64| {
            let runs = [
                run(RunKind::Target, 0.01),
                run(RunKind::Without, missed),
                run(RunKind::With, 0.01),
            ];
            let mut objectives = objectives();
            objectives[1].measured_ms = measured_ms;
            all(&Plan::quick(), &runs, &objectives)
        };
        let busy = verdicts(0.012, 18.5);
        let unjudged = |verdict: &&Verdict| !verdict.passed && !verdict.judged;
        let names: Vec<&str> = busy.iter().filter(unjudged).map(|one| one.name).collect();
        assert_eq!(names, ["overload", "slo", "mix", "target", "fair"]);
        // Exact counts are judged on any machine.
        assert!(
            busy[5..]
                .iter()
                .all(|verdict| verdict.passed && verdict.judged)
        );
        let words = &busy[0].words;
        assert!(
            words.contains("99 % of class 1 took up to 18.5 ms"),
            "{words}"
        );
        assert!(words.contains("--line-mbit"), "{words}");
        // Less than twice the model's 9 ms: the machine is not the cause.
        assert!(verdicts(0.012, 17.5)[0].judged);
        // Visible overload counts on a busy machine too.
        let shown = verdicts(0.4, 100.0);
        assert!(shown.iter().all(|verdict| verdict.passed && verdict.judged));
    }

    #[test]
    fn shadow_mode_must_move_nothing() {
        let shadow = |moved| {
            let mut last = run(RunKind::Shadow, 0.4);
            last.moved = moved;
            let runs = [run(RunKind::Target, 0.01), run(RunKind::Without, 0.4), last];
            let verdicts = all(&Plan::quick(), &runs, &objectives());
            verdicts.iter().all(|verdict| verdict.passed)
        };
        assert!(shadow(0) && !shadow(1));
    }
}
