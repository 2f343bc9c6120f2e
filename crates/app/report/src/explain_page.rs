//! The page that says why one attacker hurts one victim: chain of causes, plots over time, waits, one message.
//!
//! Everything is static: text, tables and SVG. The attacker starts after a third of each plot, so that what changes
//! is seen; plots share their horizontal axis. The victim keeps one colour and the attackers theirs everywhere.

use crate::html::{Opening, Page, escape, figure};
use crate::number::{bit_rate, percent, rate, significant, time};
use crate::svg::{LinePlot, LineSeries, Mark, with_gaps};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use isolane_study_audit::cell::VictimKind;
use isolane_study_explain::Explanation;
use isolane_study_explain::explanation::{Cause, Layer, Part, Step};
use isolane_study_explain::words::letter;

/// Colour of the victim; attackers follow it; grey is for waits without a tenant.
const VICTIM_INK: usize = 1;
/// Colour of an only attacker.
const ATTACKER_INK: usize = 2;

/// The whole file.
pub(crate) fn page(explanation: &Explanation) -> String {
    let title = format!("{} under {}", explanation.victim, explanation.attacker);
    let body = format!(
        "<main id=\"main\">\n{}{}{}{}{}{}{}</main>\n",
        header(explanation),
        chain(explanation),
        plots(explanation),
        causes(explanation),
        stages(explanation),
        messages(explanation),
        rerun(explanation)
    );
    let footer = format!(
        "Made by Isolane from an explanation in JSON form {}. Everything is in this file; it needs no network.",
        explanation.version
    );
    Page {
        title: &title,
        description: &explanation.verdict,
        body: &body,
        footer: &footer,
        ..Page::default()
    }
    .render()
}

/// Who does what, and what it costs the victim.
fn facts(explanation: &Explanation) -> String {
    let loss = &explanation.loss;
    let p99 = |us: Option<f64>| us.map_or("nothing completed".to_owned(), time);
    let facts = [
        ("victim", explanation.victim_does.clone()),
        ("attacker", explanation.attacker_does.clone()),
        (
            "goodput alone, attacked",
            format!(
                "{} · {}",
                bit_rate(loss.alone.goodput_gbps),
                bit_rate(loss.attacked.goodput_gbps)
            ),
        ),
        (
            "messages alone, attacked",
            format!(
                "{} · {}",
                rate(loss.alone.message_rate_per_s, "msg"),
                rate(loss.attacked.message_rate_per_s, "msg")
            ),
        ),
        (
            "p99 latency alone, attacked",
            format!("{} · {}", p99(loss.alone.p99_us), p99(loss.attacked.p99_us)),
        ),
        (
            "kept of what counts",
            format!(
                "{} of its {}",
                percent(loss.retained),
                match explanation.kind {
                    VictimKind::Rate | VictimKind::Application => "rate",
                    VictimKind::Latency => "p99 latency",
                }
            ),
        ),
    ];
    facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value)))
        .collect()
}

fn header(explanation: &Explanation) -> String {
    let loss = &explanation.loss;
    let (badge, word) = match loss.hurt {
        true => ("fail", "hurt"),
        false => ("pass", "not hurt"),
    };
    let facts = facts(explanation);
    let kicker = format!(
        "{} · policy {} · seed {}",
        escape(&explanation.profile),
        escape(&marked(&explanation.policy)),
        explanation.seed
    );
    let title = match loss.hurt {
        true => format!(
            "Why does {} hurt {}?",
            explanation.attacker, explanation.victim
        ),
        false => format!("Does {} hurt {}?", explanation.attacker, explanation.victim),
    };
    let opening = Opening {
        kicker: &kicker,
        title: &title,
        verdict: &explanation.verdict,
        about: match explanation.on_sale {
            true => "",
            false => NOT_ON_SALE,
        },
        plot: &judged(explanation),
    };
    format!(
        "{}<section id=\"figures\"><p><span class=\"badge {badge}\">{word}</span></p>\n<dl class=\"facts\">{facts}</dl></section>\n",
        opening.render()
    )
}

/// The plot of what the victim is judged by.
fn judged(explanation: &Explanation) -> String {
    let p99 = explanation.kind == VictimKind::Latency;
    p99.then(|| p99_figure(explanation))
        .flatten()
        .unwrap_or_else(|| goodput_figure(explanation))
}

fn line(name: &str, ink: usize, values: &[f64]) -> LineSeries {
    LineSeries {
        name: name.to_owned(),
        ink,
        values: values.to_vec(),
    }
}

fn goodput_figure(explanation: &Explanation) -> String {
    let series = &explanation.series;
    figure(
        "goodput",
        "<b>Goodput</b> of the victim, of the victim alone, and of the attacker",
        &plot(
            explanation,
            "Goodput over time",
            "goodput, Gb/s",
            vec![
                line("alone", 0, &series.alone_gbps),
                line("victim", VICTIM_INK, &series.victim_gbps),
                line("attacker", ATTACKER_INK, &series.attacker_gbps),
            ],
            false,
        ),
    )
}

