//! The top of the audit's page: the verdict in words, the matrices at a glance, violations by resource, worst pairs.

use super::comparison::MANY;
use super::{View, class, group};
use crate::html::{escape, figure, listed};
use crate::number::{percent, significant, whole};
use crate::svg::{Bar, BarPlot, BarRow, HeatCell, HeatMap, Span};
use isolane_rdma_scenario::stack;
use isolane_study_audit::cell::{Cell, Verdict, Victim};
use isolane_study_audit::matrix::PolicySummary;
use std::fmt::Write;

/// With more victims than this the small matrices name categories.
const NAMED_VICTIMS: usize = 12;

/// Pairs listed as the worst ones of a policy.
const WORST: usize = 8;

/// The same where many policies are compared.
const WORST_OF_MANY: usize = 3;

/// The verdict as one sentence: how many pairs break isolation under each policy, of many policies under the best and
/// the worst.
pub(super) fn sentence(view: &View<'_>) -> String {
    let counts: Vec<(&String, usize, usize)> = view
        .result
        .policies
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let (judged, violations) = view.count(policy, |_| true);
            (name, judged, violations)
        })
        .collect();
    let broken = |(name, judged, violations): &(&String, usize, usize)| {
        format!("{violations} of {judged} pairs break isolation under {name}")
    };
    match counts.as_slice() {
        [] => "No policy was audited.".to_owned(),
        [one] => match worst_of(view) {
            Some(worst) => format!("{}{worst}.", broken(one)),
            None => format!("{}.", broken(one)),
        },
        [first, rest @ ..] if counts.len() < MANY => {
            let mut parts = vec![broken(first)];
            let rest = rest
                .iter()
                .map(|(name, judged, violations)| format!("{violations} of {judged} under {name}"));
            parts.extend(rest);
            format!("{}.", listed(&parts))
        }
        _ => best_and_worst(counts),
    }
}

/// Of many policies the best and the worst; hardware that is not on sale is left out, unless there is nothing else.
fn best_and_worst(mut counts: Vec<(&String, usize, usize)>) -> String {
    let unbuilt: Vec<&str> = stack::unbuilt(counts.iter().map(|(name, ..)| name.as_str()));
    let sold = counts.len() > unbuilt.len();
    counts.retain(|(name, ..)| !sold || !unbuilt.contains(&name.as_str()));
    let part = |(_, judged, violations): &(&String, usize, usize)| {
        *violations as f64 / (*judged).max(1) as f64
    };
    // Stable: of equal ones the first in the request.
    counts.sort_by(|one, other| part(one).total_cmp(&part(other)));
    let of = match sold && !unbuilt.is_empty() {
        true => "Of the policies that can be bought today",
        false => "Of the policies",
    };
    let (best, worst) = (&counts[0], &counts[counts.len() - 1]);
    format!(
        "{of}, {} breaks isolation in {} of {} pairs, the fewest, and {} in {} of {}, the most.",
        best.0, best.2, best.1, worst.0, worst.2, worst.1
    )
}

/// The victim that loses most under the only policy.
fn worst_of(view: &View<'_>) -> Option<String> {
    let worst = summary(view, 0)?.worst.as_ref()?;
    Some(format!(
        "; the worst victim, {}, {}",
        worst.victim,
        view.result.loss(&view.result.policies[0], worst)
    ))
}

/// Title, notice of a partial audit, and one card per policy.
pub(super) fn header(view: &View<'_>) -> String {
    let result = view.result;
    let notice = if result.progress.partial {
        format!(
            "<p class=\"notice\" role=\"status\"><b>Partial:</b> {} of {} runs are done; pairs not run yet are blank. \
             Run the audit again with <code>--resume</code> to complete it.</p>\n",
            whole(result.progress.runs_done),
            whole(result.progress.runs_total)
        )
    } else {
        String::new()
    };
    // Many policies are compared in the table below.
    let cards = match result.policies.len() < MANY {
        true => {
            let cards: String = (0..result.policies.len())
                .map(|policy| card(view, policy))
                .collect();
            format!("<div class=\"cards\">{cards}</div>\n")
        }
        false => format!("<div class=\"opening\">{}</div>\n", policies(view)),
    };
    format!(
        "<header>\n<p class=\"kicker\">Isolation audit · {profile} · {victims} victims under each of {attackers} attackers · \
         {seeds} · tolerance {alpha}</p>\n<h1>Who breaks whom on one shared RDMA NIC</h1>\n\
         <p class=\"verdict\">{verdict}</p>\n\
         {notice}{cards}</header>\n",
        verdict = escape(&sentence(view)),
        profile = escape(&result.profile),
        victims = result.victims.len(),
        attackers = result.attackers.len(),
        seeds = match result.seeds.len() {
            1 => "one seed".to_owned(),
            count => format!("{count} seeds"),
        },
        alpha = percent(result.alpha),
    )
}

