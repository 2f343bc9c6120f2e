//! Containers: cgroups with weights, and the queues that each may use.
//!
//! Method: the policy [`pools::divide`] gives each container queues in proportion to its weight. The programs in the
//! kernel restrict its flows to these queues and divide its weight among the backlogged flows, so a container gains
//! nothing by opening more flows. A program at each container's cgroup notes its flows, so that they keep their container
//! after routing. The children of a slice change; the controller calls [`Containers::refresh`]. Units:
//! weights as in `cpu.weight`, 1 to 10,000. Limits: version 2 cgroups only, because the kernel identifies a socket only
//! by these; at most 256.

use crate::error::NicError;
use crate::options::{CGROUP_WEIGHT_DEFAULT, Options, flow_weight};
use crate::system::System;
use isolane_ethernet_bpf::{Dqa, EbpfError, QueueSnapshot};
use isolane_ethernet_policy::titan::{QueueSet, pools};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// A cgroup with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Container {
    /// Path below the version 2 hierarchy.
    pub path: String,
    /// The kernel's cgroup id.
    pub cgroup: u64,
    /// Weight, 1 to 10,000.
    pub weight: u32,
}

/// A container whose cgroup takes no program of ours. Its routed flows weigh one each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct NotCarried {
    /// Path below the version 2 hierarchy.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// The containers in the programs' maps.
#[derive(Clone, Debug, Default)]
pub struct Containers {
    known: BTreeMap<u64, (u32, QueueSet)>,
    refused: BTreeMap<String, String>,
}

impl Containers {
    /// Updates the programs: `now` are the containers, `queues` the queues to divide among them. A cgroup that takes no
    /// program of ours, or for which the programs' maps have no place, is tried again at the next call;
    /// [`Containers::refused`] has it.
    pub fn refresh(
        &mut self,
        system: &System,
        dqa: &mut Dqa,
        now: &[Container],
        queues: QueueSet,
    ) -> Result<(), NicError> {
        let weights: Vec<u32> = now.iter().map(|container| container.weight).collect();
        let sets = pools::divide(&weights, queues);
        let mut wanted: BTreeMap<u64, (u32, QueueSet)> = now
            .iter()
            .zip(sets)
            .map(|(container, set)| (container.cgroup, (flow_weight(container.weight), set)))
            .collect();
        // An earlier controller may have known others.
        let known = self.known.keys().copied().chain(dqa.carried());
        for cgroup in known.filter(|cgroup| !wanted.contains_key(cgroup)) {
            dqa.remove_container(cgroup)?;
        }
        self.refused.clear();
        for container in now {
            let wants = wanted.get(&container.cgroup).copied();
            let Some((weight, set)) =
                wants.filter(|wants| self.known.get(&container.cgroup) != Some(wants))
            else {
                continue;
            };
            match dqa.set_container(container.cgroup, weight, set) {
                // The others keep their weights.
                Err(error @ EbpfError::Containers { .. }) => {
                    wanted.remove(&container.cgroup);
                    self.refused
                        .insert(container.path.clone(), error.to_string());
                }
                done => done?,
            }
        }
        let uncarried =
            |one: &&Container| wanted.contains_key(&one.cgroup) && !dqa.carries(one.cgroup);
        for container in now.iter().filter(uncarried) {
            // A cgroup that cannot be opened has just ended.
            if let Ok(directory) = File::open(system.cgroups().path(&container.path))
                && let Err(error) = dqa.carry(container.cgroup, directory.as_fd())
            {
                let path = container.path.clone();
                self.refused.insert(path, error.to_string());
            }
        }
        self.known = wanted;
        Ok(())
    }

    /// The paths of the containers whose cgroup took no program of ours at the last refresh, each with the reason.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// The weight of each queue for the card: its container's weight, independent of the number of flows.
    pub fn loads(&self, queues: &[QueueSnapshot]) -> Vec<u64> {
        let holders: Vec<(u32, QueueSet)> = self.known.values().copied().collect();
        let flows: Vec<u32> = queues.iter().map(|queue| queue.flows).collect();
        let own: Vec<u64> = queues.iter().map(|queue| queue.weight).collect();
        pools::loads(&holders, &flows, &own)
    }
}