/// Nothing where no message of the victim completed.
fn p99_figure(explanation: &Explanation) -> Option<String> {
    let series = &explanation.series;
    series.victim_p99_us.iter().flatten().next()?;
    Some(figure(
        "p99",
        "<b>99th percentile latency</b> of the victim",
        &plot(
            explanation,
            "99th percentile latency over time",
            "p99, µs",
            vec![
                line("alone", 0, &with_gaps(&series.alone_p99_us)),
                line("victim", VICTIM_INK, &with_gaps(&series.victim_p99_us)),
            ],
            false,
        ),
    ))
}

fn chain(explanation: &Explanation) -> String {
    let links: String = explanation
        .chain
        .iter()
        .map(|link| {
            format!(
                "<li><b>{}</b> <span>{}</span></li>\n",
                escape(&link.role),
                escape(&link.text)
            )
        })
        .collect();
    format!(
        "<section id=\"chain\"><h2>Chain of causes</h2><ol class=\"chain\">{links}</ol></section>\n"
    )
}

fn plots(explanation: &Explanation) -> String {
    let series = &explanation.series;
    // The other one opens the page.
    let mut figures: Vec<String> = match explanation.kind {
        VictimKind::Latency if series.victim_p99_us.iter().any(Option::is_some) => {
            vec![goodput_figure(explanation)]
        }
        _ => p99_figure(explanation).into_iter().collect(),
    };
    if !series.occupancy.is_empty() {
        figures.push(figure(
            "occupancy",
            &format!(
                "<b>Who fills it:</b> {}, by tenant",
                escape(&series.occupancy_of)
            ),
            &plot(
                explanation,
                "Occupancy of the resource that added most, by tenant, stacked",
                &series.occupancy_unit,
                tenants(explanation, &series.occupancy),
                true,
            ),
        ));
    }
    if series
        .waits
        .iter()
        .any(|layer| layer.values.iter().flatten().any(|&v| v > 0.0))
    {
        figures.push(figure(
            "waits",
            "<b>What a message waits for:</b> its mean latency by cause",
            &plot(
                explanation,
                "Mean latency of the victim's messages by cause, stacked",
                "µs per message",
                layers(&series.waits),
                true,
            ),
        ));
    }
    if !series.misses.is_empty() {
        figures.push(figure(
            "misses",
            "<b>Cache misses</b> among the victim's lookups",
            &plot(
                explanation,
                "Part of the victim's lookups that missed, by cache",
                "misses, %",
                layers(&series.misses),
                false,
            ),
        ));
    }
    format!(
        "<section id=\"time\"><h2>Before and after the attacker starts</h2>\
         <p>The attacker starts at the dashed line. Figures under attack are of {} to {}.</p>\
         <div class=\"multiples wide\">{}</div></section>\n",
        time(explanation.window_us[0]),
        time(explanation.window_us[1]),
        figures.concat()
    )
}

fn plot(
    explanation: &Explanation,
    label: &str,
    y_title: &str,
    series: Vec<LineSeries>,
    stacked: bool,
) -> String {
    let milliseconds = explanation.measured_us >= 2000.0;
    let scale = if milliseconds { 1e-3 } else { 1.0 };
    LinePlot {
        label: format!(
            "{label}; the attacker starts at {}",
            time(explanation.attack_us)
        ),
        y_title: y_title.to_owned(),
        x_title: format!("measured time, {}", if milliseconds { "ms" } else { "µs" }),
        x_step: explanation.series.point_us * scale,
        series,
        mark: Some(Mark {
            name: "attacker starts".to_owned(),
            at: explanation.attack_us * scale,
        }),
        stacked,
        width: 430.0,
        height: 230.0,
        ..LinePlot::default()
    }
    .render()
}

/// Layers by tenant: the victim at the bottom, so that what is left to it is seen.
fn tenants(explanation: &Explanation, of: &[Layer]) -> Vec<LineSeries> {
    let mut layers: Vec<&Layer> = of.iter().collect();
    layers.sort_by_key(|layer| layer.name != explanation.victim);
    let mut ink = VICTIM_INK;
    let mut next = || {
        ink += 1;
        ink
    };
    layers
        .into_iter()
        .map(|layer| LineSeries {
            name: layer.name.clone(),
            ink: match layer.name == explanation.victim {
                true => VICTIM_INK,
                false => next(),
            },
            values: with_gaps(&layer.values),
        })
        .collect()
}

/// Layers without a tenant: colours from the attacker's on; the remainder is grey.
fn layers(of: &[Layer]) -> Vec<LineSeries> {
    let layers = of.iter().enumerate();
    layers
        .map(|(index, layer)| LineSeries {
            name: layer.name.clone(),
            ink: match layer.name.as_str() {
                "service" => 0,
                _ => ATTACKER_INK + index,
            },
            values: with_gaps(&layer.values),
        })
        .collect()
}