/// The pairs that break isolation under each policy, the best first.
fn policies(view: &View<'_>) -> String {
    let result = view.result;
    let unbuilt = stack::unbuilt(result.policies.iter().map(String::as_str));
    let mut bars: Vec<Bar> = result
        .policies
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let (judged, violations) = view.count(policy, |_| true);
            let mark = if unbuilt.contains(&name.as_str()) {
                " *"
            } else {
                ""
            };
            Bar {
                name: format!("{name}{mark}"),
                ink: 2,
                value: 100.0 * violations as f64 / judged.max(1) as f64,
                text: format!("{violations} of {judged}"),
            }
        })
        .collect();
    // What can be bought comes first. Stable: of equal ones the first in the request.
    bars.sort_by(|one, other| {
        let rank = |bar: &Bar| (bar.name.ends_with('*'), bar.value);
        let (one, other) = (rank(one), rank(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let plot = BarPlot {
        label: "Part of the pairs that break isolation, by policy".to_owned(),
        x_title: "pairs that break isolation, % of those judged".to_owned(),
        x_max: 100.0,
        rows: vec![BarRow {
            name: String::new(),
            bars,
            bound: None,
        }],
        width: 420.0,
    };
    let note = match unbuilt.is_empty() {
        true => "",
        false => " * needs hardware that is not on sale.",
    };
    let caption = format!("<b>Pairs that break isolation</b> under each policy.{note}");
    figure("violations-by-policy", &caption, &plot.render())
}

fn card(view: &View<'_>, policy: usize) -> String {
    let result = view.result;
    let name = &result.policies[policy];
    let (judged, violations) = view.count(policy, |_| true);
    let part = violations as f64 / judged.max(1) as f64;
    let mut text = format!(
        "<article class=\"card\"><h2>{}</h2>\n<p class=\"figure\"><b>{}</b> of {} pairs break isolation</p>\n\
         <div class=\"meter\" role=\"img\" aria-label=\"{share} of pairs\"><i style=\"width:{:.1}%\"></i></div>\n",
        escape(name),
        whole(violations as u64),
        whole(judged as u64),
        part * 100.0,
        share = percent(part),
    );
    let mut push = |arguments: std::fmt::Arguments<'_>| {
        text.write_fmt(arguments)
            .expect("writing to a String succeeds");
    };
    if policy > 0 {
        let (repaired, broken) = changes(view, policy);
        push(format_args!(
            "<p>Against {}: repairs {}, breaks {} that held.</p>\n",
            escape(&result.policies[0]),
            pairs(repaired),
            pairs(broken)
        ));
    }
    if let Some(worst) = summary(view, policy).and_then(|summary| summary.worst.as_ref()) {
        push(format_args!(
            "<p>Worst victim: <b>{}</b> {} under <a href=\"#{}\">{}</a>; {} of {} \
             attackers break it.</p>\n",
            escape(&worst.victim),
            result.loss(name, worst),
            escape(&fragment(name, &worst.victim, &worst.attacker)),
            escape(&worst.attacker),
            worst.violations,
            result.attackers.len()
        ));
    }
    match view.unsettled(policy) {
        0 => {}
        count => push(format_args!(
            "<p>{} did not settle and {} no verdict.</p>\n",
            pairs(count),
            if count == 1 { "has" } else { "have" }
        )),
    }
    push(format_args!("</article>\n"));
    text
}

fn pairs(count: usize) -> String {
    match count {
        1 => "1 pair".to_owned(),
        count => format!("{} pairs", whole(count as u64)),
    }
}

fn summary<'a>(view: &View<'a>, policy: usize) -> Option<&'a PolicySummary> {
    let name = &view.result.policies[policy];
    view.result
        .summaries
        .iter()
        .find(|summary| summary.policy == *name)
}

