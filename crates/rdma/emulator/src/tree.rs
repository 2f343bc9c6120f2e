//! The devices' files, as the kernel's `infiniband` class has them, for tools that read files and no verbs.
//!
//! Problem: no kernel has the emulated devices, so `/sys` does not show them. Method: a directory has the same files in
//! the same places, once for all hosts and once for each host alone ([`root`]). Attributes are written at the start. The
//! file of a counter, and the list of a device's objects, is replaced when it has changed, so a reader finds the old or the
//! new text and never a part of it. Changes are written at most every `PERIOD` and in at most 1/`PART` of the time.
//!
//! Units: those of the kernel's files. Rates and pause times refer to real time: the link's rate is that of the profile
//! divided by the dilation.

use isolane_rdma_emulated_verbs::attributes::{DeviceFacts, GIDS};
use isolane_rdma_emulated_verbs::connection::DEVICE_PREFIX;
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_verbs_sys::{IBV_LINK_LAYER_ETHERNET, IBV_NODE_CA};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Wall};

/// Least time between two writings of changes: drivers refresh theirs every 10 ms too.
const PERIOD: Duration = Duration::from_millis(10);
/// Time until a failed writing is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Writing takes at most this part of the time: 1/50.
const PART: u32 = 50;
/// The directory with the devices of all hosts.
const ALL: &str = "all";
/// The kernel's directory of devices.
const CLASS: &str = "sys/class/infiniband";
/// The name of our driver in a device's files.
const DRIVER: &str = "isolane-emulator";
/// The list of objects ([`crate::objects`]), from the port's directory.
const OBJECTS: &str = "../../objects";
/// Bytes of the unit of `port_xmit_data` and `port_rcv_data`.
const WORD: u64 = 4;

/// The file of each counter below the port's directory, and the model's counter. [`WORDS`] are in words.
const COUNTERS: [(&str, &str); 16] = [
    ("counters/port_xmit_data", "tx_vport_rdma_unicast_bytes"),
    ("counters/port_rcv_data", "rx_vport_rdma_unicast_bytes"),
    (
        "counters/port_xmit_packets",
        "tx_vport_rdma_unicast_packets",
    ),
    ("counters/port_rcv_packets", "rx_vport_rdma_unicast_packets"),
    ("hw_counters/loopback_bytes", "loopback_bytes"),
    ("hw_counters/tx_prio3_pause", "tx_prio3_pause"),
    ("hw_counters/rx_prio3_pause", "rx_prio3_pause"),
    (
        "hw_counters/tx_prio3_pause_duration",
        "tx_prio3_pause_duration",
    ),
    (
        "hw_counters/rx_prio3_pause_duration",
        "rx_prio3_pause_duration",
    ),
    ("hw_counters/icm_cache_miss", "icm_cache_miss"),
    ("hw_counters/mtt_cache_miss", "mtt_cache_miss"),
    ("hw_counters/mpt_cache_miss", "mpt_cache_miss"),
    (
        "hw_counters/receive_wqe_cache_miss",
        "receive_wqe_cache_miss",
    ),
    ("hw_counters/np_cnp_sent", "np_cnp_sent"),
    ("hw_counters/rp_cnp_handled", "rp_cnp_handled"),
    ("hw_counters/out_of_sequence", "out_of_sequence"),
];

/// The root directory for a program that sees the device of `host` alone, or the devices of all hosts.
pub fn root(tree: &Path, host: Option<usize>) -> PathBuf {
    match host {
        Some(host) => tree.join(host.to_string()),
        None => tree.join(ALL),
    }
}

/// The files of all devices.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The directory of each host's port, and the values of [`COUNTERS`] in its files.
    ports: Vec<(PathBuf, [u64; COUNTERS.len()])>,
    /// Where a file is written before it replaces another.
    spare: PathBuf,
    dilation: f64,
    /// Whether objects may have been made or destroyed since their lists were written.
    objects: bool,
    /// The list of each host in its file.
    lists: Vec<String>,
    /// When something is written again; `None` when nothing has happened since.
    due: Option<Wall>,
    /// No writing before.
    rests_until: Wall,
    /// Files that could not be written.
    pub(crate) failed: u64,
}

impl Tree {
    /// Writes the files of the devices of `facts`, all counters 0, below `path`.
    pub(crate) fn make(
        path: &Path,
        profile: &Profile,
        facts: &[DeviceFacts],
        dilation: f64,
    ) -> Result<Self> {
        let mut ports = Vec::with_capacity(facts.len());
        for device in facts {
            let name = format!("{DEVICE_PREFIX}{}", device.host);
            let folder = root(path, None).join(CLASS).join(&name);
            attributes(&folder, profile, device, dilation)?;
            let port = folder.join("ports/1");
            for (file, _) in COUNTERS {
                put(&port, file, "0")?;
            }
            ports.push((port, [0; COUNTERS.len()]));
            for host in [None, Some(device.host as usize)] {
                verbs_device(&root(path, host), device.host, &name)?;
            }
            let alone = root(path, Some(device.host as usize)).join(CLASS);
            fs::create_dir_all(&alone)?;
            symlink(
                format!("../../../../{ALL}/{CLASS}/{name}"),
                alone.join(name),
            )?;
        }
        Ok(Self {
            lists: vec![String::new(); facts.len()],
            ports,
            spare: path.join("new"),
            dilation,
            objects: false,
            due: None,
            rests_until: Wall::now(),
            failed: 0,
        })
    }

