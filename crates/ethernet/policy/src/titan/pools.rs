//! Queues of processors and of containers.
//!
//! Problem: with one weight for each flow a container gains share by opening many flows. In a shared first-in first-out
//! queue no policy prevents this. In queues of its own, a container's flows compete with each other only. Method:
//! containers get disjoint sets of queues in proportion to their weights, by largest remainders and at least one each.
//! With more containers than queues, the heaviest are spread first and each next one joins the set of least weight, so
//! that sets are as even as a greedy choice makes them. The device's weights then divide the card: a queue's weight is
//! its container's weight times the queue's part of the container's backlogged flows, exact at any number of flows;
//! without weights in the device, the number of queues approximates them. Units: weights are relative. Source: ours;
//! pools of processors are XPS (titan 2.1).

use super::QueueSet;

/// Divides `queues` among holders of these weights (at least 1), in their order. Sets are disjoint if there are
/// enough queues, and none is empty.
///
/// ```
/// use isolane_ethernet_policy::titan::{QueueSet, pools::divide};
/// let sets = divide(&[3, 1], QueueSet::first(8));
/// assert_eq!(sets.iter().map(|set| set.len()).collect::<Vec<_>>(), [6, 2]);
/// ```
///
/// Panics if there are holders but no queues.
pub fn divide(weights: &[u32], queues: QueueSet) -> Vec<QueueSet> {
    if weights.is_empty() {
        return Vec::new();
    }
    assert!(!queues.is_empty(), "at least one container needs a queue");
    if weights.len() > queues.len() as usize {
        return share(weights, queues);
    }
    let mut free = queues.iter();
    counts(weights, u64::from(queues.len()))
        .into_iter()
        .map(|count| {
            let taken = free.by_ref().take(count as usize);
            taken.fold(QueueSet::EMPTY, |set, queue| set.with(QueueSet::one(queue)))
        })
        .collect()
}

/// What each queue weighs when holders have weights and queues of their own: a holder's weight, divided among its
/// queues by the flows backlogged there, of any number. A queue without a holder has the weight `own`.
///
/// Flows that became backlogged one after the other weigh w, w/2, w/3, ...: their sum grows with their number, and with
/// this sum as a weight the NIC would favour a container with many flows.
///
/// ```
/// use isolane_ethernet_policy::titan::{QueueSet, pools::{divide, loads}};
/// let sets = divide(&[1, 2], QueueSet::first(3));
/// let holders = [(1024, sets[0]), (2048, sets[1])];
/// // One flow here, sixteen there.
/// assert_eq!(loads(&holders, &[1, 8, 8], &[1024, 2783, 2783]), [1024, 1024, 1024]);
/// ```
///
/// Panics if `flows` and `own` are not of the same queues.
pub fn loads(holders: &[(u32, QueueSet)], flows: &[u32], own: &[u64]) -> Vec<u64> {
    assert_eq!(flows.len(), own.len(), "one of each for each queue");
    let all = QueueSet::first(flows.len() as u16);
    let mut loads = vec![0; flows.len()];
    let mut held = QueueSet::EMPTY;
    for (weight, set) in holders {
        let set = set.and(all);
        held = held.with(set);
        let sum: u64 = set
            .iter()
            .map(|queue| u64::from(flows[usize::from(queue)]))
            .sum();
        for queue in set.iter().map(usize::from).filter(|_| sum > 0) {
            loads[queue] += (u64::from(*weight) * u64::from(flows[queue])).div_ceil(sum);
        }
    }
    for queue in (0..flows.len()).filter(|queue| !held.holds(*queue as u16)) {
        loads[queue] = own[queue];
    }
    loads
}

/// The queues of each processor: its part of them in order, at least one, as XPS maps are usually laid out.
pub fn of_processors(processors: u16, queues: QueueSet) -> Vec<QueueSet> {
    divide(&vec![1; usize::from(processors)], queues)
}