/// Pairs that `policy` keeps and the first policy breaks, and the other way round.
fn changes(view: &View<'_>, policy: usize) -> (usize, usize) {
    let mut repaired = 0;
    let mut broken = 0;
    for (victim, attacker) in view.positions() {
        let verdict = |policy| view.cell(policy, victim, attacker).map(|cell| cell.verdict);
        match (verdict(0), verdict(policy)) {
            (Some(Verdict::Violation), Some(Verdict::Pass)) => repaired += 1,
            (Some(Verdict::Pass), Some(Verdict::Violation)) => broken += 1,
            _ => {}
        }
    }
    (repaired, broken)
}

/// Few victims are named each, many by category.
fn row_name<'a>(view: &View<'_>, victim: &'a Victim) -> &'a str {
    if view.result.victims.len() <= NAMED_VICTIMS {
        &victim.name
    } else {
        &victim.category
    }
}

/// Every policy's matrix in small, side by side.
pub(super) fn overview(view: &View<'_>) -> String {
    let result = view.result;
    if result.victims.is_empty() || result.attackers.is_empty() {
        return String::new();
    }
    let figures: String = result
        .policies
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let cells = view
                .positions()
                .map(|(victim, attacker)| {
                    let cell = view.cell(policy, victim, attacker);
                    HeatCell {
                        class: class(cell),
                        fails: cell.is_some_and(|cell| cell.verdict == Verdict::Violation),
                    }
                })
                .collect();
            let (judged, violations) = view.count(policy, |_| true);
            let plot = HeatMap {
                label: format!("Under {name}, {violations} of {judged} pairs break isolation"),
                x_title: "attackers (columns), by resource".to_owned(),
                columns: Span::of(
                    result
                        .attackers
                        .iter()
                        .map(|attacker| attacker.category.as_str()),
                ),
                rows: Span::of(result.victims.iter().map(|victim| row_name(view, victim))),
                cells,
                width: 480.0,
                cell_height: (300.0 / result.attackers.len() as f64).clamp(8.0, 20.0),
            };
            let caption = format!(
                "<b>{}</b> {violations} of {judged} pairs break isolation",
                escape(name)
            );
            figure(&format!("matrix-{name}"), &caption, &plot.render())
        })
        .collect();
    format!(
        "<section id=\"overview\"><h2>At a glance</h2>\n<p>One square per pair: victims in rows, attackers in columns. \
         The darker (on a dark page: the brighter) an orange square, the less the victim got of what it is owed; \
         a cross marks a broken pair, a single stroke one that did not settle.</p>\n<div class=\"multiples wide\">{figures}</div></section>\n"
    )
}

/// Violations by the resource that attackers go for, as a plot and as a table; many policies have them in the
/// comparison.
pub(super) fn by_resource(view: &View<'_>) -> String {
    let result = view.result;
    if result.policies.len() >= MANY {
        return String::new();
    }
    let groups = view.groups();
    let rows: Vec<BarRow> = groups
        .iter()
        .map(|name| BarRow {
            name: name.clone(),
            bars: result
                .policies
                .iter()
                .enumerate()
                .map(|(policy, policy_name)| {
                    let (judged, violations) =
                        view.count(policy, |attacker| group(attacker) == *name);
                    Bar {
                        name: policy_name.clone(),
                        ink: policy,
                        value: 100.0 * violations as f64 / judged.max(1) as f64,
                        text: format!("{violations} of {judged}"),
                    }
                })
                .collect(),
            bound: None,
        })
        .collect();
    let plot = BarPlot {
        label: "Part of the pairs that break isolation, by the attackers' resource and by policy"
            .to_owned(),
        x_title: "pairs that break isolation, % of those judged".to_owned(),
        x_max: 100.0,
        rows,
        width: 480.0,
    };
    let figure = figure(
        "violations-by-resource",
        "Pairs that break isolation, by resource",
        &plot.render(),
    );
    format!(
        "<section id=\"resources\"><h2>By resource</h2>\n<div class=\"multiples wide\">{figure}\
         <div class=\"scroller\">{}</div></div></section>\n",
        category_table(view)
    )
}

