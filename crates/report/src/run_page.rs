//! The page of one simulated run, or of several runs of one scenario side by side.
//!
//! Everything is static: tables and SVG. Plots of one kind share their axes over all runs, so that heights and
//! positions compare; a tenant keeps its colour in all of them.

use crate::html::{Page, escape, figure};
use crate::number::{bit_rate, fixed, percent, rate, significant, time, whole};
use crate::svg::{Dot, DotPlot, DotRow, LinePlot, LineSeries};
use isolane_scenario::measure::{RunResult, TenantResult};
use isolane_scenario::model::{Class, Host};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The whole file.
pub(crate) fn page(results: &[RunResult]) -> String {
    let Some(first) = results.first() else {
        return Page {
            title: "No runs",
            description: "A report without runs",
            body: "<main id=\"main\"><header><h1>No runs</h1><p>There was nothing to report.</p></header></main>",
            ..Page::default()
        }
        .render();
    };
    let title = format!("{} on {}", first.scenario, first.profile);
    let mut body = header(results);
    if results.len() > 1 {
        body.push_str(&comparison(results));
    }
    body.push_str(&plots(results));
    for (index, result) in results.iter().enumerate() {
        body.push_str(&details(result, index, results.len() > 1));
    }
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let footer = format!(
        "Made by Isolane from results in JSON form {}. Everything is in this file; it needs no network.",
        first.version
    );
    Page {
        title: &title,
        description: &sentence(results),
        body: &body,
        footer: &footer,
        ..Page::default()
    }
    .render()
}

fn sentence(results: &[RunResult]) -> String {
    let policies: Vec<&str> = results
        .iter()
        .map(|result| result.policy.as_str())
        .collect();
    format!(
        "{} tenants for {} of measured time under {}",
        results[0].tenants.len(),
        time(results[0].measured_s * 1e6),
        policies.join(", ")
    )
}

