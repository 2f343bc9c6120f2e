//! What a sound device reaches: the upper bounds that throughput is held against.
//!
//! The link's rate is known; the packet rate of small WRITEs, and for every service its own packet rate, the latency of one
//! message and the rate of one queue pair, are measured by simple benchmarks at the start of a hunt. The last two bound what an
//! application can offer: with n queue pairs in p processes no more than n windows per round trip, and no more than p times what one
//! process posts. Units: microseconds, messages and packets per second, Gb/s. Limits: an offer is an upper bound with a
//! factor for round trips under load, so a workload just above its window may pass for one that its own window limits; a
//! device that is slow with all small messages of a service counts as sound there.
//! Source: collie 3.5.2 (maximum bits and packets per second, "verified by running simple benchmarks"); the offer is
//! ours, because a workload of one message at a time is slow and no anomaly.

use crate::HuntError;
use crate::experiment::{Measured, Target};
use crate::space::benchmark::simple;
use crate::space::convert::{OUTSTANDING_READS, PROCESSES};
use crate::space::point::{self, Feature, ORDINARY_SERVICES, Point};
use crate::space::{Allowed, Space};
use isolane_rdma_scenario::profile::Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Round trips under load in units of idle ones, before a window counts as sufficient.
const LOADED: f64 = 2.0;
/// The longer of the two lists with which the cost of posting is taken apart.
const LIST: u64 = 32;
/// Queue pairs of the benchmarks of which the fastest gives a service's packet rate: few pairs may not fill the device, and many may
/// not fit its caches.
const PAIRS: [u64; 3] = [4, 16, 64];

/// What one service does at its best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceBound {
    /// Time of one small message alone, microseconds.
    pub latency_us: f64,
    /// Messages per second of one queue pair that rings once per message.
    pub single_per_s: f64,
    /// The same with lists.
    pub listed_per_s: f64,
    /// Packets per second of several queue pairs with lists; absent in results of versions that did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_s: Option<f64>,
}

/// Upper bounds of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// Of the link, headers included, each direction.
    pub link_gbps: f64,
    /// Of the device, each direction.
    pub packets_per_s: f64,
    /// By service; absent where the searched space does not have it.
    pub services: Vec<Option<ServiceBound>>,
}

