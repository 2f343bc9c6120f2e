//! Programs in the kernel's network path under kills: `isolane nic attach` and `isolane rpc enforce`.

use crate::limits::{CODE_POINT, DEVICE, Done};
use isolane_common_linux::command::run;
use isolane_common_linux::namespaces::{self, Space};
use isolane_common_linux::skip::skip;
use isolane_common_linux::{Root, cgroup};
use isolane_ethernet_attach::journal::Journal;
use isolane_ethernet_attach::{Device, System, queues};
use isolane_ethernet_bpf::bpffs;
use isolane_tools_abuse::Running;
use isolane_tools_abuse::kills::{Case, Kills, PATIENCE, PAUSE, until};
use isolane_tools_abuse::process::started_for;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What `detach` must restore.
#[derive(Clone, Debug, PartialEq)]
struct State {
    maps: Vec<queues::SavedMap>,
    sizes: isolane_ethernet_attach::link::Sizes,
    discipline: String,
    clsact: bool,
    filters: usize,
    journals: usize,
    pins: Vec<String>,
}

/// The state of the lab's device, and what is left of attachments.
fn state(name: &str, folder: &Path) -> State {
    let (name, folder) = (name.to_owned(), folder.to_owned());
    let read = move || {
        let system = System::enter(&name).unwrap().with_run(&folder.join("run"));
        let device = Device::read(&system, DEVICE).unwrap();
        let own = format!("nic-{}-", System::namespace());
        let pins = bpffs::find().and_then(|folder| fs::read_dir(folder).ok());
        let pins = pins.into_iter().flatten().flatten();
        let pins = pins.map(|entry| entry.file_name().to_string_lossy().into_owned());
        State {
            maps: queues::saved_maps(&system, DEVICE),
            sizes: device.sizes,
            discipline: device.discipline.clone(),
            clsact: device.disciplines.has_clsact(),
            filters: device.egress.len(),
            journals: Journal::all(&system).unwrap().len(),
            pins: pins.filter(|name| name.starts_with(&own)).collect(),
        }
    };
    // The thread stays in the namespace until it ends.
    std::thread::spawn(read).join().unwrap()
}

/// Two namespaces with a device of several queues between them.
struct Lab {
    sender: Space,
    _receiver: Space,
}

impl Lab {
    const PREFIX: &'static str = "isolane-kills-";

    /// The error is what this machine lacks.
    fn new(folder: &Path) -> Result<Self, String> {
        if !namespaces::is_root() {
            return Err("not root".to_owned());
        }
        namespaces::remove_stale(Self::PREFIX);
        let name = |end| format!("{}{}-{end}", Self::PREFIX, namespaces::maker());
        let text = |error: isolane_common_linux::command::CommandError| error.to_string();
        let sender = Space::make(name("s")).map_err(text)?;
        let receiver = Space::make(name("r")).map_err(text)?;
        let (from, to) = (sender.name(), receiver.name());
        for line in [
            format!(
                "ip -n {from} link add {DEVICE} numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4 netns {to}"
            ),
            format!("ip -n {from} addr add 10.97.0.1/24 dev {DEVICE}"),
            format!("ip -n {to} addr add 10.97.0.2/24 dev v1"),
            format!("ip -n {from} link set {DEVICE} up"),
            format!("ip -n {to} link set v1 up"),
            format!("tc -n {from} qdisc replace dev {DEVICE} root handle 1: mq"),
            format!(
                "ip netns exec {from} sh -c 'echo 1 > /sys/class/net/{DEVICE}/queues/tx-0/xps_cpus'"
            ),
        ] {
            run_shell(&line)?;
        }
        fs::write(folder.join("namespace"), from).unwrap();
        Ok(Self {
            sender,
            _receiver: receiver,
        })
    }

    /// A packet goes to the other end and comes back.
    fn packets_flow(&self) -> Result<(), String> {
        let from = self.sender.name();
        run(&format!(
            "ip netns exec {from} ping -q -c 1 -W 20 10.97.0.2"
        ))
        .map(drop)
        .map_err(|error| error.to_string())
    }
}

