//! Made-up processes: a tree of `/proc`, their files, and the kernel's list of objects.

use super::elf::tests::elf;
use super::*;
use crate::rdma::{Context, Device, Holder};
use std::fs;

const LOADED: &str = "/usr/lib/libibverbs.so.1.14.44.0";
const SHIM: &str = "/usr/lib/isolane/libisolane_shim.so";

/// A machine with one mlx5 device.
struct Machine {
    directory: tempfile::TempDir,
    root: Root,
    inventory: Inventory,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let machine = Self {
            directory,
            root,
            inventory: Inventory {
                devices: vec![Device {
                    name: "mlx5_0".into(),
                    ..Device::default()
                }],
                ..Inventory::default()
            },
        };
        let driver = machine.place("/sys/bus/pci/drivers/mlx5_core");
        fs::create_dir_all(driver).unwrap();
        let device = machine.place("/sys/class/infiniband/mlx5_0/device/driver");
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/mlx5_core", device).unwrap();
        machine
    }

    fn place(&self, path: &str) -> std::path::PathBuf {
        let path = self.directory.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A process that maps these files and holds a context.
    fn process(&mut self, pid: u32, name: &str, program: &[u8], libraries: &[(&str, Vec<u8>)]) {
        fs::write(self.place(&format!("/proc/{pid}/comm")), name).unwrap();
        fs::write(self.place(&format!("/proc/{pid}/exe")), program).unwrap();
        let mut maps = "00400000-00452000 r-xp 00000000 08:02 173521 [vdso]\n".to_owned();
        for (path, content) in libraries {
            fs::write(self.place(&format!("/proc/{pid}/root{path}")), content).unwrap();
            maps += &format!("7f0000000000-7f0000001000 r--p 00000000 08:02 7 {path}\n");
            maps += &format!("7f0000001000-7f0000002000 r-xp 00001000 08:02 7 {path}\n");
        }
        fs::write(self.place(&format!("/proc/{pid}/maps")), maps).unwrap();
        self.inventory.contexts.push(Context {
            device: "mlx5_0".into(),
            number: pid,
            holder: Holder::Process(pid),
        });
    }

    fn queue_pair(&mut self, pid: u32, number: u32, kind: u8) {
        self.inventory.queue_pairs.push(QueuePair {
            device: "mlx5_0".into(),
            port: Some(1),
            number,
            remote_number: None,
            kind: kind.into(),
            state: QueuePairState::ReadyToSend,
            send_sequence: None,
            receive_sequence: None,
            path_migration: None,
            protection_domain: None,
            holder: Holder::Process(pid),
        });
    }

    fn find(&self, sessions: Option<&BTreeMap<u32, Session>>) -> Vec<(u32, Reason, u64)> {
        let compared = Compared {
            devices: &["mlx5_0".to_owned()],
            sessions,
            without: &[99],
        };
        let found = Finder::default().find(&self.root, &self.inventory, compared);
        found
            .iter()
            .map(|one| (one.pid, one.reason, one.queue_pairs))
            .collect()
    }
}

fn dynamic() -> Vec<u8> {
    elf(
        true,
        &["libibverbs.so.1", "libc.so.6"],
        &["ibv_open_device"],
    )
}

fn library() -> Vec<u8> {
    elf(false, &[], &[])
}

/// The session of process 7 with these queue pairs.
fn session(numbers: &[u32]) -> BTreeMap<u32, Session> {
    let queue_pairs = Some(numbers.iter().copied().collect());
    BTreeMap::from([(7, Session { queue_pairs })])
}

#[test]
fn processes_without_a_session_have_their_reason() {
    let mut machine = Machine::new();
    machine.process(1, "still", &elf(false, &[], &[]), &[]);
    machine.process(2, "plain", &dynamic(), &[(LOADED, library())]);
    let nccl = elf(false, &["libc.so.6"], &["dlopen", "dlvsym"]);
    let opens = [(LOADED, library()), ("/opt/libnccl.so.2", nccl)];
    machine.process(3, "nccl", &elf(true, &["libc.so.6"], &[]), &opens);
    let loaded = [(LOADED, library()), (SHIM, library())];
    machine.process(4, "refused", &dynamic(), &loaded);
    machine.process(99, "isolaned", &dynamic(), &[(LOADED, library())]);
    machine.queue_pair(2, 17, 2);
    assert_eq!(
        machine.find(Some(&BTreeMap::new())),
        [
            (1, Reason::Static, 0),
            (2, Reason::NotPreloaded, 1),
            (3, Reason::OpensAtRunTime, 0),
            (4, Reason::NoSession, 0),
        ]
    );
}

#[test]
fn a_loaded_library_counts_as_a_session_where_sessions_are_unknown() {
    let mut machine = Machine::new();
    let loaded = [(LOADED, library()), (SHIM, library())];
    machine.process(4, "paced", &dynamic(), &loaded);
    machine.process(5, "plain", &dynamic(), &[(LOADED, library())]);
    assert_eq!(machine.find(None), [(5, Reason::NotPreloaded, 0)]);
}

#[test]
fn queue_pairs_outside_the_session_are_counted_by_type() {
    let mut machine = Machine::new();
    machine.process(7, "mixed", &dynamic(), &[(SHIM, library())]);
    for (number, kind) in [(17, 2), (18, 2), (19, 255), (20, 8), (21, 1)] {
        machine.queue_pair(7, number, kind);
    }
    assert_eq!(
        machine.find(Some(&session(&[17]))),
        [
            (7, Reason::VendorTransport, 1),
            (7, Reason::RawPackets, 1),
            (7, Reason::QueuePairs, 1),
        ]
    );
    // A process of the latency class reports no queue pair.
    let latency = BTreeMap::from([(7, Session::default())]);
    assert_eq!(machine.find(Some(&latency)), []);
}

#[test]
fn vendors_functions_are_named_with_the_object_that_calls_them() {
    let mut machine = Machine::new();
    let calls = ["mlx5dv_init_obj", "mlx5dv_devx_obj_create"];
    let uct = elf(false, &["libmlx5.so.1"], &calls);
    let provider = elf(false, &[], &["mlx5dv_create_qp"]);
    let libraries = [
        (SHIM, library()),
        ("/usr/lib/ucx/libuct_ib_mlx5.so.0", uct),
        ("/usr/lib/libmlx5.so.1", provider),
    ];
    machine.process(7, "ucx", &dynamic(), &libraries);
    let sessions = session(&[]);
    let compared = Compared {
        devices: &["mlx5_0".to_owned()],
        sessions: Some(&sessions),
        without: &[],
    };
    let found = Finder::default().find(&machine.root, &machine.inventory, compared);
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.reason, one.evidence.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (
                Reason::DirectDoorbells,
                "libuct_ib_mlx5.so.0 calls mlx5dv_init_obj"
            ),
            (
                Reason::Devx,
                "libuct_ib_mlx5.so.0 calls mlx5dv_devx_obj_create"
            ),
        ]
    );
}

#[test]
fn unreadable_processes_are_reported_as_unknown() {
    let mut machine = Machine::new();
    machine.process(8, "other", &dynamic(), &[]);
    fs::remove_file(machine.place("/proc/8/maps")).unwrap();
    assert_eq!(
        machine.find(Some(&BTreeMap::new())),
        [(8, Reason::Unknown, 0)]
    );
}
