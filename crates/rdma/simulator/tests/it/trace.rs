//! Recording changes no result, and every picosecond of a message's latency has exactly one reason.
use crate::common::{bulk, profile, run, scenario, small, tenant};
use isolane_common_quantities::units::Duration;
use isolane_rdma_simulator::rnic::run_traced;
use isolane_rdma_simulator::rnic::trace::{CacheName, Resource, Stage, Trace, TraceOptions};
use isolane_study_results::rdma::RunResult;

fn traced(text: &str) -> (RunResult, Trace) {
    let scenario = scenario(text);
    let options = TraceOptions {
        victim: 0,
        bucket: Duration::from_us(20),
    };
    run_traced(&scenario, &profile(&scenario.profile), options)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Small WRITEs from several pairs.
fn many_small(name: &str, verb: &str, pairs: u32) -> String {
    tenant(
        name,
        "throughput",
        &format!("verb = \"{verb}\"\nsize = 64\nqueue_pairs = {pairs}\ndepth = 16\npost_list = 4"),
    )
}

/// Scenarios that touch every kind of wait; the first tenant is the victim.
fn scenarios() -> Vec<(&'static str, String)> {
    let text = |policy: &str, tenants: String| {
        format!(
            "duration = \"300us\"\nwarmup = \"100us\"\n[policy]\nname = \"{policy}\"\n{tenants}"
        )
    };
    let loopback = bulk("loop", "64KiB", 4) + "\nfrom = \"a\"\nto = \"a\"\n";
    vec![
        (
            "ping-pong",
            text("none", small("v") + &bulk("bulk", "1MiB", 4)),
        ),
        (
            "reads",
            text(
                "none",
                many_small("v", "read", 4) + &bulk("bulk", "64KiB", 2),
            ),
        ),
        (
            "reads in both directions",
            "topology = \"switch\"\n".to_owned()
                + &text(
                    "none",
                    many_small("v", "read", 64)
                        + &many_small("back", "read", 64)
                        + "from = \"b\"\nto = \"a\"\n",
                ),
        ),
        (
            "large reads",
            text(
                "none",
                bulk("v", "256KiB", 2).replace("write", "read") + &bulk("bulk", "64KiB", 2),
            ),
        ),
        (
            "atomics",
            text(
                "none",
                many_small("v", "fetch-add", 4).replace("size = 64", "size = 8") + &small("pings"),
            ),
        ),
        (
            "sends",
            text(
                "none",
                many_small("v", "send", 4) + &many_small("other", "send", 64),
            ),
        ),
        (
            "no receives",
            text(
                "none",
                many_small("v", "send", 2)
                    + &tenant(
                        "rnr",
                        "throughput",
                        "verb = \"send\"\nsize = 8\nqueue_pairs = 8\ndepth = 16\nreceive_batch = 0",
                    ),
            ),
        ),
        (
            "contexts",
            text(
                "none",
                many_small("v", "write", 32) + &many_small("cache", "write", 1536),
            ),
        ),
        (
            "policy",
            text("justitia", small("v") + &bulk("bulk", "1MiB", 8)),
        ),
        (
            "policy on bulk",
            text("justitia", bulk("v", "1MiB", 2) + &small("pings")),
        ),
        (
            "open loop",
            text(
                "none",
                tenant(
                    "v",
                    "throughput",
                    "verb = \"write\"\nsize = 256\narrival = \"open\"\ninterval = \"2us\"\npoisson = true",
                ) + &bulk("bulk", "1MiB", 2),
            ),
        ),
        (
            "switch",
            "topology = \"switch\"\n".to_owned()
                + &text("none", bulk("v", "64KiB", 4) + &bulk("bulk", "1MiB", 4)),
        ),
        ("loopback", text("none", bulk("v", "64KiB", 2) + &loopback)),
        (
            "deregistrations",
            text(
                "none",
                many_small("v", "write", 8)
                    + "[[tenant]]\nname = \"control\"\n[[tenant.control]]\nobject = \"memory-region\"\nobjects = 64\nthreads = 8\n",
            ),
        ),
        (
            "datagrams",
            text(
                "none",
                many_small("v", "send", 4) + "transport = \"ud\"\n" + &bulk("bulk", "64KiB", 4),
            ),
        ),
    ]
}

#[test]
fn recording_changes_no_result() {
    for (name, text) in scenarios() {
        let (result, trace) = traced(&text);
        let plain = run(&text);
        let text_of = |result: &RunResult| serde_json::to_string(result).expect("plain data");
        assert_eq!(text_of(&result), text_of(&plain), "{name}");
        assert!(
            trace.followed.len() + trace.unfinished.len() > 0,
            "{name}: no message was followed"
        );
    }
}

#[test]
fn the_parts_of_every_message_add_up_to_its_latency() {
    for (name, text) in scenarios() {
        let (result, trace) = traced(&text);
        let end = 400_000_000;
        for message in &trace.unfinished {
            let sum: u64 = message.spans.iter().map(|span| span.ps).sum();
            assert_eq!(sum, message.latency, "{name}");
            assert!(message.posted + message.latency <= end, "{name}");
        }
        let Some(latency) = &result.tenants[0].latency_us else {
            assert!(
                trace.followed.is_empty() && !trace.unfinished.is_empty(),
                "{name}"
            );
            continue;
        };
        let round_trips = if name == "ping-pong" || name == "policy" {
            2.0
        } else {
            1.0
        };
        for message in &trace.followed {
            let sum: u64 = message.spans.iter().map(|span| span.ps).sum();
            assert_eq!(sum, message.latency, "{name}");
            let us = message.latency as f64 / 1e6 / round_trips;
            // The meter's own figures, from other code; its histogram rounds by less than a percent.
            assert!(
                us <= latency.max * 1.01,
                "{name}: {us} us, at most {}",
                latency.max
            );
            assert!(
                us >= latency.min * 0.99,
                "{name}: {us} us, at least {}",
                latency.min
            );
        }
        let followed: u64 = trace.waits.iter().flat_map(|(_, series)| series).sum();
        assert!(followed > 0, "{name}");
    }
}

#[test]
fn equal_runs_give_equal_traces() {
    for (name, text) in scenarios() {
        assert_eq!(traced(&text).1, traced(&text).1, "{name}");
    }
}

/// ps of the victim's waits for `resource` at `stage`, by tenant.
fn waits(trace: &Trace, resource: Resource) -> Vec<u64> {
    let mut sums = vec![0; trace.tenants.len()];
    for (part, series) in &trace.waits {
        if part.resource == resource && !part.service {
            sums[usize::from(part.tenant)] += series.iter().sum::<u64>();
        }
    }
    sums
}

#[test]
fn waits_for_the_wire_are_attributed_to_the_tenant_that_fills_it() {
    let (_, trace) = traced(&format!(
        "duration = \"300us\"\n{}{}",
        small("v"),
        bulk("bulk", "1MiB", 8)
    ));
    let wire = waits(&trace, Resource::Wire);
    assert!(wire[1] > 20 * wire[0], "{wire:?}");
    let stages: Vec<Stage> = trace.waits.iter().map(|(part, _)| part.stage).collect();
    assert!(stages.contains(&Stage::Schedule));
}

#[test]
fn evictions_name_who_evicted_whom() {
    let text = format!(
        "duration = \"300us\"\n{}{}",
        many_small("v", "write", 32),
        many_small("cache", "write", 192) + "processes = 8\n"
    );
    let (_, trace) = traced(&text);
    let entries = |by: u16, of: u16| -> u64 {
        let contexts = trace
            .evictions
            .iter()
            .filter(|one| one.cache == CacheName::Contexts);
        let those = contexts.filter(|one| one.by == by && one.of == of);
        those.flat_map(|one| &one.entries).sum()
    };
    assert!(
        entries(1, 0) > 10 * entries(0, 0),
        "{:?}",
        [entries(0, 0), entries(0, 1), entries(1, 0), entries(1, 1)]
    );
    let slots = waits(&trace, Resource::ContextSlots);
    assert!(slots[1] > slots[0], "{slots:?}");
}

#[test]
fn a_lone_tenant_names_no_other_as_the_cause() {
    let (_, trace) = traced(&format!(
        "duration = \"300us\"\n{}",
        many_small("v", "write", 8)
    ));
    let others = trace.waits.iter().filter(|(part, _)| part.tenant != 0);
    assert_eq!(others.count(), 0);
}

#[test]
fn no_resource_is_busier_than_the_time_there_is() {
    for (name, text) in scenarios() {
        let (_, trace) = traced(&text);
        let mut sums = std::collections::BTreeMap::new();
        for one in &trace.occupancy {
            let capacity = trace
                .capacity
                .iter()
                .find(|(host, resource, _)| (*host, *resource) == (one.host, one.resource));
            // Bytes in the buffer may exceed the pause threshold, and answers take the wire out of turn.
            if matches!(one.resource, Resource::ReceiveBuffer | Resource::Wire) {
                continue;
            }
            let capacity = capacity.map_or(1, |entry| entry.2);
            let series = sums
                .entry((one.host, one.resource))
                .or_insert_with(|| (capacity, vec![0; trace.points]));
            for (sum, busy) in series.1.iter_mut().zip(&one.busy) {
                *sum += busy;
            }
        }
        for ((host, resource), (capacity, series)) in sums {
            for busy in series {
                assert!(
                    busy <= capacity * trace.bucket,
                    "{name}: {resource:?} of host {host}"
                );
            }
        }
    }
}
