//! The first sentence about runs of tenants on one device, and the plot that shows it.
//!
//! One run has nothing to compare with: the sentence says what tenants got, those of class latency first. Several runs
//! are compared: the sentence is about the tenant of class latency whose p99, and the other tenant whose goodput, differs
//! most between two policies, and the plot shows the first of these figures of every tenant under every policy.

use super::{dot_plot, ink, names};
use crate::html::{figure, listed};
use crate::number::{bit_rate, percent, significant, time};
use crate::svg::{Bar, BarPlot, BarRow, Dot, DotPlot, DotRow, INKS};
use isolane_rdma_scenario::model::Class;
use isolane_study_results::rdma::{RunResult, TenantResult};

/// Tenants that the sentence about one run names.
const NAMED: usize = 3;
/// Figures of two policies that differ by less than this factor are called alike.
const ALIKE: f64 = 1.1;
const WIDTH: f64 = 420.0;

pub(super) fn sentence(results: &[RunResult]) -> String {
    match results {
        [one] => alone(one),
        _ => compared(results),
    }
}

/// The plot of the verdict, as a figure.
pub(super) fn plot(results: &[RunResult]) -> String {
    let scenario = &results[0].scenario;
    let (caption, plot) = match (results, differences(results).first()) {
        ([one], _) => match has_latency(one) {
            true => (
                "<b>Latency</b> of every tenant's messages",
                dot_plot(results, &names(results), one).unwrap_or_default(),
            ),
            false => ("<b>Goodput</b> of every tenant", goodputs(results)),
        },
        (_, Some(found)) if found.latency => (
            "<b>99th percentile latency</b> of every tenant under every policy",
            latencies(results),
        ),
        _ => (
            "<b>Goodput</b> of every tenant under every policy",
            goodputs(results),
        ),
    };
    figure(&format!("{scenario}-verdict"), caption, &plot)
}

fn has_latency(result: &RunResult) -> bool {
    let mut tenants = result.tenants.iter();
    tenants.any(|tenant| tenant.class == Class::Latency && tenant.latency_us.is_some())
}

fn alone(result: &RunResult) -> String {
    let mut tenants: Vec<&TenantResult> = result.tenants.iter().collect();
    // Stable: otherwise the scenario's order.
    tenants.sort_by_key(|tenant| (!is_idle(tenant), tenant.class != Class::Latency));
    let mut parts: Vec<String> = tenants.iter().take(NAMED).map(|one| got(one)).collect();
    match tenants.len().saturating_sub(NAMED) {
        0 => {}
        1 => parts.push("1 more tenant is below".to_owned()),
        more => parts.push(format!("{more} more tenants are below")),
    }
    format!("Under {}, {}.", result.policy, listed(&parts))
}

fn is_idle(tenant: &TenantResult) -> bool {
    tenant.goodput_gbps == 0.0
        && tenant.message_rate_per_s == 0.0
        && tenant.control_rate_per_s == 0.0
}

fn got(tenant: &TenantResult) -> String {
    let name = &tenant.name;
    match (&tenant.latency_us, tenant.class) {
        _ if is_idle(tenant) => format!("{name} delivers nothing"),
        (Some(latency), Class::Latency) => {
            format!("{name} has a p99 latency of {}", time(latency.p99))
        }
        _ if tenant.goodput_gbps == 0.0 => {
            format!(
                "{name} completes {} messages/s",
                significant(tenant.message_rate_per_s, 3)
            )
        }
        _ => format!(
            "{name} gets {} ({} of the link)",
            bit_rate(tenant.goodput_gbps),
            percent(tenant.share)
        ),
    }
}

/// The figure that differs most between two policies.
struct Difference<'a> {
    tenant: &'a str,
    latency: bool,
    /// Policy and value: the better one, then the worse one.
    better: (&'a str, f64),
    worse: (&'a str, f64),
}

impl Difference<'_> {
    /// How many times worse; without an end where the worse value is zero.
    fn factor(&self) -> f64 {
        match self.latency {
            true => self.worse.1 / self.better.1,
            false => self.better.1 / self.worse.1,
        }
    }
}

/// The largest difference in latency and the largest in goodput, as far as there are any.
fn differences(results: &[RunResult]) -> Vec<Difference<'_>> {
    let all: Vec<Difference<'_>> = names(results)
        .into_iter()
        .filter_map(|name| difference(results, name))
        .collect();
    let (latencies, goodputs): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.latency);
    [latencies, goodputs]
        .into_iter()
        .filter_map(|of| {
            let largest = of
                .into_iter()
                .max_by(|one, other| one.factor().total_cmp(&other.factor()))?;
            (largest.factor() >= ALIKE).then_some(largest)
        })
        .collect()
}

fn difference<'a>(results: &'a [RunResult], name: &'a str) -> Option<Difference<'a>> {
    let tenants: Vec<(&str, &TenantResult)> = results
        .iter()
        .filter_map(|result| Some((result.policy.as_str(), result.tenant(name)?)))
        .collect();
    let latency = tenants
        .iter()
        .all(|(_, one)| one.class == Class::Latency && one.latency_us.is_some());
    let mut values: Vec<(&str, f64)> = tenants
        .iter()
        .filter_map(|(policy, one)| {
            let value = match latency {
                true => one.latency_us.as_ref()?.p99,
                false => one.goodput_gbps,
            };
            Some((*policy, value))
        })
        .collect();
    values.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (first, last) = (*values.first()?, *values.last()?);
    let (better, worse) = match latency {
        true => (first, last),
        false => (last, first),
    };
    // What is zero under every policy does not differ.
    (better.1 > 0.0).then_some(Difference {
        tenant: name,
        latency,
        better,
        worse,
    })
}