/// How many of `total` each gets: at least one, in proportion to the weights, the last ones by largest remainder.
fn counts(weights: &[u32], total: u64) -> Vec<u64> {
    let sum: u64 = weights
        .iter()
        .map(|weight| u64::from((*weight).max(1)))
        .sum();
    let spare = total - weights.len() as u64;
    let exact = |weight: u32| u64::from(weight.max(1)) * total;
    let mut counts: Vec<u64> = weights
        .iter()
        .map(|weight| (exact(*weight) / sum).max(1))
        .collect();
    // Those below one queue took from the others: hand out or take back one at a time where it errs least.
    let error = |index: usize, count: u64| exact(weights[index]) as i128 - (count * sum) as i128;
    while counts.iter().sum::<u64>() < total {
        let most = (0..counts.len())
            .max_by_key(|index| (error(*index, counts[*index]), std::cmp::Reverse(*index)));
        counts[most.expect("there are holders")] += 1;
    }
    while counts.iter().sum::<u64>() > total && spare < total {
        let least = (0..counts.len())
            .filter(|index| counts[*index] > 1)
            .min_by_key(|index| (error(*index, counts[*index]), *index));
        counts[least.expect("one each would fit")] -= 1;
    }
    counts
}

/// More holders than queues: each joins the queue of least weight, the heaviest first.
fn share(weights: &[u32], queues: QueueSet) -> Vec<QueueSet> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(weights[*index]), *index));
    let mut loads: Vec<(u64, u16)> = queues.iter().map(|queue| (0, queue)).collect();
    let mut sets = vec![QueueSet::EMPTY; weights.len()];
    for index in order {
        let lightest = loads.iter_mut().min().expect("there are queues");
        lightest.0 += u64::from(weights[index].max(1));
        sets[index] = QueueSet::one(lightest.1);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn many_holders_share_queues_evenly() {
        let sets = divide(&[4, 1, 1, 1, 1], QueueSet::first(2));
        assert!(
            sets[1..]
                .iter()
                .all(|set| *set == sets[1] && *set != sets[0]),
            "{sets:?}"
        );
    }

    #[test]
    fn processors_get_neighbouring_queues() {
        let sets = of_processors(2, QueueSet::first(8));
        assert_eq!(sets, [QueueSet(0x0f), QueueSet(0xf0)]);
    }

    #[test]
    fn many_flows_of_a_holder_weigh_no_more_than_one() {
        let sets = divide(&[1, 1], QueueSet::first(8));
        let holders = [(1024, sets[0]), (1024, sets[1])];
        let of = |flows: [u32; 8]| {
            let loads = loads(&holders, &flows, &[7; 8]);
            let sum = |set: QueueSet| {
                set.iter()
                    .map(|queue| loads[usize::from(queue)])
                    .sum::<u64>()
            };
            [sum(sets[0]), sum(sets[1])]
        };
        assert_eq!(of([1, 0, 0, 0, 4, 4, 4, 4]), [1024, 1024]);
        assert_eq!(
            of([0, 0, 0, 0, 1, 0, 0, 0]),
            [0, 1024],
            "who sends nothing weighs nothing"
        );
        let queues = loads(&holders[..1], &[2, 1, 1, 0, 3], &[7; 5]);
        assert_eq!(
            queues,
            [512, 256, 256, 0, 7],
            "a queue without a holder keeps its own weight"
        );
    }

    proptest! {
        /// Every holder has a queue, no queue is forgotten or given twice while there are enough, and no holder differs
        /// by more than one queue from its exact part unless that part is below one.
        #[test]
        fn queues_follow_weights(weights in prop::collection::vec(1_u32..50, 1..12), queues in 1_u16..=64) {
            let all = QueueSet::first(queues);
            let sets = divide(&weights, all);
            prop_assert!(sets.iter().all(|set| !set.is_empty()));
            prop_assert_eq!(sets.iter().fold(QueueSet::EMPTY, |sum, set| sum.with(*set)), all);
            if weights.len() <= usize::from(queues) {
                prop_assert_eq!(sets.iter().map(|set| set.len()).sum::<u32>(), u32::from(queues));
                let sum: u32 = weights.iter().sum();
                let exact = |weight: u32| f64::from(weight) * f64::from(queues) / f64::from(sum);
                if weights.iter().all(|weight| exact(*weight) >= 1.0) {
                    for (weight, set) in weights.iter().zip(&sets) {
                        prop_assert!((f64::from(set.len()) - exact(*weight)).abs() < 1.0, "{weights:?} {sets:?}");
                    }
                }
            }
        }
    }
}
