//! The page of a recommendation: the advice, a row per policy, and what each policy cannot protect against.

use crate::html::{Opening, Page, escape, figure, push};
use crate::number::{percent, significant, time};
use crate::svg::{Bar, BarPlot, BarRow};
use isolane_study_recommend::result::{
    ObjectiveKind, ObjectiveOutcome, PolicyOutcome, Recommendation,
};

/// The whole file.
pub(crate) fn page(answer: &Recommendation) -> String {
    let title = format!("Which isolation for {}?", answer.scenario);
    let body = format!(
        "<main id=\"main\">\n{}{}{}{}</main>\n",
        header(answer, &title),
        table(answer),
        reasons(answer),
        method(answer)
    );
    let footer = format!(
        "Made by Isolane from a recommendation in JSON form {}. Everything is in this file; it needs no network.",
        answer.version
    );
    Page {
        title: &title,
        description: &answer.advice,
        body: &body,
        footer: &footer,
        ..Page::default()
    }
    .render()
}

fn header(answer: &Recommendation, title: &str) -> String {
    Opening {
        kicker: &format!("Recommendation · {}", escape(&answer.profile)),
        title,
        verdict: &format!("{}.", answer.advice.trim_end_matches('.')),
        about: "",
        plot: &plot(answer),
    }
    .render()
}

/// Policies that the plot shows, the best ones; the table has all.
const SHOWN: usize = 6;
/// What is drawn of a value at most, in percent of its objective: the text has the value.
const DRAWN_MAX: f64 = 200.0;

/// A group of bars per objective and a bar per policy: what the tenant got of what it needs.
fn plot(answer: &Recommendation) -> String {
    let mut shown: Vec<&PolicyOutcome> = answer.policies.iter().take(SHOWN).collect();
    let none = answer.policies.iter().skip(SHOWN);
    shown.extend(none.filter(|outcome| outcome.policy == "none"));
    let mut rows = Vec::new();
    for (tenant, needs) in answer.tenants.iter().enumerate() {
        for (objective, words) in needs.objectives.iter().enumerate() {
            let bars = shown.iter().filter_map(|policy| {
                let outcome = policy.tenants.get(tenant)?.objectives.get(objective)?;
                Some(bar(&policy.policy, outcome))
            });
            rows.push(BarRow {
                name: format!("{}: {}", needs.name, words.words()),
                bars: bars.collect(),
                bound: Some(100.0),
            });
        }
    }
    let plot = BarPlot {
        label: "What every tenant got of what it needs, by policy".to_owned(),
        x_title: "achieved, % of the objective (latency: objective over measured)".to_owned(),
        x_max: DRAWN_MAX,
        rows,
        width: 420.0,
    };
    let left = answer.policies.len() - shown.len();
    let more = match left {
        0 => String::new(),
        1 => " 1 more policy is in the table.".to_owned(),
        left => format!(" {left} more policies are in the table."),
    };
    let caption = format!(
        "<b>What tenants get of what they need.</b> The line is the objective; a bar that ends before it misses.{more}"
    );
    figure("objectives", &caption, &plot.render())
}

fn bar(policy: &str, outcome: &ObjectiveOutcome) -> Bar {
    let at_most = matches!(outcome.kind, ObjectiveKind::P50Max | ObjectiveKind::P99Max);
    let part = match (outcome.measured, at_most) {
        // A tenant that completes nothing gets nothing of its latency.
        (None, _) => 0.0,
        (Some(measured), true) if measured > 0.0 => outcome.target / measured,
        (Some(_), true) => f64::INFINITY,
        (Some(measured), false) => measured / outcome.target,
    };
    let ink = match (outcome.settled, outcome.met) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    };
    Bar {
        name: policy.to_owned(),
        ink,
        value: (100.0 * part).min(DRAWN_MAX),
        text: format!(
            "{} {}",
            outcome.mark(),
            outcome.kind.words(outcome.measured)
        ),
    }
}

/// A row per policy, best first, and a column per objective.
fn table(answer: &Recommendation) -> String {
    let mut head = String::new();
    for tenant in &answer.tenants {
        for objective in &tenant.objectives {
            push(
                &mut head,
                format_args!(
                    "<th scope=\"col\" class=\"c\">{}<br>{}</th>",
                    escape(&tenant.name),
                    escape(&objective.words())
                ),
            );
        }
    }
    let rows: String = answer.policies.iter().map(row).collect();
    format!(
        "<section id=\"policies\"><h2>The policies, best first</h2>\n<p>Ranked by objectives met, then by how much of \
         the NIC the tenants use together, then by the CPU that the policy spends. A tilde says that the seeds \
         disagree.</p>\n<div class=\"scroller\"><table class=\"plain compare\"><thead><tr>\
         <th scope=\"col\">policy</th><th scope=\"col\" class=\"n\">met</th>{head}\
         <th scope=\"col\" class=\"n\">NIC used</th><th scope=\"col\" class=\"n\">cores</th></tr></thead>\n\
         <tbody>{rows}</tbody></table></div></section>\n"
    )
}

