//! Mechanisms of a simulated device, and which of them a finding belongs to: the one whose removal ends its symptom.
//!
//! Problem: published conditions say that a finding meets them, not that it is the same anomaly, and a searcher may be
//! tuned to them. Method: every mechanism of the model is a finite resource with parameters in the profile. A device
//! *without* a mechanism has so much of the resource that it never runs out. The path inside the device has no such
//! parameter: without it the same traffic arrives from the other host alone. An experiment is repeated on each of these
//! devices with the same random numbers and the same bounds; the mechanisms whose removal ends the symptom are its
//! causes. A finding with one cause belongs to that mechanism. A finding with several causes needs them together. Where no
//! single removal ends the symptom, all mechanisms are removed at once: if that ends it, several suffice each; otherwise
//! none explains the finding.
//!
//! Packet memory acts only by loading the bus, so a wider bus ends what packet memory causes. The bus is therefore no cause
//! where packet memory is one. Limits: mechanisms of the model, not of a real device. Source: ours; the same is done with
//! genes.

use crate::HuntError;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::monitor::{Judgement, Symptom, judge};
use crate::space::point::{self, Point};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use std::collections::{BTreeMap, BTreeSet};

/// A finite resource of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mechanism {
    /// Its name in results.
    pub name: &'static str,
    /// What a person would change on a real device or host to get the same, in words.
    pub remedy: &'static str,
    /// Counters that say how much of it a workload uses, 0 to 1; none where the model has no such counter.
    uses: &'static [&'static str],
    /// Section and parameter, and the factor or value that takes the limit away.
    removal: &'static [(&'static str, &'static str, Removal)],
}

/// How a parameter loses its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Removal {
    /// So many times as much.
    Times(f64),
    /// This value.
    To(f64),
}

/// A resource so much larger that nothing in the space of workloads fills it.
const AMPLE: Removal = Removal::Times(1e4);
/// Entries of a cache that holds more than what the largest workload uses: 20,000 pairs or 200,000 regions in each direction of two
/// kinds of traffic, at both ends. A simulated device costs memory for each entry.
const AMPLE_CONTEXTS: Removal = Removal::To((1u64 << 20) as f64);
const AMPLE_TRANSLATIONS: Removal = Removal::To((1u64 << 22) as f64);

/// What memory of the other socket and of a GPU is called in a point.
const REMOTE_SOCKET: u64 = 1;
const GPU: u64 = 2;

/// The path from a host to itself, which shares the receive buffer with the wire.
const LOOPBACK_PATH: &str = "loopback";
/// The cache of receive queues. A device with `receive_cache_bytes` never looks into it.
const RECEIVE_QUEUES: &str = "receive-queue-cache";
/// The bus.
const BUS: &str = "pcie";
/// Where packet memory does not suffice, payload crosses the bus twice, and nothing else changes.
const PACKET_MEMORY: &str = "packet-memory";

