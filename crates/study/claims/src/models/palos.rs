//! Palos: chunk sizes of weights, and what changing them costs.

use super::{Model, model, whole};
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_rdma_policy::palos::{Clock, Cycles, GroupId, Label, Palos, PalosOptions, QueuePairId};
use std::collections::BTreeSet;

/// The MTU of the paper's experiments, bytes (palos V).
const MTU: u64 = 1_500;

pub(super) const MODELS: &[Model] = &[
    // Rewriting one chunk size per queue pair, microseconds.
    model("naive_update_us", &["queue_pairs", "clock_mhz"], |given| {
        let pairs = whole("queue_pairs", given[0])?;
        Ok(clock(given[1])?.naive_update(pairs).as_us_f64())
    }),
    // Rewriting one granularity per group, and one weight, microseconds.
    model("granularity_table_us", &["groups", "clock_mhz"], |given| {
        let groups = whole("groups", given[0])?;
        Ok(clock(given[1])?.two_table_update(groups).as_us_f64())
    }),
    // Entries of the weight table that a new weight of one queue pair writes.
    model("weight_entries_written", &["queue_pairs"], |given| {
        Ok(writes_of_a_weight(whole("queue_pairs", given[0])?, 1)?.0)
    }),
    // Entries of the granularity table that it writes.
    model(
        "granularity_entries_written",
        &["queue_pairs", "groups"],
        |given| {
            let groups = whole("groups", given[1])?;
            Ok(writes_of_a_weight(whole("queue_pairs", given[0])?, groups)?.1)
        },
    ),
    // Different chunk sizes of groups of two queue pairs, the groups' weights rising by one.
    model(
        "distinct_chunks",
        &["group_weight_first", "groups", "weight_a", "weight_b"],
        |given| {
            let first = whole("group_weight_first", given[0])?;
            let groups = whole("groups", given[1])?;
            let pairs = [whole("weight_a", given[2])?, whole("weight_b", given[3])?];
            let weights: Vec<u64> = (first..first + groups).collect();
            let (palos, groups, _) = built(&weights, &pairs)?;
            let sum: u64 = pairs.iter().sum();
            let mut sizes = BTreeSet::new();
            for group in groups {
                let round = palos
                    .planned_round(group)
                    .map_err(|error| error.to_string())?;
                sizes.extend(pairs.map(|weight| round.get() * weight / sum));
            }
            Ok(sizes.len() as f64)
        },
    ),
    // Bytes of one round of queue pairs of one group, with chunks of one MTU of 1500 B.
    model("round_bytes", &["queue_pairs"], |given| {
        let pairs = vec![1; whole("queue_pairs", given[0])? as usize];
        let (palos, groups, _) = built(&[1], &pairs)?;
        let round = palos
            .planned_round(groups[0])
            .map_err(|error| error.to_string())?;
        Ok(round.get() as f64)
    }),
];

fn clock(mhz: f64) -> Result<Clock, String> {
    Ok(Clock::new(
        Cycles::COUNTED,
        whole("clock_mhz", mhz)? * 1_000_000,
    ))
}

/// Groups with these weights, each with queue pairs of the other weights.
fn built(groups: &[u64], pairs: &[u64]) -> Result<(Palos, Vec<GroupId>, Vec<QueuePairId>), String> {
    let weight = |weight: u64| u32::try_from(weight).map_err(|error| error.to_string());
    let options = PalosOptions {
        quantum: Bytes::new(MTU),
        label: None,
    };
    let mut palos = Palos::new(options).map_err(|error| error.to_string())?;
    let (mut ids, mut members) = (Vec::new(), Vec::new());
    for group in groups {
        let id = palos.create_group(weight(*group)?);
        let id = id.map_err(|error| error.to_string())?;
        ids.push(id);
        for pair in pairs {
            let pair = palos.create_queue_pair(id, weight(*pair)?, Label::None);
            members.push(pair.map_err(|error| error.to_string())?);
        }
    }
    Ok((palos, ids, members))
}

/// Entries of the weight table and of the granularity table that are written when one of `queue_pairs` queue pairs,
/// spread over `groups` groups and all with work, gets a new weight and has its turn.
fn writes_of_a_weight(queue_pairs: u64, groups: u64) -> Result<(f64, f64), String> {
    let members = vec![1; (queue_pairs / groups).max(1) as usize];
    let (mut palos, _, pairs) = built(&vec![1; groups as usize], &members)?;
    for pair in &pairs {
        palos.activate(Instant::ZERO, *pair, Bytes::new(1 << 30));
    }
    // One round, so that every granularity is up to date before the change.
    for _ in &pairs {
        let turn = palos
            .next_normal()
            .ok_or("a queue pair with work has a turn")?;
        palos.finish(
            Instant::ZERO,
            turn.pair,
            isolane_rdma_policy::palos::Rest::Ready(Bytes::new(1 << 30)),
        );
    }
    let before = palos.table_writes();
    palos
        .modify_queue_pair(pairs[0], 2, Label::None)
        .map_err(|error| error.to_string())?;
    palos
        .next_normal()
        .ok_or("a queue pair with work has a turn")?;
    let after = palos.table_writes();
    Ok((
        (after.weights - before.weights) as f64,
        (after.granularities - before.granularities) as f64,
    ))
}
