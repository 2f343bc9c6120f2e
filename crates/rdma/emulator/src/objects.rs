//! The RDMA objects of a device, one a line, for tools that show who holds them.
//!
//! Method: the same facts as those of the kernel's resource tracking, which does not know emulated devices: what it is, the
//! process that holds it, its number, and what the kernel says of that kind. `isolane_rdma_inventory` reads the lines. Limits:
//! [`LINES_MAX`] objects of a device; identifiers of rdma_cm are not listed.

use crate::fabric::Fabric;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use std::fmt::Write;

/// Most objects that are listed of a device: 2 MiB of text.
const LINES_MAX: usize = 1 << 16;

/// The lines of the device of `host`.
pub(crate) fn list(fabric: &Fabric, host: u32) -> String {
    let holder = |client: u32| {
        let client = fabric.clients.get(&client)?;
        (client.host == host).then_some(client.pid)
    };
    let context = |client: &u32| Some(format!("context {} {client}", holder(*client)?));
    let domain = |(number, client): (&u32, &u32)| Some(format!("pd {} {number}", holder(*client)?));
    let pairs = fabric.pairs.iter().filter_map(|(number, pair)| {
        let kind = match pair.transport {
            Transport::Rc => IBV_QPT_RC,
            Transport::Uc => IBV_QPT_UC,
            Transport::Ud => IBV_QPT_UD,
        };
        let (state, peer) = (pair.attributes.state, pair.attributes.dest_qp_num);
        Some(format!(
            "qp {} {number} {kind} {state} {peer}",
            holder(pair.client)?
        ))
    });
    let queues = fabric.completions.iter().filter_map(|(number, queue)| {
        Some(format!(
            "cq {} {number} {}",
            holder(queue.client)?,
            queue.ring.capacity()
        ))
    });
    let regions = fabric.regions.iter().filter_map(|(key, region)| {
        Some(format!(
            "mr {} {key} {}",
            holder(region.client)?,
            region.span.length
        ))
    });
    let shared = fabric.shared.iter();
    let shared = shared
        .filter_map(|(number, queue)| Some(format!("srq {} {number}", holder(queue.client)?)));
    let mut text = String::new();
    let all = (fabric.clients.keys().filter_map(context))
        .chain(pairs)
        .chain(queues)
        .chain(regions)
        .chain(fabric.domains.iter().filter_map(domain))
        .chain(shared);
    for line in all.take(LINES_MAX) {
        writeln!(text, "{line}").expect("a text takes any line");
    }
    text
}