/// All mechanisms of the model that a workload alone may run into.
pub const MECHANISMS: [Mechanism; 14] = [
    Mechanism {
        name: "receive-cache",
        remedy: "a device that keeps more receive requests",
        uses: &["receive_cache_peak_ratio"],
        removal: &[("microarchitecture", "receive_cache_bytes", AMPLE)],
    },
    Mechanism {
        name: "receive-window",
        remedy: "a device that reads long lists of receives one by one",
        uses: &["receive_wqe_miss_ratio"],
        removal: &[("microarchitecture", "receive_window_bytes", AMPLE)],
    },
    Mechanism {
        name: "request-cache",
        remedy: "a device that keeps more requests until their list is done",
        uses: &["request_cache_peak_ratio"],
        removal: &[("microarchitecture", "request_cache_bytes", AMPLE)],
    },
    Mechanism {
        name: "response-packets",
        remedy: "a device whose requester handles READ responses faster",
        uses: &[],
        removal: &[("microarchitecture", "response_packet_ns", Removal::To(0.1))],
    },
    Mechanism {
        name: "contexts",
        remedy: "a device with a larger cache of queue pair contexts",
        uses: &["icm_miss_ratio"],
        removal: &[("cache", "context_entries", AMPLE_CONTEXTS)],
    },
    Mechanism {
        name: "translations",
        remedy: "larger pages or fewer memory regions; or a device with a larger translation cache",
        uses: &["mtt_miss_ratio", "mpt_miss_ratio"],
        removal: &[
            ("cache", "protection_entries", AMPLE_TRANSLATIONS),
            ("cache", "translation_entries", AMPLE_TRANSLATIONS),
        ],
    },
    Mechanism {
        name: "ordering",
        remedy: "PCIe relaxed ordering in the BIOS and in the flags of the memory regions",
        uses: &[],
        removal: &[("microarchitecture", "ordering_ns", Removal::To(0.0))],
    },
    Mechanism {
        name: "packet-contexts",
        remedy: "firmware in which packet processing is fully bidirectional",
        uses: &[],
        removal: &[("microarchitecture", "hot_requests", AMPLE)],
    },
    Mechanism {
        name: PACKET_MEMORY,
        remedy: "a device with more packet memory; or a smaller MTU",
        // It acts by loading the bus, so it is used at least as much.
        uses: &[
            "packet_memory_ratio",
            "pcie_to_nic_utilisation",
            "pcie_to_host_utilisation",
        ],
        removal: &[("microarchitecture", "staging_bytes", AMPLE)],
    },
    Mechanism {
        name: "remote-socket",
        remedy: "buffers and threads on the RNIC's own NUMA node (numactl --cpunodebind --membind)",
        uses: &["remote_socket_utilisation"],
        removal: &[("microarchitecture", "remote_socket_gbps", AMPLE)],
    },
    Mechanism {
        name: "gpu-path",
        remedy: "PCIe ACS off on the switch between the GPU and the card, so that peer traffic stays below it",
        uses: &["gpu_path_utilisation"],
        removal: &[("microarchitecture", "gpu_gbps", AMPLE)],
    },
    Mechanism {
        name: RECEIVE_QUEUES,
        remedy: "a device that caches more work requests of receive queues; or shorter receive queues",
        uses: &["receive_wqe_miss_ratio"],
        removal: &[("cache", "receive_wqe_entries", AMPLE_TRANSLATIONS)],
    },
    Mechanism {
        name: BUS,
        remedy: "a wider PCIe slot",
        uses: &["pcie_to_nic_utilisation", "pcie_to_host_utilisation"],
        removal: &[("pcie", "rate_gbps", Removal::Times(8.0))],
    },
    Mechanism {
        name: LOOPBACK_PATH,
        remedy: "no RDMA traffic inside a host beside traffic that arrives: shared memory, or a limit on the traffic inside",
        uses: &[],
        removal: &[],
    },
];

impl Mechanism {
    /// The device without it; none where `profile` does not have it.
    fn removed(&self, profile: &Profile) -> Option<Profile> {
        if self.name == RECEIVE_QUEUES && profile.micro("receive_cache_bytes") > 0.0 {
            return None;
        }
        let mut without = profile.clone();
        for (section, name, removal) in self.removal {
            let parameter = without.section_mut(section)?.get_mut(*name)?;
            if parameter.value == 0.0 {
                return None;
            }
            parameter.value = match removal {
                Removal::Times(times) => parameter.value * times,
                Removal::To(value) => *value,
            };
        }
        Some(without)
    }

    /// Which part of it a workload with these `counters` used, 0 to 1.
    fn used(&self, counters: &BTreeMap<String, f64>) -> f64 {
        let parts = self.uses.iter();
        let parts = parts.map(|name| counters.get(*name).copied().unwrap_or(0.0));
        parts.reduce(f64::max).unwrap_or(UNCOUNTED_USE)
    }

    /// Whether the workload `point` can use it at all; without it, the device does exactly the same for another workload.
    fn concerns(&self, point: &Point) -> bool {
        let any = |is: fn(&Point) -> bool| point.parts().iter().any(is);
        let memory = |place: u64| [point.memory_a, point.memory_b].contains(&place);
        match self.name {
            "receive-cache" | "receive-window" | RECEIVE_QUEUES => any(Point::has_receives),
            "response-packets" => any(|part| part.service == point::READ),
            "ordering" => any(|part| part.requests.iter().any(|one| one.len() > 1)),
            "remote-socket" => memory(REMOTE_SOCKET),
            "gpu-path" => memory(GPU),
            LOOPBACK_PATH => point.direction == point::LOOPBACK,
            _ => true,
        }
    }
}

/// What counts as the use of a mechanism without a counter: behind resources that are used up, before those that are hardly used.
const UNCOUNTED_USE: f64 = 0.5;

/// A simulated device and itself without each of its mechanisms.
pub struct Knockout<'a> {
    testbed: &'a dyn Testbed,
    bounds: &'a Bounds,
    without: Vec<(Mechanism, Profile)>,
    without_all: Profile,
}

