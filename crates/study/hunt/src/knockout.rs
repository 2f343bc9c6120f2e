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
use std::collections::BTreeSet;

/// A finite resource of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mechanism {
    /// Its name in results.
    pub name: &'static str,
    /// What a person would change on a real device or host to get the same, in words.
    pub remedy: &'static str,
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
        removal: &[("microarchitecture", "receive_cache_bytes", AMPLE)],
    },
    Mechanism {
        name: "receive-window",
        remedy: "a device that reads long lists of receives one by one",
        removal: &[("microarchitecture", "receive_window_bytes", AMPLE)],
    },
    Mechanism {
        name: "request-cache",
        remedy: "a device that keeps more requests until their list is done",
        removal: &[("microarchitecture", "request_cache_bytes", AMPLE)],
    },
    Mechanism {
        name: "response-packets",
        remedy: "a device whose requester handles READ responses faster",
        removal: &[("microarchitecture", "response_packet_ns", Removal::To(0.1))],
    },
    Mechanism {
        name: "contexts",
        remedy: "a device with a larger cache of queue pair contexts",
        removal: &[("cache", "context_entries", AMPLE_CONTEXTS)],
    },
    Mechanism {
        name: "translations",
        remedy: "larger pages or fewer memory regions; or a device with a larger translation cache",
        removal: &[
            ("cache", "protection_entries", AMPLE_TRANSLATIONS),
            ("cache", "translation_entries", AMPLE_TRANSLATIONS),
        ],
    },
    Mechanism {
        name: "ordering",
        remedy: "PCIe relaxed ordering in the BIOS and in the flags of the memory regions",
        removal: &[("microarchitecture", "ordering_ns", Removal::To(0.0))],
    },
    Mechanism {
        name: "packet-contexts",
        remedy: "firmware in which packet processing is fully bidirectional",
        removal: &[("microarchitecture", "hot_requests", AMPLE)],
    },
    Mechanism {
        name: PACKET_MEMORY,
        remedy: "a device with more packet memory; or a smaller MTU",
        removal: &[("microarchitecture", "staging_bytes", AMPLE)],
    },
    Mechanism {
        name: "remote-socket",
        remedy: "buffers and threads on the NIC's own NUMA node (numactl --cpunodebind --membind)",
        removal: &[("microarchitecture", "remote_socket_gbps", AMPLE)],
    },
    Mechanism {
        name: "gpu-path",
        remedy: "PCIe ACS off on the switch between the GPU and the card, so that peer traffic stays below it",
        removal: &[("microarchitecture", "gpu_gbps", AMPLE)],
    },
    Mechanism {
        name: RECEIVE_QUEUES,
        remedy: "a device that caches more work requests of receive queues; or shorter receive queues",
        removal: &[("cache", "receive_wqe_entries", AMPLE_TRANSLATIONS)],
    },
    Mechanism {
        name: BUS,
        remedy: "a wider PCIe slot",
        removal: &[("pcie", "rate_gbps", Removal::Times(8.0))],
    },
    Mechanism {
        name: LOOPBACK_PATH,
        remedy: "no RDMA traffic inside a host beside traffic that arrives: shared memory, or a limit on the traffic inside",
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

    /// The experiment `point` with `seed` on the device without each mechanism.
    pub fn without_each(
        &self,
        point: &Point,
        seed: u64,
    ) -> Result<Vec<(Mechanism, Judgement)>, HuntError> {
        let mechanisms = self.mechanisms().filter(|one| one.concerns(point));
        let runs = mechanisms.map(|one| Ok((one, self.without(one, point, seed)?)));
        runs.collect()
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
    /// device.
    pub fn causes(
        &self,
        (point, symptom): (&Point, Symptom),
        seed: u64,
        shown: &BTreeSet<&str>,
    ) -> Result<Vec<Mechanism>, HuntError> {
        // Packet memory says whether the bus is a cause, so it runs before the bus.
        let is_first = |one: &Mechanism| {
            shown.contains(one.name) || one.name == PACKET_MEMORY && shown.contains(BUS)
        };
        let concern = self.mechanisms().filter(|one| one.concerns(point));
        let (first, others): (Vec<_>, Vec<_>) = concern.partition(is_first);
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
mod tests {
    use super::*;
    use crate::space::tests::profile;

    /// Many deep receive queues with a cache of receive queues so small that each lookup misses: the results differ only where
    /// the device has no other place for receives.
    #[test]
    fn the_cache_of_receive_queues_is_a_mechanism_only_where_it_is_used() {
        let point = Point {
            queue_pairs: 64,
            depth: 128,
            receive_depth: 256,
            ..crate::space::tests::plain()
        };
        let mut listed = Vec::new();
        for name in ["cx5-100g-roce", "cx6-200g-roce", "p2100-100g-roce"] {
            let (device, mut small) = (profile(name), profile(name));
            let cache = small.section_mut("cache").expect("every profile has it");
            cache.get_mut("receive_wqe_entries").unwrap().value = 16.0;
            let testbed = isolane_study_testbed_simulator::SimTestbed;
            let run = |device: &Profile| Lab::simulated(&testbed, device).measure(&point, 1);
            let is_used = run(&device).unwrap() != run(&small).unwrap();
            let bounds = crate::synthetic::bounds();
            let knockout = Knockout::of(&testbed, &device, &bounds);
            let is_listed = knockout.mechanisms().any(|one| one.name == RECEIVE_QUEUES);
            assert_eq!(is_listed, is_used, "{name}");
            listed.push(is_listed);
        }
        assert_eq!(listed, [true, false, false]);
    }

    fn trigger(anomaly: &str) -> Point {
        let all = crate::triggers::triggers();
        let trigger = all.iter().find(|one| one.anomaly == anomaly);
        trigger.expect("it was published").point.point()
    }

    /// The names of the causes of `symptom` of `point` on the device `name` with a link of `link_gbps`.
    fn causes_of(
        name: &str,
        (point, symptom): (&Point, Symptom),
        link_gbps: f64,
    ) -> Vec<&'static str> {
        let bounds = Bounds {
            link_gbps,
            packets_per_s: 1e9,
            services: Vec::new(),
        };
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let device = profile(name);
        let knockout = Knockout::of(&testbed, &device, &bounds);
        let causes = |shown| knockout.causes((point, symptom), 1, &shown).unwrap();
        let found = causes(BTreeSet::new());
        if let [only] = found.as_slice() {
            // With one cause, the order of the runs changes nothing.
            assert_eq!(causes(BTreeSet::from([only.name])), found);
            assert_eq!(causes(BTreeSet::from([BUS])), found);
        }
        found.into_iter().map(|one| one.name).collect()
    }

    /// Payload that is read twice fills the bus; a wider bus ends that too.
    #[test]
    fn what_packet_memory_does_to_the_bus_belongs_to_packet_memory() {
        let finding = (&trigger("14"), Symptom::LowThroughput);
        let causes = causes_of("p2100-100g-roce", finding, 100.0);
        assert_eq!(causes, [PACKET_MEMORY]);
    }

    /// Traffic inside the host and from the other one, all of it to GPU memory: either pauses the link.
    #[test]
    fn mechanisms_that_suffice_each_explain_a_finding_together() {
        let loopback = Point {
            queue_pairs: 4,
            post_list: 1,
            depth: 16,
            regions: 1,
            ..trigger("13")
        };
        let gpu = Point {
            memory_a: 2,
            ..loopback.clone()
        };
        let to_gpu = Point {
            direction: point::ONE_WAY,
            memory_b: 2,
            ..loopback.clone()
        };
        let of = |point| causes_of("cx6-200g-roce", (point, Symptom::PauseFrames), 200.0);
        assert_eq!(of(&loopback), [LOOPBACK_PATH]);
        assert_eq!(of(&to_gpu), ["gpu-path"]);
        let all = of(&gpu);
        assert!(all.len() > 10 && all.contains(&"gpu-path"), "{all:?}");
    }

    /// The link is 200 Gb/s fast, not the 400 Gb/s that the bounds say.
    #[test]
    fn what_stays_without_all_mechanisms_has_no_cause() {
        let point = crate::space::tests::plain();
        let finding = (&point, Symptom::LowThroughput);
        let causes = causes_of("cx6-200g-roce", finding, 400.0);
        assert_eq!(causes, Vec::<&str>::new());
    }

    #[test]
    fn a_device_without_what_does_not_concern_a_workload_does_the_same() {
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let bounds = crate::synthetic::bounds();
        let mut left_out = 0;
        for (name, anomalies) in [
            ("cx6-200g-roce", ["3", "9", "10"]),
            ("p2100-100g-roce", ["14", "15", "16"]),
        ] {
            let device = profile(name);
            let knockout = Knockout::of(&testbed, &device, &bounds);
            for point in anomalies.map(trigger) {
                let run = |device| Lab::simulated(&testbed, device).measure(&point, 1).unwrap();
                let with = run(&device);
                for (mechanism, without) in &knockout.without {
                    if !mechanism.concerns(&point) {
                        left_out += 1;
                        assert_eq!(
                            run(without).counters,
                            with.counters,
                            "{mechanism:?} {point:?}"
                        );
                    }
                }
            }
        }
        assert!(left_out > 12, "{left_out}");
    }

    #[test]
    fn a_device_is_named_without_what_it_does_not_have() {
        let bounds = crate::synthetic::bounds();
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let names = |name: &str| -> Vec<&str> {
            let knockout = Knockout::of(&testbed, &profile(name), &bounds);
            knockout.mechanisms().map(|one| one.name).collect()
        };
        let all = names("cx6-200g-roce");
        assert!(
            all.contains(&"ordering") && !all.contains(&"packet-memory"),
            "{all:?}"
        );
        let other = names("p2100-100g-roce");
        assert!(
            other.contains(&"packet-memory") && !other.contains(&"ordering"),
            "{other:?}"
        );
    }
}
