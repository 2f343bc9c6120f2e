//! Tables of RDMA runs: side by side, tenants, NIC counters, the policy's own figures.

use super::{names, push};
use crate::html::escape;
use crate::number::{bit_rate, fixed, percent, rate, significant, time, whole};
use isolane_rdma_scenario::stack::marked;
use isolane_study_results::rdma::{HostCounters, RunResult, TenantResult};
use std::collections::BTreeSet;

/// One row per tenant and one group of columns per run.
pub(super) fn comparison(results: &[RunResult]) -> String {
    let mut out = "<section id=\"comparison\"><h2>Side by side</h2><div class=\"scroller\"><table class=\"plain\">\
                   <thead><tr><th scope=\"col\" rowspan=\"2\">tenant</th>"
        .to_owned();
    for result in results {
        push(
            &mut out,
            format_args!(
                "<th scope=\"colgroup\" colspan=\"3\" class=\"n\">{}</th>",
                escape(&marked(&result.policy))
            ),
        );
    }
    out.push_str("</tr><tr>");
    for _ in results {
        out.push_str(
            "<th scope=\"col\" class=\"n\">goodput</th><th scope=\"col\" class=\"n\">p50</th>\
             <th scope=\"col\" class=\"n\">p99</th>",
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for name in names(results) {
        push(
            &mut out,
            format_args!("<tr><th scope=\"row\">{}</th>", escape(name)),
        );
        for result in results {
            match result.tenant(name) {
                Some(tenant) => {
                    let latency = tenant.latency_us.as_ref();
                    push(
                        &mut out,
                        format_args!(
                            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
                            bit_rate(tenant.goodput_gbps),
                            latency.map_or("–".to_owned(), |latency| time(latency.p50)),
                            latency.map_or("–".to_owned(), |latency| time(latency.p99)),
                        ),
                    );
                }
                None => out
                    .push_str("<td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></section>\n");
    out
}

/// Tables of one run: tenants, counters, the policy's own figures.
pub(super) fn details(result: &RunResult, index: usize, several: bool) -> String {
    let suffix = if several {
        format!(" under {}", escape(&marked(&result.policy)))
    } else {
        String::new()
    };
    format!(
        "<section id=\"tenants-{index}\"><h2>Tenants{suffix}</h2>{}</section>\n\
         <section id=\"counters-{index}\"><h2>NIC counters{suffix}</h2>{}</section>\n{}",
        tenants(result),
        counters(result),
        policy_state(result, index, &suffix)
    )
}

fn tenants(result: &RunResult) -> String {
    let columns = [
        "offered",
        "goodput",
        "on the wire",
        "share of link",
        "messages",
        "p50",
        "p99",
        "p99.9",
        "policy CPU",
        "errors",
        "per queue pair (min, median, max)",
    ];
    let head: String = columns
        .map(|name| format!("<th scope=\"col\" class=\"n\">{name}</th>"))
        .concat();
    let mut out = format!(
        "<div class=\"scroller\"><table class=\"plain\"><thead><tr><th scope=\"col\">tenant</th>\
         <th scope=\"col\">class</th>{head}</tr></thead><tbody>\n"
    );
    for tenant in &result.tenants {
        let latency = |of: fn(&isolane_study_results::rdma::LatencyResult) -> f64| {
            tenant
                .latency_us
                .as_ref()
                .map_or("–".to_owned(), |latency| time(of(latency)))
        };
        let [least, median, most] = tenant.queue_pair_gbps;
        let values = [
            tenant
                .offered_gbps
                .map_or("closed loop".to_owned(), bit_rate),
            bit_rate(tenant.goodput_gbps),
            bit_rate(tenant.wire_gbps),
            percent(tenant.share),
            messages(tenant),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            format!("{} cores", significant(tenant.policy_cores, 2)),
            whole(tenant.errors),
            format!(
                "{} · {} · {}",
                bit_rate(least),
                bit_rate(median),
                bit_rate(most)
            ),
        ];
        let values = values
            .map(|value| format!("<td class=\"n\">{value}</td>"))
            .concat();
        push(
            &mut out,
            format_args!(
                "<tr><th scope=\"row\">{}</th><td>{}</td>{values}</tr>\n",
                escape(&tenant.name),
                class(tenant)
            ),
        );
    }
    out.push_str("</tbody></table></div>");
    out
}

fn messages(tenant: &TenantResult) -> String {
    let messages = rate(tenant.message_rate_per_s, "msg");
    if tenant.control_rate_per_s > 0.0 {
        format!("{messages}, {}", rate(tenant.control_rate_per_s, "verbs"))
    } else {
        messages
    }
}

/// The class the policy treated a tenant as, and the declared one where it differs.
fn class(tenant: &TenantResult) -> String {
    let treated = tenant.class.name();
    if tenant.class == tenant.declared_class {
        treated.to_owned()
    } else {
        format!("{treated} (declared {})", tenant.declared_class.name())
    }
}

/// Ratios first, since they say what was busy, then the raw counters; one column per host. Those that are zero on every
/// host are named below the table.
fn counters(result: &RunResult) -> String {
    let hosts = &result.counters;
    let ratios = rows(hosts, |host| {
        let of = |(name, ratio): (&String, &f64)| (name.clone(), *ratio, percent(*ratio));
        host.ratios.iter().map(of).collect()
    });
    let values = rows(hosts, |host| {
        let of = |(name, value): (&String, &u64)| (name.clone(), *value as f64, whole(*value));
        host.values.iter().map(of).collect()
    });
    if ratios.is_empty() && values.is_empty() {
        return "<p>The testbed reported none.</p>".to_owned();
    }
    let head: String = hosts
        .iter()
        .map(|host| {
            let letter = host.host.letter();
            format!("<th scope=\"col\" class=\"n\">host {letter}</th>")
        })
        .collect();
    let mut out = format!(
        "<div class=\"scroller\" tabindex=\"0\" role=\"region\" aria-label=\"NIC counters\"><table class=\"plain\"><thead>\
         <tr><th scope=\"col\">counter</th>{head}</tr></thead>\n"
    );
    let mut zero = Vec::new();
    for group in [ratios, values] {
        out.push_str("<tbody>");
        for (name, cells) in group {
            match cells.iter().flatten().any(|(value, _)| *value != 0.0) {
                true => counter_row(
                    &mut out,
                    &name,
                    cells.into_iter().map(|cell| cell.map(|(_, text)| text)),
                ),
                false => zero.push(format!("<code>{}</code>", escape(&name))),
            }
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table></div>");
    if !zero.is_empty() {
        push(
            &mut out,
            format_args!(
                "<details><summary>Counters that are zero on every host: {}</summary><p>{}</p></details>",
                zero.len(),
                zero.join(", ")
            ),
        );
    }
    out
}

/// A counter's name, and of each host its value with its text, where the host has it.
type CounterRow = (String, Vec<Option<(f64, String)>>);

fn rows(
    hosts: &[HostCounters],
    of: impl Fn(&HostCounters) -> Vec<(String, f64, String)>,
) -> Vec<CounterRow> {
    let all: Vec<Vec<(String, f64, String)>> = hosts.iter().map(of).collect();
    let names: BTreeSet<&String> = all.iter().flatten().map(|(name, ..)| name).collect();
    let cell = |name: &String, host: &Vec<(String, f64, String)>| {
        let found = host.iter().find(|(other, ..)| other == name);
        found.map(|(_, value, text)| (*value, text.clone()))
    };
    names
        .into_iter()
        .map(|name| {
            let cells = all.iter().map(|host| cell(name, host)).collect();
            (name.clone(), cells)
        })
        .collect()
}

fn counter_row(out: &mut String, name: &str, values: impl Iterator<Item = Option<String>>) {
    push(
        out,
        format_args!("<tr><td><code>{}</code></td>", escape(name)),
    );
    for value in values {
        push(
            out,
            format_args!(
                "<td class=\"n\">{}</td>",
                value.unwrap_or_else(|| "–".to_owned())
            ),
        );
    }
    out.push_str("</tr>\n");
}

fn policy_state(result: &RunResult, index: usize, suffix: &str) -> String {
    if result.policy_state.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<section id=\"policy-{index}\"><h2>The policy's own figures{suffix}</h2><div class=\"scroller\">\
         <table class=\"plain\"><thead><tr><th scope=\"col\">figure</th><th scope=\"col\" class=\"n\">value</th></tr>\
         </thead><tbody>\n"
    );
    for (name, value) in &result.policy_state {
        let value = if value.fract() == 0.0 {
            fixed(*value, 0)
        } else {
            significant(*value, 4)
        };
        counter_row(&mut out, name, std::iter::once(Some(value)));
    }
    out.push_str("</tbody></table></div></section>\n");
    out
}