impl<'a> Knockout<'a> {
    /// Of the device of `profile`, whose experiments are held against `bounds`.
    pub fn of(testbed: &'a dyn Testbed, profile: &Profile, bounds: &'a Bounds) -> Self {
        let mut without = Vec::new();
        let mut without_all = profile.clone();
        for mechanism in MECHANISMS {
            if let Some(device) = mechanism.removed(profile) {
                without.push((mechanism, device));
                without_all = mechanism
                    .removed(&without_all)
                    .expect("no two mechanisms share a parameter");
            }
        }
        Self {
            testbed,
            bounds,
            without,
            without_all,
        }
    }

    /// The mechanisms of the device.
    pub fn mechanisms(&self) -> impl Iterator<Item = Mechanism> {
        self.without.iter().map(|(mechanism, _)| *mechanism)
    }

    /// The mechanisms of the device that the workload `point` can use.
    pub fn concerning(&self, point: &Point) -> impl Iterator<Item = Mechanism> {
        self.mechanisms().filter(|one| one.concerns(point))
    }

    /// The experiment `point` with `seed` on the device without `mechanism`, one of [`Self::mechanisms`].
    pub fn without(
        &self,
        mechanism: Mechanism,
        point: &Point,
        seed: u64,
    ) -> Result<Judgement, HuntError> {
        let mut all = self.without.iter();
        let (_, device) = all
            .find(|(one, _)| one.name == mechanism.name)
            .expect("it is a mechanism of this device");
        self.judged(device, mechanism.name == LOOPBACK_PATH, (point, seed))
    }

    /// The experiment `point` with a seed on `device`; with `elsewhere` traffic inside a host comes from the other host.
    fn judged(
        &self,
        device: &Profile,
        elsewhere: bool,
        (point, seed): (&Point, u64),
    ) -> Result<Judgement, HuntError> {
        let point = match elsewhere && point.direction == point::LOOPBACK {
            true => &from_the_other_host(point),
            false => point,
        };
        let measured = Lab::simulated(self.testbed, device).measure(point, seed)?;
        Ok(judge(point, &measured, self.bounds))
    }

    /// Enough of the mechanisms whose removal alone ends `symptom` of `point` in an experiment with `seed` to say what it belongs to: one
    /// of those that other findings have `shown` already, or else at most two. Where none does and the removal of all does, all of the
    /// device. The `counters` of the experiment say which mechanisms it used: the most used one is removed first, an unused one never.
    pub fn causes(
        &self,
        (point, symptom): (&Point, Symptom),
        seed: u64,
        shown: &BTreeSet<&str>,
        counters: &BTreeMap<String, f64>,
    ) -> Result<Vec<Mechanism>, HuntError> {
        // Packet memory says whether the bus is a cause, so it runs before the bus; it is before the bus in the list, too.
        let is_first = |one: &Mechanism| {
            shown.contains(one.name) || one.name == PACKET_MEMORY && shown.contains(BUS)
        };
        let mut concern: Vec<Mechanism> = self
            .concerning(point)
            .filter(|one| one.used(counters) > 0.0)
            .collect();
        concern.sort_by(|one, other| other.used(counters).total_cmp(&one.used(counters)));
        let (first, others): (Vec<_>, Vec<_>) = concern.into_iter().partition(is_first);
        let mut causes: Vec<Mechanism> = Vec::new();
        for one in first.into_iter().chain(others) {
            let is_packet_memory = causes.iter().any(|cause| cause.name == PACKET_MEMORY);
            if one.name == BUS && is_packet_memory {
                continue;
            }
            if self.without(one, point, seed)?.symptom != Some(symptom) {
                causes.push(one);
                if shown.contains(one.name) || causes.len() > 1 {
                    return Ok(causes);
                }
            }
        }
        if causes.is_empty() {
            let judged = self.judged(&self.without_all, true, (point, seed))?;
            if judged.symptom != Some(symptom) {
                causes = self.mechanisms().collect();
            }
        }
        Ok(causes)
    }
}

/// The loopback workload `point` with all of its traffic from the other host: hosts change places, so that data flows to host B;
/// both kinds of traffic where it has two.
fn from_the_other_host(point: &Point) -> Point {
    Point {
        direction: point::ONE_WAY,
        memory_a: point.memory_b,
        memory_b: point.memory_a,
        ..point.clone()
    }
}

#[cfg(test)]
mod tests;
