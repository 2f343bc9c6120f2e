//! The page of a hunt: the search with its discoveries, what was found, and the conditions as ranges.
//!
//! Every plot is drawn here, once; the page has no script of its own.

pub(crate) mod comparison;
mod plots;
#[cfg(test)]
mod tests;

use crate::html::{Opening, Page, escape, figure};
use crate::number::{percent, significant, whole};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use isolane_study_hunt::hunt::{Anomaly, Ended, HuntResult};
use isolane_study_hunt::monitor::Symptom;
use isolane_study_hunt::space::Space;
use std::fmt::Write;

/// The whole file, of a hunt in `space`.
pub(crate) fn page(result: &HuntResult, space: &Space) -> String {
    let title = match &result.victim {
        Some(victim) => format!(
            "Who hurts {} under {}?",
            victim.victim,
            marked(&victim.policy)
        ),
        None => format!("Anomalies of {}", result.target),
    };
    let verdict = verdict(result);
    let opening = Opening {
        kicker: &format!("Hunt · {}", escape(&result.target)),
        title: &title,
        verdict: &verdict,
        about: &spent(result),
        plot: &figure(
            "search",
            "<b>Found so far.</b> Numbers are those of the table; grey is the time of reductions to conditions",
            &plots::found(result),
        ),
    };
    let body = format!(
        "<main id=\"main\">\n{}{}{}{}{}</main>\n",
        opening.render(),
        table(result, space),
        conditions(result, space),
        trace(result),
        method(result)
    );
    let source = format!("a hunt in JSON form {}", result.version);
    Page::plain(&title, &verdict, &body, &source)
}

/// What was found, and the first of the table in a few words.
fn verdict(result: &HuntResult) -> String {
    let count = result.anomalies.len() as u64;
    let (what, on) = match (&result.victim, count) {
        (None, 1) => ("anomaly", "of this device"),
        (None, _) => ("anomalies", "of this device"),
        (Some(_), 1) => ("attack", "on this victim"),
        (Some(_), _) => ("attacks", "on this victim"),
    };
    let ranked = result.ranked();
    let Some(first) = ranked.first() else {
        return format!(
            "{} experiments found no {what} {on}, which is no proof that there is none.",
            whole(result.spent.experiments)
        );
    };
    let which = match &result.victim {
        Some(_) => "under the worst",
        None => "the first shows",
    };
    format!(
        "{} experiments found {} {what} {on}; {which} {}.",
        whole(result.spent.experiments),
        whole(count),
        seen(first)
    )
}

fn spent(result: &HuntResult) -> String {
    let ended = match result.ended {
        Ended::Budget => "the budget is used",
        Ended::Interrupted => "the search was interrupted",
        Ended::Unfinished => "the search is not finished",
        Ended::Exhausted => "nothing outside the known conditions is left",
    };
    format!(
        "The experiments take {} hours on real hardware as modelled. The hunt ended: {ended}.",
        significant(result.spent.modelled_s / 3600.0, 3)
    )
}

/// A row per anomaly, the worst for a victim first.
fn table(result: &HuntResult, space: &Space) -> String {
    if result.anomalies.is_empty() {
        return "<section id=\"found\"><h2>Nothing was found</h2>\n<p>That is no proof that nothing is there: the space is \
                large, and a search is a search. Another seed, searcher or budget may find something.</p></section>\n"
            .to_owned();
    }
    let rows: String = result
        .ranked()
        .into_iter()
        .map(|one| row(one, space))
        .collect();
    let heading = match result.victim {
        Some(_) => "The attacks, worst first",
        None => "What was found",
    };
    format!(
        "<section id=\"found\"><h2>{heading}</h2>\n<div class=\"scroller\" tabindex=\"0\" role=\"region\" \
         aria-label=\"what was found\"><table class=\"plain compare\"><thead><tr>\
         <th scope=\"col\">#</th><th scope=\"col\">what is seen</th><th scope=\"col\">when all of this holds</th>\
         <th scope=\"col\" class=\"n\">found after</th><th scope=\"col\" class=\"n\">met</th>\
         <th scope=\"col\">checked</th></tr></thead>\n<tbody>{rows}</tbody></table></div></section>\n"
    )
}

fn row(anomaly: &Anomaly, space: &Space) -> String {
    let (when, checked) = match &anomaly.set {
        None => (
            "not reduced: the hunt ended before".to_owned(),
            String::new(),
        ),
        Some(set) => (
            set.region.text(space),
            set.checks.as_ref().map_or("no".to_owned(), |checks| {
                let holds = if checks.hold() {
                    "holds"
                } else {
                    "does not hold"
                };
                format!(
                    "{holds}; {} of {} inside show it",
                    checks.shown, checks.tried
                )
            }),
        ),
    };
    format!(
        "<tr id=\"anomaly-{n}\"><th scope=\"row\">{n}</th><td class=\"brief\">{}</td><td class=\"long\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td>{}</td></tr>\n",
        escape(&seen(anomaly)),
        escape(&when),
        whole(anomaly.found_at.experiments),
        whole(u64::from(anomaly.times)),
        escape(&checked),
        n = anomaly.number,
    )
}