fn causes(explanation: &Explanation) -> String {
    if explanation.causes.is_empty() {
        return "<section id=\"causes\"><h2>What the victim waits for</h2>\
                <p>Nothing more than it waits for alone.</p></section>\n"
            .to_owned();
    }
    let rows: String = explanation.causes.iter().map(cause).collect();
    format!(
        "<section id=\"causes\"><h2>What the victim waits for</h2>\
         <p>Mean waits per message. A wait is attributed to the tenants whose work was in front.</p>\
         <div class=\"scroller\"><table class=\"plain\"><thead><tr><th scope=\"col\">resource</th>\
         <th scope=\"col\">host</th><th scope=\"col\" class=\"n\">alone</th><th scope=\"col\" class=\"n\">attacked</th>\
         <th scope=\"col\" class=\"n\">added</th><th scope=\"col\">caused by</th>\
         <th scope=\"col\" class=\"n\">busy alone</th><th scope=\"col\" class=\"n\">busy attacked</th>\
         <th scope=\"col\">kept busy by</th></tr></thead><tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

fn cause(cause: &Cause) -> String {
    let busy = |ratio: Option<f64>| ratio.map_or("–".to_owned(), percent);
    let class = if cause.added_us > 0.0 { "down" } else { "up" };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n {class}\">{}{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
        escape(&cause.title),
        letter(cause.host),
        time(cause.alone_us),
        time(cause.attacked_us),
        if cause.added_us > 0.0 { "+" } else { "−" },
        time(cause.added_us.abs()),
        shares(&cause.caused_by),
        busy(cause.busy_alone),
        busy(cause.busy_attacked),
        shares(&cause.occupants),
    )
}

fn shares(parts: &[Part]) -> String {
    let texts = parts
        .iter()
        .take(4)
        .map(|part| format!("{} {}", escape(&part.tenant), percent(part.share)));
    texts.collect::<Vec<_>>().join(", ")
}

fn stages(explanation: &Explanation) -> String {
    let rows: String = explanation
        .stages
        .iter()
        .map(|stage| {
            let values = [
                stage.waited_alone_us,
                stage.served_alone_us,
                stage.waited_attacked_us,
                stage.served_attacked_us,
            ];
            let cells = values
                .map(|us| format!("<td class=\"n\">{}</td>", time(us)))
                .concat();
            format!(
                "<tr><th scope=\"row\">{}</th>{cells}</tr>\n",
                escape(&stage.stage)
            )
        })
        .collect();
    let latency = &explanation.latency;
    format!(
        "<section id=\"stages\"><h2>Where a message spends its time</h2>\
         <p>Means of {} followed messages alone and {} under attack; the columns add up to {} and {}.</p>\
         <div class=\"scroller\"><table class=\"plain\"><thead><tr><th scope=\"col\">stage</th>\
         <th scope=\"col\" class=\"n\">waits alone</th><th scope=\"col\" class=\"n\">served alone</th>\
         <th scope=\"col\" class=\"n\">waits attacked</th><th scope=\"col\" class=\"n\">served attacked</th></tr></thead>\
         <tbody>\n{rows}</tbody></table></div></section>\n",
        latency.messages_alone,
        latency.messages_attacked,
        time(latency.alone_us),
        time(latency.attacked_us)
    )
}

fn messages(explanation: &Explanation) -> String {
    let table = |name: &str, steps: &[Step]| {
        if steps.is_empty() {
            return String::new();
        }
        let total: f64 = steps.iter().map(|step| step.us).sum();
        let rows: String = steps
            .iter()
            .map(|step| {
                format!(
                    "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td></tr>\n",
                    significant(step.from_us, 4),
                    significant(step.us, 3),
                    escape(&step.stage),
                    if step.waits { "waits for" } else { "served by" },
                    escape(&step.resource),
                    letter(step.host),
                    step.caused_by.as_deref().map_or(String::new(), escape),
                )
            })
            .collect();
        format!(
            "<details><summary>{name}: {} in {} steps</summary><div class=\"scroller\"><table class=\"plain\"><thead><tr>\
             <th scope=\"col\" class=\"n\">at, µs</th><th scope=\"col\" class=\"n\">for, µs</th><th scope=\"col\">stage</th>\
             <th scope=\"col\">what</th><th scope=\"col\">host</th><th scope=\"col\">behind</th></tr></thead><tbody>\n\
             {rows}</tbody></table></div></details>\n",
            time(total),
            steps.len()
        )
    };
    format!(
        "<section id=\"message\"><h2>One message, step by step</h2>\
         <p>The message of median latency. Steps that waited for the schedule queue are grouped by what held it up.</p>\n{}{}</section>\n",
        table("Alone", &explanation.message_alone),
        table("Under attack", &explanation.message_attacked)
    )
}

fn rerun(explanation: &Explanation) -> String {
    format!(
        "<section id=\"rerun\"><h2>Run it again</h2><pre class=\"command\"><code>{}</code></pre></section>\n",
        escape(&explanation.rerun)
    )
}
