//! Mechanisms of a simulated device, and which of them a finding belongs to: the one whose removal ends its symptom.
//!
//! Problem: published conditions say that a finding meets them, not that it is the same anomaly, and a searcher may be tuned to
//! them. Method: every mechanism of the model is a finite resource with parameters in the profile. A device *without* a
//! mechanism has so much of the resource that it never runs out. The path inside the device has no such parameter: without it the
//! same traffic arrives from the other host alone. An experiment is repeated on each of these devices with the
//! same random numbers and the same bounds; the mechanisms whose removal ends the symptom are its causes. A finding
//! with one cause belongs to that mechanism. One with several needs them together, and one with none is either explained
//! by several mechanisms that each suffice, or by none of the list. Limits: mechanisms of the model, not of a real device.
//! Source: ours; the same is done with genes.

use crate::HuntError;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::monitor::{Judgement, Symptom, judge};
use crate::space::point::{self, Point};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;

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

/// The path from a host to itself, which shares the receive buffer with the wire.
const LOOPBACK_PATH: &str = "loopback";

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
        removal: &[("cache", "context_entries", AMPLE)],
    },
    Mechanism {
        name: "translations",
        remedy: "larger pages or fewer memory regions; or a device with a larger translation cache",
        removal: &[
            ("cache", "protection_entries", AMPLE),
            ("cache", "translation_entries", AMPLE),
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
        removal: &[("microarchitecture", "hot_contexts", AMPLE)],
    },
    Mechanism {
        name: "packet-memory",
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
        name: "receive-queue-cache",
        remedy: "a device that caches more work requests of receive queues; or shorter receive queues",
        removal: &[("cache", "receive_wqe_entries", AMPLE)],
    },
    Mechanism {
        name: "pcie",
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
}

/// A simulated device and itself without each of its mechanisms.
pub struct Knockout<'a> {
    testbed: &'a dyn Testbed,
    bounds: &'a Bounds,
    without: Vec<(Mechanism, Profile)>,
}

impl<'a> Knockout<'a> {
    /// Of the device of `profile`, whose experiments are held against `bounds`.
    pub fn of(testbed: &'a dyn Testbed, profile: &Profile, bounds: &'a Bounds) -> Self {
        let without = MECHANISMS.into_iter().filter_map(|mechanism| {
            let device = mechanism.removed(profile)?;
            Some((mechanism, device))
        });
        Self {
            testbed,
            bounds,
            without: without.collect(),
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
        let mut runs = Vec::new();
        for (mechanism, device) in &self.without {
            let point = match mechanism.name {
                LOOPBACK_PATH if point.direction != point::LOOPBACK => continue,
                LOOPBACK_PATH => &from_the_other_host(point),
                _ => point,
            };
            let measured = Lab::simulated(self.testbed, device).measure(point, seed)?;
            runs.push((*mechanism, judge(point, &measured, self.bounds)));
        }
        Ok(runs)
    }

    /// The mechanisms whose removal ends `symptom` of `point` in an experiment with `seed`.
    pub fn causes(
        &self,
        point: &Point,
        symptom: Symptom,
        seed: u64,
    ) -> Result<Vec<Mechanism>, HuntError> {
        let runs = self.without_each(point, seed)?.into_iter();
        let ended = runs.filter(|(_, judged)| judged.symptom != Some(symptom));
        Ok(ended.map(|(mechanism, _)| mechanism).collect())
    }
}

/// The loopback workload `point` with all of its traffic from the other host: hosts change places, so that data flows to host B.
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