fn seen(anomaly: &Anomaly) -> String {
    let judgement = &anomaly.judgement;
    let symptom = anomaly.symptom.name();
    match (&anomaly.harm, anomaly.symptom) {
        (Some(harm), _) => {
            let out = harm.exhausted.as_deref().unwrap_or("resource unknown");
            format!(
                "the victim keeps {}, the attacker takes {} of a link; {out}",
                percent(harm.retained),
                percent(harm.link_share)
            )
        }
        (None, Symptom::PauseFrames) => {
            format!("{symptom}, {} of the time", percent(judgement.pause_ratio))
        }
        (None, Symptom::HighLatency) => format!(
            "{symptom}, {} times the baseline",
            significant(judgement.of_latency.unwrap_or(f64::NAN), 2)
        ),
        _ => {
            let most = judgement
                .of_bits
                .max(judgement.of_packets)
                .max(judgement.of_offer);
            format!("{symptom}, {} of the nearest bound", percent(most))
        }
    }
}

/// A plot per counter that the search followed, folded; nothing where it followed them for a few experiments only.
fn trace(result: &HuntResult) -> String {
    if result.trace.len() < TRACE_MIN || result.counters.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"trace\"><h2>Counters that the search followed</h2>\n<details><summary>A plot for each counter\
                   </summary><p>Each point is an experiment of the search, each number a \
                   discovery; grey is the time in which a discovery was reduced to its conditions. Values are parts of the \
                   largest one seen. The dashed line is the mean of the random points at the start.</p>\n\
                   <div class=\"multiples\">\n"
        .to_owned();
    for (index, name) in result.counters.iter().enumerate() {
        let plot = plots::trace(result, index);
        out.push_str(&figure(
            &format!("trace-{name}"),
            &format!("<code>{}</code>", escape(name)),
            &plot,
        ));
    }
    out.push_str("</div></details></section>\n");
    out
}

/// Experiments of the search below which a plot of its counters shows nothing.
const TRACE_MIN: usize = 20;

/// The ranges of every reduced anomaly on the grids of the space.
fn conditions(result: &HuntResult, space: &Space) -> String {
    let reduced: Vec<&Anomaly> = result
        .ranked()
        .into_iter()
        .filter(|anomaly| anomaly.set.is_some())
        .collect();
    if reduced.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"conditions\"><h2>The conditions as ranges</h2>\n<p>A row per condition over all values that \
                   the search may take; filled are those that belong to the anomaly. Leaving any one row's filled part ends \
                   it.</p>\n<div class=\"multiples\">\n"
        .to_owned();
    for anomaly in reduced {
        let Some(set) = &anomaly.set else { continue };
        let caption = format!("#{} {}", anomaly.number, escape(anomaly.symptom.name()));
        let plot = format!(
            "{}<p>For example <code>{}</code></p>\n",
            plots::region(anomaly.number, &set.region, space),
            escape(&set.witness.text())
        );
        let name = format!("anomaly-{}", anomaly.number);
        out.push_str(&figure(&name, &caption, &plot));
    }
    out.push_str("</div></section>\n");
    out
}

fn method(result: &HuntResult) -> String {
    let mut facts = String::new();
    let mut fact = |name: &str, value: &str| {
        write!(
            facts,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape(name),
            escape(value)
        )
        .expect("writing to a String succeeds");
    };
    fact("Target", &result.target);
    fact("Searcher", &result.searcher);
    fact("Seed", &result.seed.to_string());
    fact("Not shown again", &whole(u64::from(result.not_repeated)));
    if let Some(settling) = &result.settling {
        fact("Settled", &settling.words("experiment"));
    }
    if let Some(bounds) = &result.bounds {
        fact(
            "Bit bound",
            &format!("{} Gb/s", significant(bounds.link_gbps, 3)),
        );
        fact(
            "Packet bound",
            &format!("{} M/s", significant(bounds.packets_per_s / 1e6, 3)),
        );
    }
    if let Some(victim) = &result.victim {
        if !victim.on_sale {
            fact(&format!("Policy {}", marked(&victim.policy)), NOT_ON_SALE);
        }
        fact("The victim is owed", &victim.rule);
        fact(
            "An attacker may take",
            &format!("{} of a link", percent(victim.attacker_part)),
        );
    }
    format!(
        "<section id=\"method\"><h2>How this was found</h2>\n<dl class=\"facts\">{facts}</dl>\n<p>Beside this page are a \
         scenario for each finding and the journal, from which <code>--resume</code> goes on.</p></section>\n"
    )
}
