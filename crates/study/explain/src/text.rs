//! The story for a terminal.

use crate::explanation::{Explanation, Step};
use crate::words::{letter, percent, us};
use isolane_common_text_output::{Table, wrapped};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::fmt::Write;

/// Columns of a line of prose at most.
const WIDTH: usize = 100;
/// Steps of the typical message that are shown: the longest ones, in their order.
const STEPS: usize = 8;
/// Causes that are shown.
const CAUSES: usize = 8;

/// Everything a terminal of `width` columns shows of `explanation`; tables are as wide as they are without a width.
pub fn render(explanation: &Explanation, width: Option<usize>) -> String {
    let mut text = prose(explanation, width);
    causes(&mut text, explanation, width);
    stages(&mut text, explanation, width);
    message(&mut text, explanation, width);
    text.push_str(&within(&measured(explanation), width));
    text
}

/// What happened, and the chain of causes.
fn prose(explanation: &Explanation, width: Option<usize>) -> String {
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
    let _ = writeln!(text, "{}\n\nChain of causes", explanation.verdict);
    for (index, link) in explanation.chain.iter().enumerate() {
        let _ = writeln!(text, "{}. {:9} {}", index + 1, link.role, link.text);
    }
    within(&text, width)
}

/// What the figures are of.
fn measured(explanation: &Explanation) -> String {
    let mut text = format!(
        "\nThe attacker starts at {:.2} of {:.2} ms measured; figures under attack are of {:.2} to {:.2} ms.\n",
        explanation.attack_us / 1e3,
        explanation.measured_us / 1e3,
        explanation.window_us[0] / 1e3,
        explanation.window_us[1] / 1e3
    );
    if !explanation.settled {
        let _ = writeln!(
            text,
            "The pair did not settle in {:.0} ms: its figures can change with --duration and --seed.",
            explanation.measured_us / 1e3
        );
    }
    let latency = &explanation.latency;
    let _ = writeln!(
        text,
        "Means of {} followed messages alone and {} under attack.",
        latency.messages_alone, latency.messages_attacked
    );
    text
}

/// `prose` in lines of at most `width` columns, and of [`WIDTH`] anyway.
fn within(prose: &str, width: Option<usize>) -> String {
    wrapped(prose, Some(width.unwrap_or(WIDTH).min(WIDTH)))
}

fn causes(text: &mut String, explanation: &Explanation, width: Option<usize>) {
    if explanation.causes.is_empty() {
        return;
    }
    text.push_str("\nWaits per message\n");
    let headings = [
        "resource",
        "host",
        "alone",
        "attacked",
        "added",
        "caused by",
    ];
    let mut table = Table::new("llrrrl", &headings);
    for cause in explanation.causes.iter().take(CAUSES) {
        let caused_by: Vec<String> = cause
            .caused_by
            .iter()
            .take(3)
            .map(|part| format!("{} {}", part.tenant, percent(part.share)))
            .collect();
        let sign = if cause.added_us > 0.0 { "+" } else { "-" };
        table.row(vec![
            cause.title.clone(),
            letter(cause.host).to_string(),
            us(cause.alone_us),
            us(cause.attacked_us),
            format!("{sign}{}", us(cause.added_us.abs())),
            caused_by.join(", "),
        ]);
    }
    text.push_str(&table.render_within(width, false));
}

fn stages(text: &mut String, explanation: &Explanation, width: Option<usize>) {
    text.push_str("\nWhere a message spends its time\n");
    let headings = [
        "stage",
        "waits alone",
        "served alone",
        "waits attacked",
        "served attacked",
    ];
    let mut table = Table::new("lrrrr", &headings);
    for stage in &explanation.stages {
        table.row(vec![
            stage.stage.clone(),
            us(stage.waited_alone_us),
            us(stage.served_alone_us),
            us(stage.waited_attacked_us),
            us(stage.served_attacked_us),
        ]);
    }
    text.push_str(&table.render_within(width, false));
}

fn message(text: &mut String, explanation: &Explanation, width: Option<usize>) {
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
    let headings = ["at", "for", "stage", "what", "host", "behind"];
    let mut table = Table::new("rrllll", &headings);
    for index in longest {
        table.row(step(&steps[index]));
    }
    text.push_str(&table.render_within(width, false));
}

fn step(step: &Step) -> Vec<String> {
    vec![
        us(step.from_us),
        us(step.us),
        step.stage.clone(),
        format!(
            "{} {}",
            if step.waits { "waits for" } else { "served by" },
            step.resource
        ),
        letter(step.host).to_string(),
        step.caused_by.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanation::{CacheStory, Part};
    use crate::sentences;
    use expect_test::expect;
    use isolane_rdma_scenario::model::Host;
    use isolane_rdma_simulator::rnic::trace::Resource;

    fn part(tenant: &str, share: f64) -> Part {
        Part {
            tenant: tenant.to_owned(),
            share,
        }
    }

    /// An explanation with invented figures, which shows the form of the text.
    fn example() -> Explanation {
        let mut explanation: Explanation =
            serde_json::from_str(include_str!("example.json")).unwrap();
        let cause = &mut explanation.causes[0];
        cause.sentence = sentences::sentence(cause, Resource::ContextSlots, "web");
        explanation.caches = vec![CacheStory {
            cache: "contexts".to_owned(),
            host: Host::A,
            miss_ratio_alone: 0.0,
            miss_ratio_attacked: 0.93,
            evictions_per_s: 1.5e6,
            evicted_by: vec![part("crowd", 0.97), part("web", 0.03)],
        }];
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
                         (alone: 0 %); 1.50 million of the victim's entries per second were evicted, by crowd
                         97 %, web 3.0 %.
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

            The attacker starts at 1.00 of 3.00 ms measured; figures under attack are of 1.15 to 3.00 ms.
            Means of 900 followed messages alone and 180 under attack.
        "#]].assert_eq(&render(&example(), None));
    }

    #[test]
    fn a_story_fits_a_narrow_terminal() {
        let text = render(&example(), Some(60));
        for line in text.lines() {
            assert!(line.chars().count() <= 60, "{line}\n{text}");
        }
        assert!(
            text.contains("\n2. resource  93 % of the victim's"),
            "{text}"
        );
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let prose = measured(&example());
        assert!(words(&text).ends_with(&words(&prose)), "{text}");
    }

    #[test]
    fn a_resource_below_four_fifths_is_not_called_saturated() {
        let mut story = example();
        story.causes[0].busy_attacked = Some(0.5);
        sentences::tell(&mut story, false);
        assert!(render(&story, None).contains("busy, not saturated"));
    }
}
