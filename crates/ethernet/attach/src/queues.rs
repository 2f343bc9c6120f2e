//! The transmit queues in use: the processors of each (XPS), and its byte limit (BQL).
//!
//! Problem: an XPS map overrides the queue recorded in a packet. Maps must therefore be empty while queues are assigned
//! dynamically, and be restored afterwards. Method: maps are kept as the kernel's text, which the kernel also accepts.
//! Units: bytes. Limits: a device with one queue has no maps; a driver without BQL shows limits that stay zero. Source:
//! `Documentation/ABI/testing/sysfs-class-net-queues`.

use crate::system::System;
use isolane_common_linux::HostError;
use serde::{Deserialize, Serialize};

/// Files with a map, by processors and by receive queues.
const MAPS: [&str; 2] = ["xps_cpus", "xps_rxqs"];
/// Longest map, bytes: one page, the kernel's limit for such a file.
const MAP_MAX: usize = 4_096;
/// The kernel's value for no limit.
const UNLIMITED: u64 = 1_879_048_192;

/// One transmit queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Queue {
    /// Number of the queue.
    pub queue: u16,
    /// Map of processors that send through it; `None` if unset.
    pub processors: Option<String>,
    /// Map of receive queues whose connections send through it; `None` if unset.
    pub receive_queues: Option<String>,
    /// Byte limit; `None` if the driver has none.
    pub limit: Option<ByteLimit>,
}

/// The limit on bytes in a hardware queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ByteLimit {
    /// Current limit, bytes.
    pub limit_bytes: u64,
    /// Upper bound of the limit, bytes; `None` is unlimited.
    pub limit_max_bytes: Option<u64>,
    /// Bytes in the queue at this moment.
    pub inflight_bytes: u64,
}

/// An original map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMap {
    /// Number of the queue.
    pub queue: u16,
    /// Name of the file: `xps_cpus` or `xps_rxqs`.
    pub file: String,
    /// Original content.
    pub value: String,
}