impl Bounds {
    /// Runs the benchmarks of the services in `space` on `target`, a device of `profile`. Fails if a run fails or moves nothing.
    pub fn measure(
        target: &dyn Target,
        profile: &Profile,
        space: &Space,
        seed: u64,
    ) -> Result<Self, HuntError> {
        let run = |point: &Point, benchmark: &'static str| {
            let measured = target.measure(point, seed)?;
            match measured.messages_per_s > 0.0 {
                true => Ok(measured),
                false => Err(HuntError::NoBound {
                    target: target.name().to_owned(),
                    benchmark,
                }),
            }
        };
        // No more pairs than the space has: each process of a benchmark takes seconds to start on a slow machine.
        let pairs = |count: u64| space.allowed(Feature::QueuePairs).nearest(count);
        let many = simple(0, pairs(4 * PROCESSES), LIST);
        let packets: Measured = run(&many, "of small messages")?;
        let services = (0..ORDINARY_SERVICES).map(|service| {
            let first = space.allowed(Feature::Service).has(service);
            if !first && !space.allowed(Feature::Second).has(service + 1) {
                return Ok(None);
            }
            let alone = Feature::Depth.set(&simple(service, 1, 1), 1);
            let latency = run(&alone, "of one message at a time")?;
            let single = run(&simple(service, 1, 1), "of one queue pair")?;
            let listed = run(&simple(service, 1, LIST), "of one queue pair with lists")?;
            let mut packets_per_s = 0.0f64;
            for count in BTreeSet::from(PAIRS.map(pairs)) {
                let several = run(&simple(service, count, LIST), "of several queue pairs")?;
                packets_per_s = packets_per_s.max(several.slowest.packets_per_s);
            }
            Ok(Some(ServiceBound {
                packets_per_s: (packets_per_s > 0.0).then_some(packets_per_s),
                latency_us: 1e6 / latency.messages_per_s,
                single_per_s: single.messages_per_s,
                listed_per_s: listed.messages_per_s,
            }))
        });
        Ok(Self {
            link_gbps: profile.value("link", "rate_gbps"),
            packets_per_s: packets.slowest.packets_per_s,
            services: services.collect::<Result<_, HuntError>>()?,
        })
    }

    /// These bounds with those of the services of `target`, a device of `profile`, that were not measured. Fails as
    /// [`Bounds::measure`] does.
    pub fn completed(
        &self,
        target: &dyn Target,
        profile: &Profile,
        seed: u64,
    ) -> Result<Self, HuntError> {
        let mut space = Space::of(profile);
        let mut missing = space.allowed(Feature::Service).grid();
        missing.retain(|&service| self.services.get(service as usize) == Some(&None));
        let mut all = self.clone();
        if missing.is_empty() {
            return Ok(all);
        }
        space.narrow(Feature::Service, Allowed::Set(missing));
        let measured = Self::measure(target, profile, &space, seed)?;
        for (known, new) in all.services.iter_mut().zip(measured.services) {
            *known = known.or(new);
        }
        Ok(all)
    }

    /// Packets per second that a device reaches with the service of `point`: at most those of WRITEs, since a service whose messages
    /// take longer has fewer. Where both hosts READ, a port also receives the other host's requests, so those of WRITEs.
    pub fn packets_per_s_of(&self, point: &Point) -> f64 {
        if point.service == point::READ && point.direction == point::BIDIRECTIONAL {
            return self.packets_per_s;
        }
        let service = self.services.get(point.service as usize).copied();
        let own = service.flatten().and_then(|service| service.packets_per_s);
        own.map_or(self.packets_per_s, |own| own.min(self.packets_per_s))
    }

    /// The packet bound of each kind of traffic of `point`. Kinds whose data flows in one direction share the lower bound. Where both
    /// READ and their data crosses, a port also receives the other host's requests, so the bound is that of WRITEs.
    pub fn packets_per_s_of_parts(&self, point: &Point) -> Vec<f64> {
        let parts = point.parts();
        let mut own: Vec<f64> = parts.iter().map(|p| self.packets_per_s_of(p)).collect();
        let Some([first, second]) = parts.first_chunk() else {
            return own;
        };
        let reads = parts.iter().all(|part| part.service == point::READ);
        match (first.data_flows_to(), second.data_flows_to()) {
            (one, other) if one == other => {
                let lower = own[0].min(own[1]);
                own.fill(lower);
            }
            _ if reads => own.fill(self.packets_per_s),
            _ => {}
        }
        own
    }

    /// Messages per second that `point` can offer at most, all directions together; none where its service was not
    /// measured.
    pub fn offer_per_s(&self, point: &Point) -> Option<f64> {
        let service = (*self.services.get(point.service as usize)?)?;
        let request_s = point.mean_request() * 8.0 / (self.link_gbps * 1e9);
        let window = match point.service {
            point::READ => point.depth.min(u64::from(OUTSTANDING_READS)),
            _ => point.depth,
        };
        // A list is posted when it fits the queue, so one list drains while the round trip lasts.
        let cycle_s =
            LOADED * service.latency_us * 1e-6 + point.post_list.min(window) as f64 * request_s;
        let by_windows = point.queue_pairs as f64 * window as f64 / cycle_s;
        let processes = point.queue_pairs.min(PROCESSES) as f64;
        let by_posting = processes / service.post_s(point.post_list);
        let directions = if point.direction == point::BIDIRECTIONAL {
            2.0
        } else {
            1.0
        };
        Some(by_windows.min(by_posting) * directions)
    }
}