    /// Something happened that counters count.
    pub(crate) fn touch(&mut self) {
        self.due.get_or_insert(self.rests_until);
    }

    /// Objects were made, changed or destroyed.
    pub(crate) fn touch_objects(&mut self) {
        self.objects = true;
        self.touch();
    }

    /// When [`Self::write`] has something to do.
    pub(crate) fn due(&self) -> Option<Wall> {
        self.due
    }

    /// Writes what changed of the model's counters, which `count` returns by host, and the objects, which `list` returns.
    pub(crate) fn write(
        &mut self,
        count: impl Fn(usize) -> BTreeMap<&'static str, u64>,
        list: impl Fn(usize) -> String,
    ) {
        let begun = Wall::now();
        let objects = std::mem::take(&mut self.objects);
        let failed = self.failed;
        for (host, (port, written)) in self.ports.iter_mut().enumerate() {
            let counted = count(host);
            for ((file, counter), written) in COUNTERS.iter().zip(written) {
                let value = counted.get(counter).copied().unwrap_or(0);
                let value = in_unit(file, value, self.dilation);
                if value == *written {
                    continue;
                }
                match replace(&self.spare, &port.join(file), &format!("{value}\n")) {
                    Ok(()) => *written = value,
                    Err(_) => self.failed += 1,
                }
            }
            if !objects {
                continue;
            }
            let objects = list(host);
            if objects != self.lists[host] {
                match replace(&self.spare, &port.join(OBJECTS), &objects) {
                    Ok(()) => self.lists[host] = objects,
                    Err(_) => self.failed += 1,
                }
            }
        }
        let end = Wall::now();
        self.rests_until = end + PERIOD.max((end - begun) * PART);
        // A text that could not be written is tried again.
        let incomplete = self.failed > failed;
        self.objects = incomplete;
        self.due = incomplete.then_some(end + RETRY);
    }
}

/// A value of the model in the unit of the file.
fn in_unit(file: &str, value: u64, dilation: f64) -> u64 {
    if file.ends_with("_data") {
        return value / WORD;
    }
    match file.ends_with("_duration") {
        // Real time is as many times longer as the model's clock is slower.
        true => (value as f64 * dilation) as u64,
        false => value,
    }
}

/// Whatever has the name of the new file goes first: a program of this user may have put a link or a FIFO there.
fn replace(spare: &Path, file: &Path, text: &str) -> Result<()> {
    match fs::remove_file(spare) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = fs::OpenOptions::new();
    let mut new = new.write(true).create_new(true).mode(0o600).open(spare)?;
    new.write_all(text.as_bytes())?;
    fs::rename(spare, file)
}

fn put(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("the file is in the directory"))?;
    fs::write(path, format!("{text}\n"))
}

/// What shows that there is a verbs device, and who may open it.
fn verbs_device(root: &Path, host: u32, name: &str) -> Result<()> {
    put(
        root,
        &format!("sys/class/infiniband_verbs/uverbs{host}/ibdev"),
        name,
    )?;
    put(root, &format!("dev/infiniband/uverbs{host}"), "")?;
    put(root, "dev/infiniband/rdma_cm", "")
}

/// What does not change of a device and its port.
fn attributes(folder: &Path, profile: &Profile, device: &DeviceFacts, dilation: f64) -> Result<()> {
    let ethernet = device.link_layer == u32::from(IBV_LINK_LAYER_ETHERNET);
    let of_device = [
        ("fw_ver", "isolane model".to_owned()),
        ("hca_type", profile.name.clone()),
        ("node_desc", format!("{DEVICE_PREFIX}{}", device.host)),
        ("node_guid", colons(&[device.guid])),
        ("sys_image_guid", colons(&[device.guid])),
        (
            "node_type",
            match device.node_type == IBV_NODE_CA as u32 {
                true => "1: CA".to_owned(),
                false => "4: RNIC".to_owned(),
            },
        ),
        ("dilation", dilation.to_string()),
    ];
    for (file, text) in of_device {
        put(folder, file, &text)?;
    }
    fs::create_dir_all(folder.join("device"))?;
    symlink(Path::new("..").join(DRIVER), folder.join("device/driver"))?;
    let port = folder.join("ports/1");
    let of_port = [
        ("state", "4: ACTIVE".to_owned()),
        ("phys_state", "5: LinkUp".to_owned()),
        ("rate", rate(profile, device, dilation)),
        (
            "link_layer",
            if ethernet { "Ethernet" } else { "InfiniBand" }.to_owned(),
        ),
        ("lid", format!("{:#x}", device.lid)),
        ("sm_lid", if ethernet { "0x0" } else { "0x1" }.to_owned()),
        ("pkeys/0", "0xffff".to_owned()),
    ];
    for (file, text) in of_port {
        put(&port, file, &text)?;
    }
    for (index, gid) in device
        .gids
        .iter()
        .enumerate()
        .take(if ethernet { GIDS } else { 1 })
    {
        put(&port, &format!("gids/{index}"), &colons(gid))?;
        let kind = match ethernet && index % 2 == 1 {
            true => "RoCE v2",
            false => "IB/RoCE v1",
        };
        put(&port, &format!("gid_attrs/types/{index}"), kind)?;
    }
    Ok(())
}

