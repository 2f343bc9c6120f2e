//! The story for a terminal.

use crate::explanation::{Explanation, Step};
use crate::words::{letter, percent, us};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::fmt::Write;

/// Columns of a line of prose.
const WIDTH: usize = 100;
/// Steps of the typical message that are shown: the longest ones, in their order.
const STEPS: usize = 8;
/// Causes that are shown.
const CAUSES: usize = 8;

/// Everything a terminal shows of `explanation`.
pub fn render(explanation: &Explanation) -> String {
    let mut text = format!(
        "{} under {} on {}, policy {}, seed {}\n\n",
        explanation.victim,
        explanation.attacker,
        explanation.profile,
        marked(&explanation.policy),
        explanation.seed
    );
    if !explanation.on_sale {
        let _ = writeln!(text, "{NOT_ON_SALE}\n");
    }
    paragraph(&mut text, &explanation.verdict, "");
    text.push_str("\nChain of causes\n");
    for (index, link) in explanation.chain.iter().enumerate() {
        paragraph(
            &mut text,
            &format!("{}. {:9} {}", index + 1, link.role, link.text),
            "             ",
        );
    }
    causes(&mut text, explanation);
    stages(&mut text, explanation);
    message(&mut text, explanation);
    let _ = writeln!(
        text,
        "\nThe attacker starts at {} of {} measured; figures under attack are of {} to {}.",
        us(explanation.attack_us),
        us(explanation.measured_us),
        us(explanation.window_us[0]),
        us(explanation.window_us[1])
    );
    if !explanation.settled {
        text.push_str("The pair did not settle: its figures depend on how long it is measured.\n");
    }
    let latency = &explanation.latency;
    let _ = writeln!(
        text,
        "Means of {} followed messages alone and {} under attack.",
        latency.messages_alone, latency.messages_attacked
    );
    text
}

fn causes(text: &mut String, explanation: &Explanation) {
    if explanation.causes.is_empty() {
        return;
    }
    text.push_str("\nWaits per message\n");
    let mut rows = vec![
        [
            "resource",
            "host",
            "alone",
            "attacked",
            "added",
            "caused by",
        ]
        .map(str::to_owned),
    ];
    for cause in explanation.causes.iter().take(CAUSES) {
        let blamed: Vec<String> = cause
            .blamed
            .iter()
            .take(3)
            .map(|part| format!("{} {}", part.tenant, percent(part.share)))
            .collect();
        let sign = if cause.added_us > 0.0 { "+" } else { "-" };
        rows.push([
            cause.title.clone(),
            letter(cause.host).to_string(),
            us(cause.alone_us),
            us(cause.attacked_us),
            format!("{sign}{}", us(cause.added_us.abs())),
            blamed.join(", "),
        ]);
    }
    table(text, &rows, "llrrrl");
}

fn stages(text: &mut String, explanation: &Explanation) {
    text.push_str("\nWhere a message spends its time\n");
    let mut rows = vec![
        [
            "stage",
            "waits alone",
            "served alone",
            "waits attacked",
            "served attacked",
        ]
        .map(str::to_owned),
    ];
    for stage in &explanation.stages {
        rows.push([
            stage.stage.clone(),
            us(stage.waited_alone_us),
            us(stage.served_alone_us),
            us(stage.waited_attacked_us),
            us(stage.served_attacked_us),
        ]);
    }
    table(text, &rows, "lrrrr");
}

fn message(text: &mut String, explanation: &Explanation) {
    let steps = &explanation.message_attacked;
    if steps.is_empty() {
        return;
    }
    let mut longest: Vec<usize> = (0..steps.len()).collect();
    longest.sort_by(|&one, &other| {
        steps[other]
            .us
            .total_cmp(&steps[one].us)
            .then(one.cmp(&other))
    });
    longest.truncate(STEPS);
    longest.sort_unstable();
    let left_out = steps.len() - longest.len();
    let note = match left_out {
        0 => String::new(),
        count => format!(
            " (its {} longest steps of {})",
            longest.len(),
            longest.len() + count
        ),
    };
    let _ = writeln!(text, "\nA typical message under attack{note}");
    let mut rows = vec![["at", "for", "stage", "what", "host", "behind"].map(str::to_owned)];
    rows.extend(longest.into_iter().map(|index| step(&steps[index])));
    table(text, &rows, "rrllll");
}

fn step(step: &Step) -> [String; 6] {
    [
        us(step.from_us),
        us(step.us),
        step.stage.clone(),
        format!(
            "{} {}",
            if step.waits { "waits for" } else { "served by" },
            step.resource
        ),
        letter(step.host).to_string(),
        step.blamed.clone().unwrap_or_default(),
    ]
}