fn run_shell(line: &str) -> Result<(), String> {
    let output = std::process::Command::new("sh")
        .args(["-c", line])
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Kills `isolane nic attach --foreground` and `isolane nic detach` at any moment, also while they attach and detach. A packet
/// passes after each kill and after each start; a `detach` that ends restores the device, and leaves no program, map and journal.
pub(super) fn nic_under(kills: Kills) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lab = match Lab::new(folder) {
        Ok(lab) => lab,
        Err(reason) => {
            skip(format_args!(
                "a device with several queues needs root and namespaces: {reason}"
            ));
            return;
        }
    };
    let before = state(lab.sender.name(), folder);
    assert!(
        before.maps.len() == 1 && before.pins.is_empty(),
        "{before:?}"
    );
    let round = AtomicU64::new(0);
    let detached = || -> Result<(), String> {
        let mut detach = Running::spawn("nic-detach", folder);
        detach
            .listens()
            .map_err(|reason| format!("detach: {reason}"))?;
        let after = state(lab.sender.name(), folder);
        match after == before {
            true => Ok(()),
            false => Err(format!(
                "the device is left as {after:?}; it was {before:?}"
            )),
        }
    };
    let case = Case {
        role: "nic",
        serves: Duration::from_millis(300),
        client: Arc::new(|_| {}),
        leaves_processes: false,
        dead: &|| {
            lab.packets_flow()?;
            let round = round.fetch_add(1, Ordering::Relaxed);
            // Otherwise the next attach takes over what the killed one left.
            if round.is_multiple_of(3) {
                let detach = Running::spawn("nic-detach", folder);
                std::thread::sleep(PAUSE * (round as u32 * 7 % 120));
                detach.kill();
                detached()?;
            }
            Ok(())
        },
        alive: &|_| {
            let attached = state(lab.sender.name(), folder);
            let is_attached = attached.filters == before.filters + 1 && attached.maps.is_empty();
            match is_attached && attached.journals == 1 && attached.pins.len() == 1 {
                true => lab.packets_flow(),
                false => Err(format!("not attached: {attached:?}")),
            }
        },
    };
    let mut last = kills.run(&case, folder).unwrap();
    last.end().unwrap();
    detached().unwrap();
    // The check finds pins that stay.
    let namespace = fs::metadata(namespaces::file(lab.sender.name())).unwrap();
    let pins = bpffs::find().unwrap();
    let left = pins.join(format!("nic-{}-0", namespace.ino()));
    fs::create_dir(&left).unwrap();
    let found = detached();
    fs::remove_dir(&left).unwrap();
    assert!(found.is_err_and(|reason| reason.contains("nic-")));
}

/// A version 2 cgroup of this test.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Result<Self, String> {
        let mount = cgroup::mount(&Root::machine()).ok_or("no version 2 cgroups")?;
        let path = Path::new(&mount).join(format!("isolane-kills-{}", namespaces::maker()));
        fs::create_dir(&path).map_err(|error| error.to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Kills `isolane rpc enforce`: its programs are gone with it, so that new connections have no mark, and connections go on
/// and get their marks from the next one.
pub(super) fn marks_under(kills: Kills) {
    let made = match namespaces::is_root() {
        true => Cgroup::new(),
        false => Err("not root".to_owned()),
    };
    let cgroup = match made {
        Ok(cgroup) => cgroup,
        Err(reason) => {
            skip(format_args!(
                "marks need root and cgroups of version 2: {reason}"
            ));
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("cgroup"), cgroup.0.display().to_string()).unwrap();
    let patience = PATIENCE;
    let mut tenant = Running::spawn("connections", folder);
    tenant.listens().unwrap();
    until(patience, "a connection", || Done::read(folder).is_some()).unwrap();
    // The connection that is open at this moment may have been marked before.
    let newest_has = |code_point: u8, when: &str| {
        let before = Done::read(folder).unwrap();
        let mut newest = before;
        let seen = until(patience, &format!("connections {when}"), || {
            newest = Done::read(folder).unwrap();
            newest.connections > before.connections + 2
        });
        match newest.code_point == code_point {
            true => seen,
            false => Err(format!(
                "a connection {when} has the code point {}",
                newest.code_point
            )),
        }
    };
    let case = Case {
        role: "marks",
        serves: Duration::from_millis(100),
        client: Arc::new(|_| {}),
        // The tenant has its files in the same folder.
        leaves_processes: true,
        dead: &|| newest_has(0, "without a program"),
        alive: &|_| newest_has(CODE_POINT, "under the next program"),
    };
    let last = kills.run(&case, folder).unwrap();
    drop(last);
    drop(tenant);
    until(patience, "the processes ended", || {
        started_for(folder).is_empty()
    })
    .unwrap();
}
