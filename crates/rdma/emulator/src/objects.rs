//! The RDMA objects of a device, one a line, for tools that show who holds them.
//!
//! Method: the same facts as those of the kernel's resource tracking, which does not know emulated devices: what it is, the
//! process that holds it, its number, and what the kernel says of that kind. `isolane_rdma_inventory` reads the lines. Limits:
//! [`LINES_MAX`] objects of a device, of which each connection has the same part; what one does not need, the others have;
//! identifiers of rdma_cm are not listed.

use crate::fabric::Fabric;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Most objects that are listed of a device: 2 MiB of text.
const LINES_MAX: usize = 1 << 16;

/// The lines of the device of `host`.
pub(crate) fn list(fabric: &Fabric, host: u32) -> String {
    shared_out(LINES_MAX, |visit| each(fabric, host, visit))
}

/// What to do with each line and the connection that holds its object.
type Visit<'a> = &'a mut dyn FnMut(u32, fmt::Arguments<'_>);

/// At most `all` of the lines that `visited` names, in their order.
fn shared_out(all: usize, visited: impl Fn(Visit<'_>)) -> String {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    visited(&mut |client, _| *counts.entry(client).or_default() += 1);
    let most = most_of_one(counts.values().copied().collect(), all);
    counts.values_mut().for_each(|left| *left = most.min(*left));
    let mut text = String::new();
    visited(&mut |client, line| {
        let left = counts.get_mut(&client).expect("counted above");
        if *left > 0 {
            *left -= 1;
            writeln!(text, "{line}").expect("a text takes any line");
        }
    });
    text
}

/// Lines of one connection, so that all together have at most `all`, and those with fewer lines have theirs.
fn most_of_one(mut counts: Vec<usize>, all: usize) -> usize {
    counts.sort_unstable();
    let mut left = all;
    for (at, count) in counts.iter().enumerate() {
        let part = left / (counts.len() - at);
        if *count > part {
            return part;
        }
        left -= count;
    }
    all
}

/// Visits every object of the device of `host` with the connection that holds it.
fn each(fabric: &Fabric, host: u32, visit: Visit<'_>) {
    let holder = |client: u32| {
        let known = fabric.clients.get(&client)?;
        (known.host == host).then_some((client, known.pid))
    };
    for &number in fabric.clients.keys() {
        if let Some((client, pid)) = holder(number) {
            visit(client, format_args!("context {pid} {number}"));
        }
    }
    for (number, pair) in &fabric.pairs {
        let kind = match pair.transport {
            Transport::Rc => IBV_QPT_RC,
            Transport::Uc => IBV_QPT_UC,
            Transport::Ud => IBV_QPT_UD,
        };
        let (state, peer) = (pair.attributes.state, pair.attributes.dest_qp_num);
        if let Some((client, pid)) = holder(pair.client) {
            visit(
                client,
                format_args!("qp {pid} {number} {kind} {state} {peer}"),
            );
        }
    }
    for (number, queue) in &fabric.completions {
        if let Some((client, pid)) = holder(queue.client) {
            let capacity = queue.ring.capacity();
            visit(client, format_args!("cq {pid} {number} {capacity}"));
        }
    }
    for (key, region) in &fabric.regions {
        if let Some((client, pid)) = holder(region.client) {
            let length = region.span.length;
            visit(client, format_args!("mr {pid} {key} {length}"));
        }
    }
    for (number, &client) in &fabric.domains {
        if let Some((client, pid)) = holder(client) {
            visit(client, format_args!("pd {pid} {number}"));
        }
    }
    for (number, queue) in &fabric.shared {
        if let Some((client, pid)) = holder(queue.client) {
            visit(client, format_args!("srq {pid} {number}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_objects_hides_no_object_of_another_connection() {
        let objects = [(1, 0..900), (2, 900..901), (3, 901..903)];
        let listed = |all| {
            let text = shared_out(all, |visit| {
                for (client, numbers) in objects.clone() {
                    numbers.for_each(|number| visit(client, format_args!("pd 7 {number}")));
                }
            });
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            listed(5),
            ["pd 7 0", "pd 7 1", "pd 7 900", "pd 7 901", "pd 7 902"]
        );
        assert_eq!(listed(1_000).len(), 903);
    }

    #[test]
    fn a_connection_with_few_objects_has_all_its_lines() {
        assert_eq!(most_of_one(vec![3, 4], 10), 10);
        assert_eq!(most_of_one(vec![90, 3, 70], 10), 3);
        assert_eq!(most_of_one(vec![90, 1, 70], 10), 4);
        assert_eq!(most_of_one(Vec::new(), 10), 10);
    }
}