fn compared(results: &[RunResult]) -> String {
    let parts: Vec<String> = differences(results).iter().map(differs).collect();
    if parts.is_empty() {
        let policies: Vec<String> = results.iter().map(|run| run.policy.clone()).collect();
        return format!(
            "No tenant's p99 latency or goodput differs by more than 10 % between {}.",
            listed(&policies)
        );
    }
    format!("{}.", parts.join("; "))
}

fn differs(found: &Difference<'_>) -> String {
    let (what, show, low, high): (_, fn(f64) -> String, _, _) = match found.latency {
        true => ("p99 latency", time, found.better, found.worse),
        false => ("goodput", bit_rate, found.worse, found.better),
    };
    let times = match found.factor() {
        factor if factor.is_finite() => format!(" ({} times)", significant(factor, 2)),
        _ => String::new(),
    };
    format!(
        "{}'s {what} is {} under {} and {} under {}{times}",
        found.tenant,
        show(low.1),
        low.0,
        show(high.1),
        high.0
    )
}

/// Goodput bars: a row per tenant, a bar per policy.
fn goodputs(results: &[RunResult]) -> String {
    let all = names(results);
    let several = results.len() > 1;
    let rows = all.iter().map(|name| BarRow {
        name: (*name).to_owned(),
        bars: results
            .iter()
            .enumerate()
            .filter_map(|(index, result)| {
                let goodput = result.tenant(name)?.goodput_gbps;
                Some(Bar {
                    name: match several {
                        true => result.policy.clone(),
                        false => String::new(),
                    },
                    ink: match several {
                        true => index % INKS,
                        false => ink(&all, name),
                    },
                    value: goodput,
                    text: bit_rate(goodput),
                })
            })
            .collect(),
        bound: None,
    });
    BarPlot {
        label: "Goodput of every tenant".to_owned(),
        x_title: "goodput, Gb/s".to_owned(),
        x_max: 0.0,
        rows: rows.collect(),
        width: WIDTH,
    }
    .render()
}

/// p99 latencies: a row per tenant and policy, all on one axis.
fn latencies(results: &[RunResult]) -> String {
    let all = names(results);
    let mut rows = Vec::new();
    for name in &all {
        for (index, result) in results.iter().enumerate() {
            let tenant = result.tenant(name);
            let Some(latency) = tenant.and_then(|tenant| tenant.latency_us.as_ref()) else {
                continue;
            };
            rows.push(DotRow {
                name: format!("{name} under {}: {}", result.policy, time(latency.p99)),
                ink: index % INKS,
                dots: vec![Dot {
                    name: "p99".to_owned(),
                    value: latency.p99,
                    text: time(latency.p99),
                }],
                bound: None,
            });
        }
    }
    let values = || rows.iter().flat_map(|row| &row.dots).map(|dot| dot.value);
    let low = values().fold(f64::INFINITY, f64::min);
    let plot = DotPlot {
        label: "99th percentile latency of every tenant under every policy".to_owned(),
        x_title: "p99 latency, µs (logarithmic)".to_owned(),
        x_range: (low, values().fold(low, f64::max)),
        rows,
        width: WIDTH,
    };
    plot.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use expect_test::expect;

    #[test]
    fn one_run_says_what_each_tenant_got() {
        let result = synthetic::run("justitia");
        expect!["Under justitia, web has a p99 latency of 3.10 µs, bulk (32 pairs) gets 42.0 Gb/s (43% of the link) and messages gets 31.0 Gb/s (32% of the link)."]
            .assert_eq(&sentence(std::slice::from_ref(&result)));
        let mut idle = result;
        idle.tenants[2].goodput_gbps = 0.0;
        idle.tenants[2].message_rate_per_s = 0.0;
        let said = sentence(&[idle]);
        let first = "Under justitia, messages delivers nothing, web has";
        assert!(said.starts_with(first), "{said}");
    }

    #[test]
    fn several_runs_say_whom_the_policy_matters_to_most() {
        let results = ["none", "justitia"].map(synthetic::run);
        expect!["web's p99 latency is 3.10 µs under justitia and 19.0 µs under none (6.1 times); bulk (32 pairs)'s goodput is 42.0 Gb/s under justitia and 55.0 Gb/s under none (1.3 times)."]
            .assert_eq(&sentence(&results));
        let same = ["none", "none"].map(synthetic::run);
        expect![
            "No tenant's p99 latency or goodput differs by more than 10 % between none and none."
        ]
        .assert_eq(&sentence(&same));
    }

    #[test]
    fn a_tenant_that_one_policy_starves_is_named() {
        let mut results = ["none", "justitia"].map(synthetic::run);
        results[0].tenants[1].goodput_gbps = 0.0;
        expect!["web's p99 latency is 3.10 µs under justitia and 19.0 µs under none (6.1 times); bulk (32 pairs)'s goodput is 0 Gb/s under none and 42.0 Gb/s under justitia."]
            .assert_eq(&sentence(&results));
    }
}
