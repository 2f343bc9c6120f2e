//! The tenants, classes and rates of a run.

use isolane_rpc::quota::settings::{Settings, parse};
use std::net::SocketAddr;

/// The group of destinations.
pub(super) const GROUP: &str = "rack1";
/// Classes and their weights; the last one has no pool.
pub(super) const CLASSES: [(&str, u32); 3] = [("critical", 8), ("normal", 4), ("scavenger", 1)];
/// The tenant of each client.
pub(super) const CLIENTS: [&str; 5] = ["search", "search", "ads", "ads", "batch"];
/// Tenants and their guarantees in the highest class by the file, bits per second, of a bound of 352 Mb/s.
pub(super) const TENANTS: [(&str, u64); 3] =
    [("search", 100_000_000), ("ads", 50_000_000), ("batch", 0)];

/// The settings of a server over the etcd at `etcd`.
pub(super) fn settings(etcd: SocketAddr, prefix: &str, term_ms: u64) -> String {
    let classes: String = CLASSES
        .iter()
        .map(|(name, weight)| format!("[[class]]\nname = \"{name}\"\nweight = {weight}\n"))
        .collect();
    let tenants = TENANTS.iter().flat_map(|(name, guarantee)| {
        let pools = CLASSES[..CLASSES.len() - 1].iter().enumerate();
        pools.map(move |(place, (class, _))| {
            let guarantee = match (place, guarantee) {
                (0, 1..) => format!("guarantee = \"{guarantee}b/s\"\n"),
                _ => String::new(),
            };
            format!(
                "[[tenant]]\nname = \"{name}\"\ngroup = \"{GROUP}\"\nclass = \"{class}\"\n{guarantee}"
            )
        })
    });
    let tenants: String = tenants.collect();
    format!(
        "listen = \"127.0.0.1:0\"\nterm = \"{term_ms}ms\"\netcd = \"{etcd}\"\netcd_prefix = \"{prefix}\"\n{classes}\
         [[group]]\nname = \"{GROUP}\"\nline_rate = \"1Gb/s\"\nload = 0.8\nburst = 1.4\n{tenants}"
    )
}

/// Names and bounds of the pools, bytes per second, in the order of [`CLASSES`].
pub(super) fn pools() -> Vec<(String, u64)> {
    let text = settings(SocketAddr::from(([127, 0, 0, 1], 1)), "/x", 1_000);
    let Settings { pools, .. } = parse("settings", &text).expect("valid settings");
    let pools = pools.iter();
    pools
        .map(|(_, class, bound)| (class.clone(), bound.bytes_per_s()))
        .collect()
}