fn row(policy: &PolicyOutcome) -> String {
    let mut out = format!(
        "<tr><th scope=\"row\">{}</th><td class=\"n\"><b>{}</b> of {}</td>",
        escape(&isolane_rdma_scenario::stack::marked(&policy.policy)),
        policy.met,
        policy.objectives
    );
    for tenant in &policy.tenants {
        for objective in &tenant.objectives {
            out.push_str(&mark(objective));
        }
    }
    push(
        &mut out,
        format_args!(
            "<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            percent(policy.utilisation),
            significant(policy.policy_cores, 2)
        ),
    );
    out
}

fn mark(one: &ObjectiveOutcome) -> String {
    let class = match (one.settled, one.met) {
        (false, _) => "ns",
        (true, true) => "v5",
        (true, false) => "v2",
    };
    let edge = if one.borderline { "~" } else { "" };
    format!(
        "<td class=\"score {class}\">{}{edge} {}</td>",
        one.mark(),
        escape(&one.kind.words(one.measured))
    )
}

/// What each policy cannot protect against, and the policies that do not fit.
fn reasons(answer: &Recommendation) -> String {
    let mut out =
        "<section id=\"reasons\"><h2>What each policy cannot protect against</h2>\n".to_owned();
    for alike in isolane_study_recommend::text::reasons(answer) {
        let names: Vec<String> = alike
            .iter()
            .map(|one| escape(&one.policy).to_string())
            .collect();
        push(&mut out, format_args!("<h3>{}</h3>\n", names.join(", ")));
        if let [policy] = &alike[..] {
            push(&mut out, format_args!("<p>{}</p>\n", escape(&policy.about)));
        }
        let failures = isolane_study_recommend::text::failures(alike[0]);
        if failures.is_empty() {
            out.push_str("<p>Nothing that these tenants do to each other.</p>\n");
            continue;
        }
        let items: String = failures
            .iter()
            .map(|failure| format!("<li>{}</li>", escape(failure)))
            .collect();
        push(&mut out, format_args!("<ul class=\"pairs\">{items}</ul>\n"));
    }
    if !answer.left_out.is_empty() {
        out.push_str("<h3>Left out</h3>\n<dl class=\"open\">");
        for left in &answer.left_out {
            push(
                &mut out,
                format_args!(
                    "<div><dt>{}</dt><dd>{}</dd></div>",
                    escape(&left.policy),
                    escape(&left.reason)
                ),
            );
        }
        out.push_str("</dl>\n");
    }
    out.push_str("</section>\n");
    out
}

fn method(answer: &Recommendation) -> String {
    let settling = answer.settling.as_ref().map_or(String::new(), |settling| {
        let words = settling.words("run");
        format!("<div><dt>Settled</dt><dd>{}</dd></div>", escape(&words))
    });
    let seeds: Vec<String> = answer.seeds.iter().map(u64::to_string).collect();
    format!(
        "<section id=\"method\"><h2>How this was found</h2>\n<p>All tenants ran together under every policy, once per \
         seed; medians over the seeds are compared with the objectives. For every miss the tenant then ran alone, and \
         all tenants without each other one in turn: a tenant is the cause if its removal lets the objective be met. The \
         resource is the one that the NICs' counters show to have run out.</p>\n<dl class=\"facts\">\
         <div><dt>Device profile</dt><dd>{}</dd></div><div><dt>Testbed</dt><dd>{}</dd></div>\
         <div><dt>Measured per run</dt><dd>{}</dd></div><div><dt>Seeds</dt><dd>{}</dd></div>{settling}</dl>\n\
         <p>This command makes the same report again:</p>\n<pre class=\"command\"><code>{}</code></pre></section>\n",
        escape(&answer.profile),
        escape(&answer.testbed),
        time(answer.measured_us),
        seeds.join(", "),
        escape(&answer.rerun)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_recommend::recommendation;

    #[test]
    fn the_plot_has_the_best_policies_and_none() {
        let text = page(&recommendation());
        let plot = text
            .split("<svg class=\"plot\"")
            .nth(1)
            .expect("there is a plot");
        let plot = plot.split("</svg>").next().expect("it ends");
        assert_eq!(plot.matches("<rect class=\"bar").count(), 2 * 7);
        for name in ["a", "f", "none"] {
            assert!(plot.contains(&format!(">{name}</text>")), "{name}");
        }
        assert!(!plot.contains(">g</text>"));
        assert!(text.contains("2 more policies are in the table."));
        assert!(
            plot.contains("✗ nothing"),
            "a tenant that completes nothing"
        );
        assert!(text.contains("<p class=\"verdict\">a meets all 2 objectives"));
    }

    #[test]
    fn a_bar_without_a_verdict_is_neither_met_nor_missed() {
        let mut outcome = recommendation().policies[0].tenants[0].objectives[0];
        (outcome.met, outcome.settled) = (false, false);
        let bar = bar("a", &outcome);
        assert!(bar.text.starts_with('?') && bar.ink == 0, "{}", bar.text);
    }
}