/// Rows with a heading; `l` columns are aligned left, `r` columns right.
fn table<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]], sides: &str) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    for row in rows {
        let mut line = String::new();
        for (column, side) in sides.chars().enumerate() {
            let (cell, width) = (&row[column], width(column));
            let _ = match side {
                'l' => write!(line, "  {cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// `prose` broken into lines; those after the first begin with `indent`.
fn paragraph(text: &mut String, prose: &str, indent: &str) {
    let mut line = String::new();
    for word in prose.split_inclusive(' ') {
        if line.chars().count() + word.trim_end().chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = indent.to_owned();
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanation::{
        CacheStory, Cause, EXPLANATION_VERSION, Loss, MeanLatency, Part, Series, StageTime,
    };
    use crate::sentences;
    use expect_test::expect;
    use isolane_rdma_scenario::model::Host;
    use isolane_rdma_simulator::rnic::trace::Resource;
    use isolane_study_audit::cell::{Metrics, VictimKind};

    fn part(tenant: &str, share: f64) -> Part {
        Part {
            tenant: tenant.to_owned(),
            share,
        }
    }

    fn cause() -> Cause {
        let mut cause = Cause {
            resource: "context-miss-slots".to_owned(),
            title: "slots for queue-pair context misses".to_owned(),
            host: Host::A,
            alone_us: 0.0,
            attacked_us: 6.0,
            added_us: 6.0,
            share: 0.75,
            blamed: vec![part("crowd", 0.9), part("web", 0.1)],
            busy_alone: Some(0.0),
            busy_attacked: Some(0.95),
            occupants: vec![part("crowd", 0.9), part("web", 0.1)],
            sentence: String::new(),
        };
        cause.sentence = sentences::sentence(&cause, Resource::ContextSlots, "web");
        cause
    }

    /// An explanation with invented figures, which shows the form of the text.
    fn example() -> Explanation {
        let metrics = |goodput_gbps: f64| Metrics {
            goodput_gbps,
            message_rate_per_s: goodput_gbps * 1e6,
            ..Metrics::default()
        };
        let mut explanation = Explanation {
            settled: true,
            version: EXPLANATION_VERSION,
            profile: "cx5-100g-roce".to_owned(),
            policy: "none".to_owned(),
            on_sale: true,
            seed: 1,
            victim: "web".to_owned(),
            kind: VictimKind::Rate,
            victim_does: "WRITE of 64 B on 4 queue pairs".to_owned(),
            attacker: "crowd".to_owned(),
            attacker_does: "WRITE of 512 B on 1536 queue pairs".to_owned(),
            warmup_us: 150.0,
            measured_us: 3000.0,
            attack_us: 1000.0,
            window_us: [1150.0, 3000.0],
            loss: Loss {
                alone: metrics(5.0),
                attacked: metrics(1.0),
                retained: 0.2,
                hurt: true,
            },
            latency: MeanLatency {
                alone_us: 2.0,
                attacked_us: 10.0,
                messages_alone: 900,
                messages_attacked: 180,
                unfinished: 4,
            },
            verdict: String::new(),
            chain: Vec::new(),
            causes: vec![cause()],
            stages: vec![StageTime {
                stage: "schedule queue".to_owned(),
                waited_alone_us: 1.0,
                served_alone_us: 1.0,
                waited_attacked_us: 9.0,
                served_attacked_us: 1.0,
            }],
            caches: vec![CacheStory {
                cache: "contexts".to_owned(),
                host: Host::A,
                miss_ratio_alone: 0.0,
                miss_ratio_attacked: 0.93,
                evictions_per_s: 1.5e6,
                evicted_by: vec![part("crowd", 0.97), part("web", 0.03)],
            }],
            message_alone: Vec::new(),
            message_attacked: vec![Step {
                stage: "metadata".to_owned(),
                resource: "slots for queue-pair context misses".to_owned(),
                host: Host::A,
                waits: true,
                blamed: Some("crowd".to_owned()),
                from_us: 0.5,
                us: 6.25,
            }],
            series: Series::default(),
            rerun: "isolane explain web crowd".to_owned(),
        };
        sentences::tell(&mut explanation, false);
        explanation
    }

    #[test]
    fn a_story_is_a_chain_with_numbers_and_tables() {
        expect![[r#"
            web under crowd on cx5-100g-roce, policy none, seed 1

            web keeps 20 % of its goodput: 75 % of the added latency is waiting for the slots for queue-pair
            context misses of host A.

            Chain of causes
            1. cause     crowd runs WRITE of 512 B on 1536 queue pairs.
            2. resource  93 % of the victim's lookups in the cache of queue-pair contexts of host A missed
                         (alone: 0 %); 1.50 million of the victim's entries per second were evicted, by crowd 97
                         %, web 3.0 %.
            3. resource  The slots for queue-pair context misses of host A: 95 % busy (alone: 0 %): crowd 90 %,
                         web 10 %.
            4. wait      A message of web waited 6.00 us on average for the slots for queue-pair context misses
                         of host A (alone: 0 us), for slots held by crowd 90 %, web 10 %.
            5. wait      A message takes 10.0 us instead of 2.00 us on average (+8.00 us).
            6. loss      Goodput: 5.00 Gb/s alone, 1.00 Gb/s under attack; messages: 5.000 M/s and 1.000 M/s.

            Waits per message
              resource                             host  alone  attacked     added  caused by
              slots for queue-pair context misses  A      0 us   6.00 us  +6.00 us  crowd 90 %, web 10 %

            Where a message spends its time
              stage           waits alone  served alone  waits attacked  served attacked
              schedule queue      1.00 us       1.00 us         9.00 us          1.00 us

            A typical message under attack
                   at      for  stage     what                                           host  behind
              0.50 us  6.25 us  metadata  waits for slots for queue-pair context misses  A     crowd

            The attacker starts at 1000 us of 3000 us measured; figures under attack are of 1150 us to 3000 us.
            Means of 900 followed messages alone and 180 under attack.
        "#]].assert_eq(&render(&example()));
    }

    #[test]
    fn a_resource_below_four_fifths_is_not_called_saturated() {
        let mut story = example();
        story.causes[0].busy_attacked = Some(0.5);
        sentences::tell(&mut story, false);
        assert!(render(&story).contains("busy, not saturated"));
    }
}
