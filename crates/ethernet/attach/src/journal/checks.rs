//! Checks a journal: each field must be in the range of what an attachment writes.
//!
//! Problem: undo writes to files, deletes pins and ends a process, with the superuser's rights, as the journal says.
//! Method: a value that an attachment cannot have written is rejected before anything is done. The device is identified
//! by namespace and index, never by the name in the journal.

use super::Journal;
use crate::options::REDUCED_MIN;
use isolane_ethernet_bpf::bpffs;
use std::collections::BTreeSet;
use std::path::Path;

/// Longest name of a device, bytes (`IFNAMSIZ` less the zero).
const NAME_MAX: usize = 15;
/// Longest hardware address, bytes (`MAX_ADDR_LEN`).
const ADDRESS_MAX: usize = 32;
/// Largest segment that the kernel accepts, bytes (`GSO_MAX_SIZE`).
const SEGMENT_MAX: u32 = 8 * 65_535;
/// Smallest segment of IPv4: larger than the kernel's largest header, bytes.
const SEGMENT_MIN: u32 = 320;
/// Longest text about the receiver of weights, bytes.
const INTERFACE_NAME_MAX: usize = 1_024;
/// Longest path of a container with the reason why its cgroup takes no program: a path (`PATH_MAX`) and a reason with one.
const REFUSAL_MAX: usize = 8_192;

/// The first invalid field, with its value and what is allowed.
pub(super) fn check(journal: &Journal) -> Result<(), String> {
    let name = &journal.device;
    if !is_name(name) {
        return wrong("device", format!("{name:?}"), "the name of a device");
    }
    if let Some(upper) = journal.upper.as_ref().filter(|upper| !is_name(upper)) {
        return wrong("upper", format!("{upper:?}"), "the name of a bond");
    }
    if journal.address.len() > ADDRESS_MAX {
        let value = format!("{} bytes", journal.address.len());
        return wrong("address", value, "at most 32 bytes");
    }
    if !are_own_pins(journal) {
        let value = journal.pins.display().to_string();
        return wrong("pins", value, "the device's own directory of pins");
    }
    if journal.queues == 0 {
        return wrong("queues", "0".to_owned(), "at least 1");
    }
    if !journal.options.is_in_range() {
        let value = format!("{:?}", journal.options);
        return wrong("options", value, "what `isolane nic attach` takes");
    }
    let mut seen = BTreeSet::new();
    for map in &journal.maps {
        if !map.is_plausible() || !seen.insert((map.queue, &map.file)) {
            let value = format!("{map:?}");
            return wrong(
                "maps",
                value,
                "one xps_cpus and one xps_rxqs for a queue, in hexadecimal digits",
            );
        }
    }
    if let Some(sizes) = journal.sizes {
        let is_size = |size: u32, least: u32| (least..=SEGMENT_MAX).contains(&size);
        if !is_size(sizes.general, REDUCED_MIN)
            || !sizes.ipv4.is_none_or(|ipv4| is_size(ipv4, SEGMENT_MIN))
        {
            return wrong(
                "sizes",
                format!("{sizes:?}"),
                "segment sizes up to 524280 bytes",
            );
        }
    }
    let is_short = |(path, reason): (&String, &String)| path.len() + reason.len() <= REFUSAL_MAX;
    if !journal.not_carried.iter().all(is_short) {
        let value = format!("{} containers", journal.not_carried.len());
        return wrong("not_carried", value, "at most 8192 bytes for each");
    }
    let name = journal.weight_interface.as_deref().unwrap_or_default();
    match name.len() <= INTERFACE_NAME_MAX {
        true => Ok(()),
        false => wrong(
            "weight_interface",
            format!("{} bytes", name.len()),
            "at most 1024 bytes",
        ),
    }
}

fn wrong(field: &str, value: String, allowed: &str) -> Result<(), String> {
    Err(format!(
        "has {field} = {value}; must be {allowed}; remove the journal if nothing is attached"
    ))
}

/// Whether it can name a network device, so that no path with it leads elsewhere.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".."
}

/// Whether the pins are in the directory of an attachment of this device.
fn are_own_pins(journal: &Journal) -> bool {
    let name = format!("nic-{}-{}", journal.namespace, journal.index);
    let usual = Path::new(bpffs::USUAL).join("isolane");
    [usual.as_path(), Path::new(bpffs::OWN)]
        .iter()
        .any(|folder| folder.join(&name) == journal.pins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Link, Sizes};
    use crate::options::{Named, Options, Segments, Weights};
    use crate::queues::SavedMap;
    use crate::system::System;

    fn journal() -> Journal {
        let link = Link {
            index: 3,
            name: "eth0".to_owned(),
            ..Link::default()
        };
        let pins = Path::new(bpffs::OWN).join(format!("nic-{}-3", System::namespace()));
        let mut journal = Journal::new(&System::machine(), &link, pins, 8, Options::default());
        journal.maps = vec![map(0, "xps_cpus", "00000000,00000003")];
        journal.sizes = Some(Sizes {
            general: 65_536,
            ipv4: Some(8_192),
        });
        journal
    }

    fn map(queue: u16, file: &str, value: &str) -> SavedMap {
        SavedMap {
            queue,
            file: file.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn what_an_attachment_writes_is_taken() {
        assert_eq!(check(&journal()), Ok(()));
    }

    #[test]
    fn any_other_value_is_rejected_by_field() {
        let refused = |field: &str, change: &dyn Fn(&mut Journal)| {
            let mut journal = journal();
            change(&mut journal);
            let error = check(&journal).expect_err(field);
            assert!(error.starts_with(&format!("has {field} = ")), "{error}");
        };
        for name in ["", "..", "a/b", "a b", "sixteen-bytes-xx"] {
            refused("device", &|journal| journal.device = name.to_owned());
        }
        refused("address", &|journal| journal.address = vec![0; 33]);
        for pins in [
            "/etc",
            "/sys/fs/bpf/isolane/nic-1-1",
            "/run/isolane/bpf/../x",
        ] {
            refused("pins", &|journal| journal.pins = pins.into());
        }
        refused("queues", &|journal| journal.queues = 0);
        refused("options", &|journal| {
            journal.options.segments = Segments::Bytes(1);
        });
        refused("options", &|journal| {
            journal.options.weights = Weights::Cgroup;
            journal.options.containers = vec![Named {
                path: "/../../x".to_owned(),
                weight: 1,
            }];
        });
        for map in [
            map(0, "../../../v1/tx_queue_len", "777"),
            map(0, "xps_cpus", "1\n2"),
            map(0, "xps_rxqs", ""),
            map(0, "xps_cpus", "1"),
        ] {
            refused("maps", &|journal| journal.maps.push(map.clone()));
        }
        for (general, ipv4) in [(1, None), (600_000, None), (65_536, Some(1))] {
            refused("sizes", &|journal| {
                journal.sizes = Some(Sizes { general, ipv4 })
            });
        }
        refused("not_carried", &|journal| {
            let reason = "x".repeat(8_192);
            journal.not_carried.insert("/a".to_owned(), reason);
        });
        refused("weight_interface", &|journal| {
            journal.weight_interface = Some("x".repeat(1_025));
        });
    }
}