fn category_table(view: &View<'_>) -> String {
    let mut out = "<table class=\"plain\"><caption>By category of the catalogue</caption><thead><tr>\
                   <th scope=\"col\">attackers</th><th scope=\"col\">policy</th>\
                   <th scope=\"col\" class=\"n\">pairs broken</th><th scope=\"col\" class=\"n\">attackers that break</th>\
                   <th scope=\"col\" class=\"n\">victims broken</th></tr></thead>\n"
        .to_owned();
    let summaries = &view.result.summaries;
    let names = summaries
        .first()
        .map_or(&[][..], |summary| &summary.categories);
    for category in names {
        let rows: Vec<_> = summaries
            .iter()
            .flat_map(|summary| {
                let found = summary
                    .categories
                    .iter()
                    .filter(|other| other.category == category.category);
                found.map(move |found| (&summary.policy, found))
            })
            .collect();
        out.push_str("<tbody>");
        for (index, (policy, found)) in rows.iter().enumerate() {
            out.push_str("<tr>");
            if index == 0 {
                write!(
                    out,
                    "<th scope=\"rowgroup\" rowspan=\"{}\">{}</th>",
                    rows.len(),
                    escape(&found.category)
                )
                .expect("writing to a String succeeds");
            }
            write!(
                out,
                "<td>{}</td><td class=\"n\">{} of {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                escape(policy),
                found.violations,
                found.cells,
                found.attackers_that_break,
                found.victims_broken
            )
            .expect("writing to a String succeeds");
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table>");
    out
}

/// The pairs of each policy that lost most.
pub(super) fn worst_pairs(view: &View<'_>) -> String {
    let most = match view.result.policies.len() < MANY {
        true => WORST,
        false => WORST_OF_MANY,
    };
    let lists: String = view
        .result
        .policies
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let mut worst: Vec<&Cell> = view
                .positions()
                .filter_map(|(victim, attacker)| view.cell(policy, victim, attacker))
                .filter(|cell| cell.verdict == Verdict::Violation)
                .collect();
            // A stable sort: equal losses stay in the catalogue's order.
            worst.sort_by(|one, other| retained(one).total_cmp(&retained(other)));
            let items: String = worst.iter().take(most).map(|cell| pair(cell)).collect();
            let body = if items.is_empty() {
                "<p>No pair breaks isolation.</p>".to_owned()
            } else {
                format!("<ol class=\"pairs\">{items}</ol>")
            };
            format!("<div><h3>{}</h3>{body}</div>", escape(name))
        })
        .collect();
    format!(
        "<section id=\"worst\"><h2>The pairs that lose most</h2>\n<div class=\"multiples wide\">{lists}</div></section>\n"
    )
}

fn retained(cell: &Cell) -> f64 {
    cell.retained.unwrap_or(0.0)
}

fn pair(cell: &Cell) -> String {
    let resource = cell.exhausted.as_ref().map_or(String::new(), |exhausted| {
        format!(
            "<span class=\"resource\">{}</span>",
            escape(&exhausted.resource)
        )
    });
    format!(
        "<li><a href=\"#{}\"><b>{}</b> under {}</a> <span>keeps {}%</span>{resource}</li>",
        escape(&fragment(&cell.policy, &cell.victim, &cell.attacker)),
        escape(&cell.victim),
        escape(&cell.attacker),
        significant(retained(cell) * 100.0, 2),
    )
}

/// The address' fragment that opens a pair, as the script writes it (`application/x-www-form-urlencoded`).
pub(super) fn fragment(policy: &str, victim: &str, attacker: &str) -> String {
    format!(
        "policy={}&victim={}&attacker={}",
        form_encoded(policy),
        form_encoded(victim),
        form_encoded(attacker)
    )
}

fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => {
                out.push(byte as char)
            }
            b' ' => out.push('+'),
            other => write!(out, "%{other:02X}").expect("writing to a String succeeds"),
        }
    }
    out
}