/// Number of transmit queues in use; 0 if the device does not exist.
pub fn count(system: &System, device: &str) -> u16 {
    let names = system.sys().list(&format!("class/net/{device}/queues"));
    let count = names.iter().filter(|name| name.starts_with("tx-")).count();
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Reads all queues.
pub fn read(system: &System, device: &str) -> Vec<Queue> {
    (0..count(system, device))
        .map(|queue| read_one(system, device, queue))
        .collect()
}

fn read_one(system: &System, device: &str, queue: u16) -> Queue {
    let map = |file| {
        let text = system.sys().text(&place(device, queue, file))?;
        (!is_empty(&text)).then_some(text)
    };
    let bytes = |file: &str| {
        let path = place(device, queue, &format!("byte_queue_limits/{file}"));
        system.sys().number(&path)
    };
    let limit = || {
        let (limit_bytes, inflight_bytes) = (bytes("limit")?, bytes("inflight")?);
        // A driver that never reports completions leaves both at zero.
        (limit_bytes > 0 || inflight_bytes > 0).then(|| ByteLimit {
            limit_bytes,
            limit_max_bytes: bytes("limit_max").filter(|most| *most < UNLIMITED),
            inflight_bytes,
        })
    };
    Queue {
        queue,
        processors: map(MAPS[0]),
        receive_queues: map(MAPS[1]),
        limit: limit(),
    }
}

/// The current nonempty maps.
pub fn saved_maps(system: &System, device: &str) -> Vec<SavedMap> {
    let mut saved = Vec::new();
    for queue in 0..count(system, device) {
        for file in MAPS {
            let text = system.sys().text(&place(device, queue, file));
            if let Some(value) = text.filter(|value| !is_empty(value)) {
                saved.push(SavedMap {
                    queue,
                    file: file.to_owned(),
                    value,
                });
            }
        }
    }
    saved
}

impl SavedMap {
    /// Whether it has the form of a kernel map of a queue's own file: a journal may have been changed.
    pub(crate) fn is_plausible(&self) -> bool {
        let is_digit = |digit: char| digit.is_ascii_hexdigit() || digit == ',';
        MAPS.contains(&self.file.as_str())
            && (1..=MAP_MAX).contains(&self.value.len())
            && self.value.chars().all(is_digit)
    }
}

/// Empties maps.
pub fn clear(system: &System, device: &str, maps: &[SavedMap]) -> Result<(), HostError> {
    write(system, device, maps, |_| "0")
}

/// Restores maps. Skips queues that no longer exist and maps that already have the value, so a caller without
/// permission fails only if something must change.
pub fn restore(system: &System, device: &str, maps: &[SavedMap]) -> Result<(), HostError> {
    let count = count(system, device);
    let now = saved_maps(system, device);
    let there: Vec<SavedMap> = maps
        .iter()
        .filter(|map| map.queue < count && !now.contains(map))
        .cloned()
        .collect();
    write(system, device, &there, |map| &map.value)
}

fn write(
    system: &System,
    device: &str,
    maps: &[SavedMap],
    value: impl Fn(&SavedMap) -> &str,
) -> Result<(), HostError> {
    for map in maps {
        let path = place(device, map.queue, &map.file);
        system.sys().write(&path, value(map))?;
    }
    Ok(())
}

fn place(device: &str, queue: u16, file: &str) -> String {
    format!("class/net/{device}/queues/tx-{queue}/{file}")
}

/// Whether a map such as `00000000,00000000` contains no processor.
fn is_empty(map: &str) -> bool {
    map.chars().all(|digit| matches!(digit, '0' | ',' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn tree(directory: &Path, files: &[(&str, &str)]) -> System {
        for (path, text) in files {
            let path = directory.join("sys/class/net/eth0/queues").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        System::at(directory)
    }

    #[test]
    fn queues_are_read_with_maps_and_limits() {
        let directory = tempfile::tempdir().unwrap();
        let system = tree(
            directory.path(),
            &[
                ("tx-0/xps_cpus", "3\n"),
                ("tx-0/xps_rxqs", "0\n"),
                ("tx-0/byte_queue_limits/limit", "262144\n"),
                ("tx-0/byte_queue_limits/limit_max", "1879048192\n"),
                ("tx-0/byte_queue_limits/inflight", "3028\n"),
                ("tx-1/xps_cpus", "00000000,00000000\n"),
                ("tx-1/byte_queue_limits/limit", "0\n"),
                ("tx-1/byte_queue_limits/inflight", "0\n"),
                ("rx-0/rps_cpus", "0\n"),
            ],
        );
        let limit = ByteLimit {
            limit_bytes: 262_144,
            limit_max_bytes: None,
            inflight_bytes: 3_028,
        };
        let first = Queue {
            queue: 0,
            processors: Some("3".to_owned()),
            receive_queues: None,
            limit: Some(limit),
        };
        let second = Queue {
            queue: 1,
            ..Queue::default()
        };
        assert_eq!(read(&system, "eth0"), [first, second]);
        assert_eq!(count(&system, "eth1"), 0);
    }

    #[test]
    fn maps_are_cleared_and_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("tx-0/xps_cpus", "3"),
            ("tx-1/xps_cpus", "c"),
            ("tx-1/xps_rxqs", "0"),
        ];
        let system = tree(directory.path(), &files);
        let saved = saved_maps(&system, "eth0");
        assert_eq!(saved.len(), 2);
        clear(&system, "eth0", &saved).unwrap();
        assert_eq!(saved_maps(&system, "eth0"), []);
        restore(&system, "eth0", &saved).unwrap();
        assert_eq!(saved_maps(&system, "eth0"), saved);
    }

    #[test]
    fn a_queue_that_went_away_keeps_nothing_from_coming_back() {
        let directory = tempfile::tempdir().unwrap();
        let system = tree(directory.path(), &[("tx-0/xps_cpus", "0")]);
        let map = |queue| SavedMap {
            queue,
            file: "xps_cpus".to_owned(),
            value: "1".to_owned(),
        };
        restore(&system, "eth0", &[map(5), map(0)]).unwrap();
        assert_eq!(saved_maps(&system, "eth0"), [map(0)]);
    }
}