/// Words in memory order as the kernel writes GUIDs and GIDs: `fe80:0000:...`.
fn colons(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let pairs = bytes.chunks(2);
    let pairs: Vec<String> = pairs
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect();
    pairs.join(":")
}

/// The rate of the port in real time, with the link's width and generation.
fn rate(profile: &Profile, device: &DeviceFacts, dilation: f64) -> String {
    const NS_PER_S: f64 = 1e9;
    let gbps = (profile.value("link", "rate_gbps") * NS_PER_S / dilation).round() / NS_PER_S;
    let lanes = if device.width == 1 { 1 } else { 4 };
    let generation = match device.speed {
        4 => "QDR",
        16 => "FDR",
        64 => "HDR",
        128 => "NDR",
        _ => "EDR",
    };
    format!("{gbps} Gb/sec ({lanes}X {generation})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn made(path: &Path, dilation: f64) -> Tree {
        let library = Library::embedded();
        let profile = library.profile("cx5-100g-roce").unwrap();
        let facts: Vec<DeviceFacts> = (0..2).map(|host| crate::facts::of(profile, host)).collect();
        Tree::make(path, profile, &facts, dilation).unwrap()
    }

    #[test]
    fn a_host_alone_sees_its_device_with_the_same_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = made(directory.path(), 1000.0);
        let class = |host| root(directory.path(), host).join(CLASS);
        let names = |host| fs::read_dir(class(host)).unwrap().count();
        assert_eq!((names(None), names(Some(1))), (2, 1));
        tree.touch_objects();
        tree.write(
            |host| [("tx_vport_rdma_unicast_bytes", 4_003 * host as u64)].into(),
            |host| format!("context {host} 7\n"),
        );
        for host in [None, Some(1)] {
            let port = class(host).join("rnic1/ports/1");
            let text = |file: &str| fs::read_to_string(port.join(file)).unwrap();
            assert_eq!(text("counters/port_xmit_data"), "1000\n");
            assert_eq!(text("../../objects"), "context 1 7\n");
            assert_eq!(text("rate"), "0.1 Gb/sec (4X EDR)\n");
            assert_eq!(text("gids/3"), "0000:0000:0000:0000:0000:ffff:0a4d:0002\n");
        }
    }

    #[test]
    fn a_text_that_was_not_written_is_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = made(directory.path(), 1.0);
        let file = root(directory.path(), None)
            .join(CLASS)
            .join("rnic0/objects");
        // A directory in the place of the new file stops every writing.
        fs::create_dir(&tree.spare).unwrap();
        tree.touch_objects();
        tree.write(|_| BTreeMap::new(), |_| "context 1 7\n".to_owned());
        assert!(tree.failed > 0 && tree.due().is_some() && !file.exists());
        fs::remove_dir(&tree.spare).unwrap();
        tree.write(|_| BTreeMap::new(), |_| "context 1 7\n".to_owned());
        assert_eq!(fs::read_to_string(file).unwrap(), "context 1 7\n");
        assert_eq!(tree.due(), None);
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = made(directory.path(), 1.0);
        let other = directory.path().join("other");
        fs::write(&other, "kept").unwrap();
        symlink(&other, &tree.spare).unwrap();
        tree.touch_objects();
        tree.write(|_| BTreeMap::new(), |_| "context 1 7\n".to_owned());
        assert_eq!(fs::read_to_string(other).unwrap(), "kept");
        assert_eq!(tree.failed, 0);
    }

    #[test]
    fn pauses_are_in_real_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = made(directory.path(), 1000.0);
        let pauses = [("tx_prio3_pause_duration", 3), ("tx_prio3_pause", 3)];
        tree.write(|_| pauses.into(), |_| String::new());
        let port = root(directory.path(), None)
            .join(CLASS)
            .join("rnic0/ports/1/hw_counters");
        let text = |file: &str| fs::read_to_string(port.join(file)).unwrap();
        assert_eq!(text("tx_prio3_pause_duration"), "3000\n");
        assert_eq!(text("tx_prio3_pause"), "3\n");
    }

    #[test]
    fn nothing_is_due_until_something_happened_and_then_after_a_rest() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = made(directory.path(), 1.0);
        assert_eq!(tree.due(), None);
        tree.touch();
        let first = tree.due().unwrap();
        tree.write(|_| BTreeMap::new(), |_| String::new());
        assert_eq!(tree.due(), None);
        tree.touch();
        assert!(tree.due().unwrap() >= first + PERIOD);
    }
}