impl ServiceBound {
    /// Seconds per message of one process that rings once per `list` messages: a part per message and a part per
    /// ring, solved from the two measured rates.
    fn post_s(&self, list: u64) -> f64 {
        let (single, listed) = (1.0 / self.single_per_s, 1.0 / self.listed_per_s);
        let ring = ((single - listed) / (1.0 - 1.0 / LIST as f64)).max(0.0);
        let message = (single - ring).max(0.0);
        message + ring / list as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            link_gbps: 100.0,
            packets_per_s: 1e8,
            services: vec![Some(ServiceBound {
                latency_us: 1.0,
                single_per_s: 1e7,
                listed_per_s: 2e7,
                packets_per_s: None,
            })],
        }
    }

    #[test]
    fn one_message_at_a_time_offers_one_per_loaded_round_trip() {
        let alone = Feature::Depth.set(&simple(0, 1, 1), 1);
        let request_us = 64.0 * 8.0 / 100e3;
        let expected = 1e6 / (LOADED + request_us);
        let offer = bounds().offer_per_s(&alone).unwrap();
        assert!((offer / expected - 1.0).abs() < 1e-9, "{offer} {expected}");
    }

    /// Each service costs six runs, which take seconds each on real devices.
    #[test]
    fn only_services_of_the_space_are_measured() {
        let profile = crate::space::tests::profile("cx5-100g-roce");
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let lab = crate::experiment::Lab::simulated(&testbed, &profile);
        let all = Space::of(&profile);
        let sends = "service = \"rc-send\"\nsecond = [\"none\", \"ud-send\"]\n";
        let few = all.clone().with_two_kinds().restricted(sends, "test");
        let of = |space: &Space| Bounds::measure(&lab, &profile, space, 1).unwrap();
        let (all, few) = (of(&all), of(&few.unwrap()));
        let kept = few.services.iter().map(Option::is_some);
        assert!(kept.eq([false, true, false, false, false, true]));
        assert_eq!(
            (few.services[1], few.services[5]),
            (all.services[1], all.services[5])
        );
        assert_eq!(few.packets_per_s, all.packets_per_s);
        assert_eq!(few.completed(&lab, &profile, 1).unwrap(), all);
    }

    #[test]
    fn kinds_of_traffic_share_the_lower_packet_bound_of_their_direction() {
        let service = |packets_per_s: f64| {
            let mut service = bounds().services[0].unwrap();
            service.packets_per_s = Some(packets_per_s);
            Some(service)
        };
        let bounds = Bounds {
            services: vec![service(1e8), service(9e7), service(6e7)],
            ..bounds()
        };
        let of = |direction: u64, first: u64, second: u64| {
            let both = simple(first, 4, 1).beside(&simple(second, 4, 1));
            bounds.packets_per_s_of_parts(&Feature::Direction.set(&both, direction))
        };
        assert_eq!(of(point::ONE_WAY, 0, 1), [9e7, 9e7]);
        // READs that A posts bring their data to A, as WRITEs that B posts do.
        assert_eq!(of(point::ONE_WAY, 0, 2), [1e8, 6e7]);
        assert_eq!(of(point::BIDIRECTIONAL, 0, 2), [6e7, 6e7]);
        assert_eq!(of(point::BIDIRECTIONAL, 2, 2), [1e8, 1e8]);
        assert_eq!(bounds.packets_per_s_of_parts(&simple(2, 4, 1)), [6e7]);
    }

    #[test]
    fn deep_queues_offer_what_their_processes_post() {
        for (pairs, list, expected) in [(1, 1, 1e7), (1, LIST, 2e7), (64, 1, 16e7)] {
            let offer = bounds().offer_per_s(&simple(0, pairs, list)).unwrap();
            assert!(
                (offer / expected - 1.0).abs() < 1e-9,
                "{pairs} {list}: {offer}"
            );
        }
        assert_eq!(bounds().offer_per_s(&simple(1, 1, 1)), None);
    }

    /// A READ takes the device 30 ns and a WRITE 20 ns, so small READs never reach the packet rate of WRITEs.
    #[test]
    fn many_small_reads_are_held_against_the_rate_of_reads() {
        let profile = crate::space::tests::profile("p2100-100g-roce");
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let lab = crate::experiment::Lab::simulated(&testbed, &profile);
        let bounds = Bounds::measure(&lab, &profile, &Space::of(&profile), 1).unwrap();
        let reads = simple(point::READ, 32, 8);
        let of = |point: &Point| bounds.packets_per_s_of(point) / bounds.packets_per_s;
        assert!((of(&simple(0, 32, 8)) - 1.0).abs() < 0.02);
        assert!((0.6..0.75).contains(&of(&reads)), "{}", of(&reads));
        let judged = |bounds: &Bounds| {
            let measured = lab.measure(&reads, 1).unwrap();
            crate::monitor::judge(&reads, &measured, bounds).symptom
        };
        assert_eq!(judged(&bounds), None);
        let writes_alone = Bounds {
            services: Vec::new(),
            ..bounds
        };
        assert!(judged(&writes_alone).is_some());
    }
}