/// The containers whose cgroup has no program of ours; `refused` are the reasons that a controller noted.
pub fn not_carried(
    dqa: &Dqa,
    now: &[Container],
    refused: &BTreeMap<String, String>,
) -> Vec<NotCarried> {
    let common = dqa.check_carry().err().map(|error| error.to_string());
    let reason = |path: &String| {
        let noted = common.as_ref().or_else(|| refused.get(path));
        noted.map_or("no controller has tried yet", String::as_str)
    };
    now.iter()
        .filter(|one| !dqa.carries(one.cgroup))
        .map(|one| NotCarried {
            path: one.path.clone(),
            reason: reason(&one.path).to_owned(),
        })
        .collect()
}

/// Checks that the slice and the containers of `options` exist, before an attachment. Fails with [`NicError::Value`]
/// for a path that is not a cgroup.
pub fn check(system: &System, options: &Options) -> Result<(), NicError> {
    let named = options.containers.iter().map(|named| named.path.clone());
    let mut paths = options
        .slice
        .as_deref()
        .map(rooted)
        .into_iter()
        .chain(named);
    match paths.find(|path| number(system, path).is_none()) {
        Some(path) => Err(absent(&path)),
        None => Ok(()),
    }
}

/// The containers of `options` that exist now, each once, in order of their paths: named ones end and return while a
/// device is attached.
pub fn list(system: &System, options: &Options) -> Vec<Container> {
    let mut found = BTreeMap::new();
    if let Some(slice) = options.slice.as_deref().map(rooted) {
        for name in system.cgroups().list(&slice) {
            let path = format!("{}/{name}", slice.trim_end_matches('/'));
            let weight = system.cgroups().number(&format!("{path}/cpu.weight"));
            let weight = weight.and_then(|weight| u32::try_from(weight).ok());
            if let Some(cgroup) = number(system, &path) {
                let weight = weight.unwrap_or(CGROUP_WEIGHT_DEFAULT).max(1);
                found.insert(
                    path.clone(),
                    Container {
                        path,
                        cgroup,
                        weight,
                    },
                );
            }
        }
    }
    for named in &options.containers {
        let path = named.path.clone();
        let Some(cgroup) = number(system, &path) else {
            continue;
        };
        found.insert(
            path.clone(),
            Container {
                path,
                cgroup,
                weight: named.weight,
            },
        );
    }
    found.into_values().collect()
}

fn rooted(slice: &str) -> String {
    format!("/{}", slice.trim_matches('/'))
}

/// A cgroup's id: the inode number of its directory.
fn number(system: &System, path: &str) -> Option<u64> {
    let found = std::fs::metadata(system.cgroups().path(path)).ok()?;
    found.is_dir().then(|| found.ino())
}

fn absent(path: &str) -> NicError {
    NicError::Value {
        what: "container",
        value: path.to_owned(),
        expected: "no such cgroup in the version 2 hierarchy; `systemd-cgls` shows them".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Weights;
    use std::fs;

    #[test]
    fn children_of_a_slice_have_their_own_weight() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join("sys/fs/cgroup").join(path);
        for (name, weight) in [("a", "300\n"), ("b", "100\n"), ("c", "")] {
            fs::create_dir_all(at("tenants.slice").join(name)).unwrap();
            fs::write(at("tenants.slice").join(name).join("cpu.weight"), weight).unwrap();
        }
        fs::write(at("tenants.slice/cgroup.procs"), "").unwrap();
        fs::write(at("cgroup.controllers"), "").unwrap();
        let system = System::at(directory.path());
        let options = Options {
            weights: Weights::Cgroup,
            slice: Some("tenants.slice".to_owned()),
            containers: vec!["/tenants.slice/b=7".parse().unwrap()],
            ..Options::default()
        };
        check(&system, &options).unwrap();
        let containers = list(&system, &options);
        let short: Vec<_> = containers
            .iter()
            .map(|one| (one.path.as_str(), one.weight))
            .collect();
        assert_eq!(
            short,
            [
                ("/tenants.slice/a", 300),
                ("/tenants.slice/b", 7),
                ("/tenants.slice/c", 100)
            ]
        );
        let wrong = Options {
            slice: Some("none".to_owned()),
            ..options
        };
        assert!(
            check(&system, &wrong)
                .unwrap_err()
                .to_string()
                .contains("systemd-cgls")
        );
    }
}
