//! Rules that every point keeps, for any ranges of its features: what no application can post, and limits of memory.

use super::point::{self, Feature, Point};
use isolane_rdma_scenario::model::ATOMIC_BYTES;

/// Work requests in all send queues of one kind and direction: a simulated one takes some 50 B, an unreliable one four times
/// that, so that an experiment stays below 1 GB.
pub const WORK_REQUESTS_MAX: u64 = 1 << 20;
/// Bytes of all regions of one kind and direction at one end: a quarter of the smallest server's memory that the paper lists.
pub const MEMORY_MAX: u64 = 32 << 30;
/// Requests of one pair that arrive while a list of 128 receives is posted back, at most: 4 us at 30 M messages/s of one
/// process. With fewer receives a short queue meets none and waits for the receiver-not-ready timer, 159 ms.
const RECEIVES_ON_THE_WAY: u64 = 128;

/// A rule that a point breaks, in words.
pub type Broken = String;

/// Receives that a queue needs so that every request finds one: those of all outstanding requests, those of the list that
/// is not yet posted back, and those of the requests that arrive while it is posted.
pub(super) fn receives_least(point: &Point) -> u64 {
    point.depth + point.receive_batch + point.depth.min(RECEIVES_ON_THE_WAY)
}

/// The rules that hold for any ranges, of the first kind of `point`.
pub(super) fn rules(point: &Point) -> Result<(), Broken> {
    let broken = |holds: bool, rule: &dyn Fn() -> String| match holds {
        true => Ok(()),
        false => Err(rule()),
    };
    let p = point;
    broken(
        p.service != point::DATAGRAM || p.largest_request() <= p.mtu,
        &|| {
            let (request, mtu) = (p.largest_request(), p.mtu);
            format!("a UD request of {request} B does not fit one packet of mtu = {mtu} B")
        },
    )?;
    broken(p.post_list <= p.depth, &|| {
        let (list, depth) = (p.post_list, p.depth);
        format!("a list of post_list = {list} requests does not fit depth = {depth}")
    })?;
    broken(
        !p.has_receives() || p.receives == point::NEVER || p.receive_depth >= receives_least(p),
        &|| {
            format!(
                "receive_depth = {} is less than depth + receive_batch + min(depth, {RECEIVES_ON_THE_WAY}) = {}: \
                 requests would find no receive; raise receive_depth",
                p.receive_depth,
                receives_least(p)
            )
        },
    )?;
    broken(
        p.direction != point::LOOPBACK || p.queue_pairs >= 2 || p.second.is_some(),
        &|| "loopback needs 2 queue pairs: one to the own host, one from the other".to_owned(),
    )?;
    broken(p.queue_pairs * p.depth <= WORK_REQUESTS_MAX, &|| {
        format!(
            "{} queue pairs of depth {} have more than {WORK_REQUESTS_MAX} work requests",
            p.queue_pairs, p.depth
        )
    })?;
    broken(p.region_bytes >= Feature::Largest.of(p), &|| {
        format!(
            "region_bytes = {} does not hold an element of {} B",
            p.region_bytes,
            Feature::Largest.of(p)
        )
    })?;
    broken(
        p.regions.saturating_mul(p.region_bytes) <= MEMORY_MAX,
        &|| {
            format!(
                "{} regions of {} B are more than {} of memory",
                p.regions,
                p.region_bytes,
                point::size_text(MEMORY_MAX)
            )
        },
    )?;
    broken(Feature::Elements.of(p) > 0, &|| {
        "the pattern is empty".to_owned()
    })?;
    broken(
        p.service != point::ATOMIC || p.requests == point::atomic_pattern(),
        &|| format!("an atomic has one element of {} B", ATOMIC_BYTES),
    )
}
