//! The page of one simulated run, or of several runs of one scenario side by side.
//!
//! Everything is static: tables and SVG. Plots of one kind share their axes over all runs, so that heights and
//! positions compare; a tenant keeps its colour in all of them.
//!
//! * [`verdict`] - the first sentence and its plot; [`tables`] - figures side by side, tenants, counters.

mod tables;
mod verdict;

use crate::html::{Opening, Page, escape, figure, nothing, push};
use crate::number::time;
use crate::svg::{Dot, DotPlot, DotRow, LinePlot, LineSeries, with_gaps};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use isolane_study_results::rdma::{RunResult, TenantResult};
use std::collections::BTreeSet;

/// The whole file; `remarks` has what there is to say of each run.
pub(crate) fn page(results: &[RunResult], remarks: &[Vec<String>]) -> String {
    let Some(first) = results.first() else {
        return nothing();
    };
    let title = format!("{} on {}", first.scenario, first.profile);
    let verdict = verdict::sentence(results);
    let mut body = opening(results, &verdict);
    body.push_str(&notes(results, remarks));
    if results.len() > 1 {
        body.push_str(&tables::comparison(results));
    }
    body.push_str(&plots(results));
    for (index, result) in results.iter().enumerate() {
        body.push_str(&tables::details(result, index, results.len() > 1));
    }
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let source = format!("results in JSON form {}", first.version);
    Page::plain(&title, &verdict, &body, &source)
}

fn opening(results: &[RunResult], verdict: &str) -> String {
    let first = &results[0];
    let seeds: BTreeSet<u64> = results.iter().map(|result| result.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let kicker = format!(
        "{} · {} · seed {}",
        escape(&first.profile),
        escape(&first.testbed),
        seeds.join(", ")
    );
    let policies: Vec<String> = results.iter().map(|run| marked(&run.policy)).collect();
    let mut about = format!(
        "{} tenants for {} of measured time under {}. No tenant ran alone here: isolane explain says who hurts whom.",
        first.tenants.len(),
        time(first.measured_s * 1e6),
        policies.join(", ")
    );
    if results.iter().any(|run| !run.on_sale) {
        push(&mut about, format_args!(" {NOT_ON_SALE}."));
    }
    Opening {
        kicker: &kicker,
        title: &first.scenario,
        verdict,
        about: &about,
        plot: &verdict::plot(results),
    }
    .render()
}

/// What the terminal says of each run: warnings, and the resources under pressure.
fn notes(results: &[RunResult], remarks: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (result, lines) in results.iter().zip(remarks) {
        if lines.is_empty() {
            continue;
        }
        if results.len() > 1 {
            push(
                &mut out,
                format_args!("<h3>Under {}</h3>\n", escape(&marked(&result.policy))),
            );
        }
        let lines: String = lines
            .iter()
            .map(|line| format!("<li>{}</li>", escape(line)))
            .collect();
        push(&mut out, format_args!("<ul class=\"notes\">{lines}</ul>\n"));
    }
    match out.is_empty() {
        true => out,
        false => format!(
            "<section id=\"notes\"><h2>What to know about these figures</h2>\n{out}</section>\n"
        ),
    }
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
    let over_time =
        |stem: &str, titles: [&str; 2], axis: &str, of: fn(&TenantResult) -> Vec<f64>| {
            multiples(stem, titles[0], results, |result| {
                line_plot(results, &names, result, titles[1], axis, of)
            })
        };
    let titles = ["Goodput over time", "goodput over time"];
    out.push_str(&over_time("goodput", titles, "goodput, Gb/s", |tenant| {
        tenant.goodput_series_gbps.clone()
    }));
    // Of one run the opening shows them.
    if results.len() > 1 {
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
        let titles = ["99th percentile latency over time"; 2];
        out.push_str(&over_time("p99", titles, "p99, µs", |tenant| {
            with_gaps(&tenant.p99_series_us)
        }));
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
            let caption = format!("<b>{}</b>", escape(&marked(&result.policy)));
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
                dots: Dot::all(points, time),
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

#[cfg(test)]
mod tests {
    use crate::{run, runs, synthetic};

    #[test]
    fn a_run_shows_tenants_counters_and_policy() {
        let result = synthetic::run("justitia");
        let page = run(&result, &["web: <b> waits".to_owned()]);
        for expected in [
            "web",
            "bulk (32 pairs)",
            "42.0 Gb/s",
            "pcie_tx_utilisation",
            "safe_util_gbps",
            "measured time, ms",
            "web: &lt;b&gt; waits",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("Side by side"));
    }

    #[test]
    fn several_runs_are_side_by_side_on_equal_axes() {
        let results = [synthetic::run("none"), synthetic::run("justitia")];
        let page = runs(&results, &[]);
        assert!(page.contains("Side by side"));
        let axes = page.matches("class=\"tick\"").count();
        assert!(axes > 20, "{axes}");
        assert_eq!(page, runs(&results, &[]));
    }

    #[test]
    fn counters_of_zero_are_only_named() {
        let mut result = synthetic::run("none");
        for host in &mut result.counters {
            host.values.insert("cnp_sent".to_owned(), 0);
        }
        let page = run(&result, &[]);
        let table = page
            .split("<h2>NIC counters")
            .nth(1)
            .expect("there are counters");
        assert!(table.contains("zero on every host: 1</summary><p><code>cnp_sent</code>"));
        assert!(!table.contains("<td><code>cnp_sent</code></td>"));
        assert!(table.contains("<td><code>icm_cache_miss</code></td>"));
    }

    #[test]
    fn no_runs_give_a_page_that_states_it() {
        assert!(runs(&[], &[]).contains("nothing to report"));
    }
}