fn header(results: &[RunResult]) -> String {
    let first = &results[0];
    let seeds: BTreeSet<u64> = results.iter().map(|result| result.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!(
        "<header><p class=\"kicker\">{} · {} · seed {}</p>\n<h1>{}</h1>\n<p class=\"lede\">{}.</p></header>\n",
        escape(&first.profile),
        escape(&first.testbed),
        seeds.join(", "),
        escape(&first.scenario),
        escape(&sentence(results))
    )
}

/// One row per tenant and one group of columns per run.
fn comparison(results: &[RunResult]) -> String {
    let mut out = "<section id=\"comparison\"><h2>Side by side</h2><div class=\"scroller\"><table class=\"plain\">\
                   <thead><tr><th scope=\"col\" rowspan=\"2\">tenant</th>"
        .to_owned();
    for result in results {
        push(
            &mut out,
            format_args!(
                "<th scope=\"colgroup\" colspan=\"3\" class=\"n\">{}</th>",
                escape(&result.policy)
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

/// Tenants' names over all runs, in the order of their first appearance.
fn names(results: &[RunResult]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for tenant in results.iter().flat_map(|result| &result.tenants) {
        if !names.contains(&tenant.name.as_str()) {
            names.push(&tenant.name);
        }
    }
    names
}

/// The style sheet's colour of a tenant: grey is left to what is not a tenant.
fn ink(names: &[&str], name: &str) -> usize {
    let index = names.iter().position(|other| *other == name).unwrap_or(0);
    1 + index % (crate::svg::INKS - 1)
}

fn plots(results: &[RunResult]) -> String {
    let names = names(results);
    let mut out = String::new();
    out.push_str(&multiples(
        "goodput",
        "Goodput over time",
        results,
        |result| {
            line_plot(
                results,
                &names,
                result,
                "goodput over time",
                "goodput, Gb/s",
                |tenant| tenant.goodput_series_gbps.clone(),
            )
        },
    ));
    if results.iter().any(|result| {
        result
            .tenants
            .iter()
            .any(|tenant| tenant.latency_us.is_some())
    }) {
        out.push_str(&multiples(
            "latency",
            "Latency percentiles",
            results,
            |result| dot_plot(results, &names, result),
        ));
    }
    if results.iter().any(|result| {
        result
            .tenants
            .iter()
            .any(|tenant| !tenant.p99_series_us.is_empty())
    }) {
        out.push_str(&multiples(
            "p99",
            "99th percentile latency over time",
            results,
            |result| {
                line_plot(
                    results,
                    &names,
                    result,
                    "99th percentile latency over time",
                    "p99, µs",
                    |tenant| bridged(&tenant.p99_series_us),
                )
            },
        ));
    }
    out
}

fn multiples(
    name: &str,
    title: &str,
    results: &[RunResult],
    plot: impl Fn(&RunResult) -> Option<String>,
) -> String {
    let figures: String = results
        .iter()
        .filter_map(|result| {
            let stem = format!("{}-{}-{name}", result.scenario, result.policy);
            let caption = format!("<b>{}</b>", escape(&result.policy));
            plot(result).map(|plot| figure(&stem, &caption, &plot))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{name}\"><h2>{title}</h2><div class=\"multiples\">{figures}</div></section>\n"
    )
}

/// A percentile over time. A point in which no message completed takes the next one's value, for that message was
/// under way; points after the last completion have none.
fn bridged(series: &[f64]) -> Vec<f64> {
    let mut next = f64::NAN;
    let mut values: Vec<f64> = series
        .iter()
        .rev()
        .map(|&p99| {
            if p99 > 0.0 {
                next = p99;
            }
            next
        })
        .collect();
    values.reverse();
    values
}

fn line_plot(
    results: &[RunResult],
    names: &[&str],
    result: &RunResult,
    what: &str,
    y_title: &str,
    values: impl Fn(&TenantResult) -> Vec<f64>,
) -> Option<String> {
    let series: Vec<LineSeries> = result
        .tenants
        .iter()
        .filter(|tenant| !values(tenant).is_empty())
        .map(|tenant| LineSeries {
            name: tenant.name.clone(),
            ink: ink(names, &tenant.name),
            values: values(tenant),
        })
        .collect();
    if series.is_empty() {
        return None;
    }
    let everywhere = results.iter().flat_map(|result| &result.tenants);
    let y_max = everywhere
        .flat_map(&values)
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let points = series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    let milliseconds = result.sample_us * points as f64 >= 2000.0;
    let plot = LinePlot {
        label: format!("Under {}: {what}, a line per tenant", result.policy),
        y_title: y_title.to_owned(),
        x_title: if milliseconds {
            "measured time, ms"
        } else {
            "measured time, µs"
        }
        .to_owned(),
        x_step: if milliseconds {
            result.sample_us / 1000.0
        } else {
            result.sample_us
        },
        y_max,
        series,
        rules: Vec::new(),
        width: 400.0,
        height: 230.0,
        ..LinePlot::default()
    };
    Some(plot.render())
}

fn dot_plot(results: &[RunResult], names: &[&str], result: &RunResult) -> Option<String> {
    let rows: Vec<DotRow> = result
        .tenants
        .iter()
        .filter_map(|tenant| {
            let latency = tenant.latency_us.as_ref()?;
            let points = [
                ("p50", latency.p50),
                ("p99", latency.p99),
                ("p99.9", latency.p999),
            ];
            Some(DotRow {
                name: format!(
                    "{}: p50 {}, p99 {}, p99.9 {}",
                    tenant.name,
                    time(latency.p50),
                    time(latency.p99),
                    time(latency.p999)
                ),
                ink: ink(names, &tenant.name),
                dots: points
                    .into_iter()
                    .map(|(name, value)| Dot {
                        name: name.to_owned(),
                        value,
                        text: time(value),
                    })
                    .collect(),
                bound: None,
            })
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let latencies = || {
        let tenants = results.iter().flat_map(|result| &result.tenants);
        tenants
            .filter_map(|tenant| tenant.latency_us.as_ref())
            .filter(|latency| latency.p50 > 0.0)
    };
    let low = latencies()
        .map(|latency| latency.p50)
        .fold(f64::INFINITY, f64::min);
    let high = latencies().map(|latency| latency.p999).fold(0.0, f64::max);
    let low = if low.is_finite() { low } else { 1.0 };
    let plot = DotPlot {
        label: format!("Under {}: latency percentiles per tenant", result.policy),
        x_title: "latency, µs (logarithmic)".to_owned(),
        x_range: (low, high.max(low)),
        rows,
        width: 400.0,
    };
    Some(plot.render())
}

/// Tables of one run: tenants, counters, the policy's own figures.
fn details(result: &RunResult, index: usize, several: bool) -> String {
    let suffix = if several {
        format!(" under {}", escape(&result.policy))
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
        let latency = |of: fn(&isolane_scenario::measure::LatencyResult) -> f64| {
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
    let treated = class_name(tenant.class);
    if tenant.class == tenant.declared_class {
        treated.to_owned()
    } else {
        format!("{treated} (declared {})", class_name(tenant.declared_class))
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Latency => "latency",
        Class::Throughput => "throughput",
        Class::Bandwidth => "bandwidth",
        Class::Auto => "auto",
    }
}

/// Ratios first, since they say what was busy, then the raw counters; one column per host.
fn counters(result: &RunResult) -> String {
    let ratio_names: BTreeSet<&String> = result
        .counters
        .iter()
        .flat_map(|host| host.ratios.keys())
        .collect();
    let value_names: BTreeSet<&String> = result
        .counters
        .iter()
        .flat_map(|host| host.values.keys())
        .collect();
    if ratio_names.is_empty() && value_names.is_empty() {
        return "<p>The testbed reported none.</p>".to_owned();
    }
    let head: String = result
        .counters
        .iter()
        .map(|host| {
            format!(
                "<th scope=\"col\" class=\"n\">host {}</th>",
                host_name(host.host)
            )
        })
        .collect();
    let mut out = format!(
        "<div class=\"scroller\"><table class=\"plain\"><thead><tr><th scope=\"col\">counter</th>{head}</tr></thead>\n<tbody>"
    );
    for name in ratio_names {
        let values = result
            .counters
            .iter()
            .map(|host| host.ratios.get(name).map(|ratio| percent(*ratio)));
        counter_row(&mut out, name, values);
    }
    out.push_str("</tbody><tbody>");
    for name in value_names {
        let values = result
            .counters
            .iter()
            .map(|host| host.values.get(name).map(|value| whole(*value)));
        counter_row(&mut out, name, values);
    }
    out.push_str("</tbody></table></div>");
    out
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

fn host_name(host: Host) -> &'static str {
    host.letter()
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

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments)
        .expect("writing to a String succeeds");
}

#[cfg(test)]
mod tests {
    use crate::{run, runs, synthetic};

    #[test]
    fn a_run_shows_tenants_counters_and_policy() {
        let result = synthetic::run("justitia");
        let page = run(&result);
        for expected in [
            "web",
            "bulk (32 pairs)",
            "42.0 Gb/s",
            "pcie_tx_utilisation",
            "safe_util_gbps",
            "measured time, ms",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("Side by side"));
    }

    #[test]
    fn several_runs_stand_side_by_side_on_equal_axes() {
        let results = [synthetic::run("none"), synthetic::run("justitia")];
        let page = runs(&results);
        assert!(page.contains("Side by side"));
        let axes = page.matches("class=\"tick\"").count();
        assert!(axes > 20, "{axes}");
        assert_eq!(page, runs(&results));
    }

    #[test]
    fn no_runs_give_a_page_that_says_so() {
        assert!(runs(&[]).contains("nothing to report"));
    }
}
