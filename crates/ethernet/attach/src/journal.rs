//! Records each change of an attachment before it is made, so that any process can undo it.
//!
//! Problem: the controller may be killed at any time, and the device may be removed; the changes must still be undone,
//! once. Method: one JSON file per device in the runtime directory, named by network namespace and interface index,
//! because indices repeat across namespaces. The file is replaced as a whole (written beside, renamed). A lock file
//! serialises attach and detach. A journal of another boot is void, because none of its changes survive a boot. A
//! journal makes a privileged program write to the device. Therefore the directory is the superuser's alone, links in
//! it are not followed ([`PrivateDirectory`]), and every field is checked when the file is read (`checks`). A journal
//! belongs to a device if the namespace's cookie and the interface index agree, neither of which is reused, and the
//! permanent address if there is one. The device's name and current address may change meanwhile. Limits: a kernel
//! before 5.14 has no cookies; there an ended namespace can be mistaken for a new one with the same number.

use crate::effect::Aside;
use crate::error::NicError;
use crate::link::{Link, Route, Sizes};
use crate::options::Options;
use crate::queues::SavedMap;
use crate::system::{System, denied};
use isolane_common_linux::private::PrivateDirectory;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

mod checks;

/// Version of the file's format. Version 1, of an earlier release, has other names for `weight_interface` and
/// `weights_set`; all else is equal.
const VERSION: u32 = 2;
/// Longest journal, bytes. Two maps of 4 KiB for each of the most queues of a device would exceed it, but no device has
/// such maps.
const BYTES_MAX: u64 = 4 << 20;

/// A process; its start time distinguishes it from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub process: u32,
    /// Start time, clock ticks since boot.
    pub started: u64,
}

/// The changes of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Version of the file's format.
    pub version: u32,
    /// Boot id.
    pub boot: String,
    /// Inode number of the network namespace.
    pub namespace: u64,
    /// Cookie of the namespace, 0 if the kernel has none.
    #[serde(default)]
    pub cookie: u64,
    /// Device name at the time of the attachment.
    pub device: String,
    /// Interface index.
    pub index: u32,
    /// Hardware address.
    pub address: Vec<u8>,
    /// Whether the address is the permanent one.
    #[serde(default)]
    pub has_permanent_address: bool,
    /// Directory of the pinned programs and maps.
    pub pins: PathBuf,
    /// Number of managed queues.
    pub queues: u16,
    /// The bond that it is attached with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<String>,
    /// The user's options.
    pub options: Options,
    /// The controller; `None` before it starts and after it ends.
    pub controller: Option<Process>,
    /// Original XPS maps.
    pub maps: Vec<SavedMap>,
    /// Original segment sizes; `None` while they are unchanged.
    pub sizes: Option<Sizes>,
    /// Interface that receives queue weights.
    #[serde(alias = "weights_told_to")]
    pub weight_interface: Option<String>,
    /// Whether weights were set, so that they must be taken back.
    #[serde(default, alias = "weights_told")]
    pub weights_set: bool,
    /// The queues of the traffic class of each priority, a bit for each; none without classes.
    #[serde(default)]
    pub priority_queues: [u64; 16],
    /// Why the programs step aside; absent while they work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Aside>,
    /// Paths of the containers whose cgroup takes no program of ours, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_carried: BTreeMap<String, String>,
}

impl Journal {
    /// The journal of an attachment without changes.
    pub fn new(system: &System, link: &Link, pins: PathBuf, queues: u16, options: Options) -> Self {
        Self {
            version: VERSION,
            boot: system.boot(),
            namespace: System::namespace(),
            cookie: System::cookie(),
            device: link.name.clone(),
            index: link.index,
            address: link.address.clone(),
            has_permanent_address: link.has_permanent_address,
            pins,
            queues,
            upper: None,
            options,
            controller: None,
            maps: Vec::new(),
            sizes: None,
            weight_interface: None,
            weights_set: false,
            priority_queues: [0; 16],
            aside: None,
            not_carried: BTreeMap::new(),
        }
    }

    /// Writes the file. Fails with [`NicError::File`].
    pub fn save(&self, system: &System) -> Result<(), NicError> {
        let directory = system.make_private()?;
        let (name, path) = (self.file(), system.run().join(self.file()));
        let text = serde_json::to_string_pretty(self).expect("a journal is plain data");
        let written = directory.replace(&name, &text);
        written.map_err(|error| NicError::file(path, format!("cannot be written: {error}")))
    }

    /// Removes the file. A missing file is not an error. Fails with [`NicError::File`].
    pub fn remove(&self, system: &System) -> Result<(), NicError> {
        let Some(directory) = system.private()? else {
            return Ok(());
        };
        // The controller's log, if it wrote one.
        let _ = directory.remove(&self.log());
        directory.remove(&self.file()).map_err(|error| {
            let path = system.run().join(self.file());
            NicError::file(path, format!("cannot be removed: {error}"))
        })
    }

    fn file(&self) -> String {
        format!("{}-{}.json", self.namespace, self.index)
    }

    /// Name of the controller's log file.
    pub fn log(&self) -> String {
        format!("{}-{}.log", self.namespace, self.index)
    }

    /// The journals of this thread's namespace and of this boot. Fails with [`NicError::File`] if a file cannot be read
    /// or parsed.
    pub fn all(system: &System) -> Result<Vec<Self>, NicError> {
        let namespace = System::namespace();
        let prefix = format!("{namespace}-");
        let mut journals = Vec::new();
        let Some(directory) = system.private()? else {
            return Ok(journals);
        };
        let names = directory.names();
        for name in names.map_err(|error| denied(system.run(), error))? {
            if name.starts_with(&prefix) && name.ends_with(".json") {
                journals.extend(read(&directory, &name, &system.boot())?);
            }
        }
        journals.sort_by_key(|journal| journal.index);
        Ok(journals)
    }

    /// The journal of the device called `name` among `links`, which must be complete; else the journal of a removed
    /// device with that name. A device's former name does not match. Fails with [`NicError::File`].
    pub fn find(system: &System, links: &[Link], name: &str) -> Result<Option<Self>, NicError> {
        let journals = Self::all(system)?;
        let link = links.iter().find(|link| link.name == name);
        let of_link = |journal: &&Self| link.is_some_and(|link| journal.is_of(link));
        let was_called = |journal: &&Self| {
            journal.device == name && !links.iter().any(|link| journal.is_of(link))
        };
        let found = journals.iter().find(of_link);
        Ok(found.or_else(|| journals.iter().find(was_called)).cloned())
    }

    /// [`Journal::find`] among the current devices. Fails with [`NicError::File`] or the kernel's error.
    pub fn of_device(system: &System, name: &str) -> Result<Option<Self>, NicError> {
        Self::find(system, &Route::open()?.links()?, name)
    }

    /// Whether it belongs to this device, under any name and current address.
    pub fn is_of(&self, link: &Link) -> bool {
        let both_permanent = self.has_permanent_address && link.has_permanent_address;
        self.is_here()
            && self.index == link.index
            && (!both_permanent || self.address == link.address)
    }

    /// Whether its network namespace is this thread's, not an earlier one with the same number.
    pub fn is_here(&self) -> bool {
        let here = System::cookie();
        let known = self.cookie != 0 && here != 0;
        self.namespace == System::namespace() && (!known || self.cookie == here)
    }

    /// The controller, if it still runs.
    pub fn running(&self, system: &System) -> Option<Process> {
        self.controller
            .filter(|controller| controller.is_running(system))
    }
}

impl Process {
    /// The process with that id; `None` if there is none.
    pub fn of(system: &System, process: u32) -> Option<Self> {
        let started = started(&system.proc().text(&format!("{process}/stat"))?)?;
        Some(Self { process, started })
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_running(self, system: &System) -> bool {
        Self::of(system, self.process) == Some(self)
    }
}

/// Start time from `/proc/PID/stat`; `None` for an ended process. The name in parentheses may contain any character.
fn started(stat: &str) -> Option<u64> {
    const STATE: usize = 0;
    const STARTED: usize = 19;
    let after_name = stat.rsplit_once(')')?.1;
    let words: Vec<&str> = after_name.split_whitespace().collect();
    match *words.get(STATE)? {
        "Z" | "X" => None,
        _ => words.get(STARTED)?.parse().ok(),
    }
}

/// The lock held during attach and detach. Its file is removed with it.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
    directory: PrivateDirectory,
    name: String,
}

impl Lock {
    /// Takes the lock of a device. Fails with [`NicError::Busy`] if another process holds it.
    pub fn take(system: &System, device: &str) -> Result<Self, NicError> {
        let name = format!("{}-{device}.lock", System::namespace());
        let path = system.run().join(&name);
        loop {
            let directory = system.make_private()?;
            let file = directory.lock_file(&name);
            let file = file.map_err(|error| denied(&path, error))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(NicError::Busy {
                        device: device.to_owned(),
                    });
                }
                Err(error) => return Err(denied(&path, error.into())),
            }
            // The previous holder may have removed the file between the two calls; then our lock has no name any more.
            if directory.names_file(&name, &file) {
                return Ok(Self {
                    file,
                    directory,
                    name,
                });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while the lock is held, so that no other lock file is removed. A file that stays does no harm.
        if self.directory.names_file(&self.name, &self.file) {
            let _ = self.directory.remove(&self.name);
        }
    }
}

/// Reads a journal; `None` if it is of another boot or was removed meanwhile.
fn read(directory: &PrivateDirectory, name: &str, boot: &str) -> Result<Option<Journal>, NicError> {
    let path = &directory.path().join(name);
    let text = directory.read(name, BYTES_MAX);
    match text.map_err(|error| denied(path, error))? {
        Some(text) => parse(path, name, &text, boot),
        None => Ok(None),
    }
}

/// The journal in `text`, the content of the file `name` at `path`; `None` if it is of another boot. Fails if it is no
/// journal, or a field has an invalid value.
pub fn parse(path: &Path, name: &str, text: &str, boot: &str) -> Result<Option<Journal>, NicError> {
    let mut journal: Journal = serde_json::from_str(text).map_err(|error| {
        let detail =
            format!("is not a journal of isolane ({error}); remove it if nothing is attached");
        NicError::file(path, detail)
    })?;
    if journal.version == 1 {
        journal.version = VERSION;
    }
    match (journal.version == VERSION, journal.boot == boot) {
        (_, false) => Ok(None),
        (true, true) if journal.file() != name => {
            let detail = format!("is the journal {}; remove it", journal.file());
            Err(NicError::file(path, detail))
        }
        (true, true) => match checks::check(&journal) {
            Ok(()) => Ok(Some(journal)),
            Err(wrong) => Err(NicError::file(path, wrong)),
        },
        (false, true) => {
            let detail = format!(
                "has form {}, not {VERSION}: use that version",
                journal.version
            );
            Err(NicError::file(path, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_ethernet_bpf::bpffs;
    use std::fs;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            address: vec![2, 0, 0, 0, 0, 1],
            ..Link::default()
        }
    }

    fn journal(system: &System, index: u32, name: &str) -> Journal {
        Journal::new(
            system,
            &link(index, name),
            PathBuf::from(bpffs::OWN).join(format!("nic-{}-{index}", System::namespace())),
            8,
            Options::default(),
        )
    }

    #[test]
    fn a_journal_is_found_by_device_or_by_old_name() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let saved = journal(&system, 3, "eth0");
        saved.save(&system).unwrap();
        let find = |links: &[Link], name| Journal::find(&system, links, name).unwrap();
        let renamed = [link(3, "renamed"), link(4, "eth0")];
        assert_eq!(find(&renamed, "renamed"), Some(saved.clone()));
        assert_eq!(find(&renamed, "eth0"), None, "another device");
        assert_eq!(find(&renamed[..1], "eth0"), None, "it is there");
        assert_eq!(
            find(&renamed[1..], "eth0"),
            Some(saved.clone()),
            "what eth0 was is gone"
        );
        assert_eq!(find(&[], "eth1"), None);
        saved.remove(&system).unwrap();
        saved.remove(&system).unwrap();
        assert_eq!(find(&[], "eth0"), None);
    }

    #[test]
    fn a_device_is_known_by_what_cannot_change() {
        let system = System::machine();
        let mut other_address = link(3, "eth0");
        other_address.address[5] = 2;
        let journal = journal(&system, 3, "eth0");
        assert!(journal.is_of(&other_address), "any user may set it");
        let permanent = Journal {
            has_permanent_address: true,
            ..journal.clone()
        };
        assert!(permanent.is_of(&other_address), "one side does not know");
        other_address.has_permanent_address = true;
        assert!(!permanent.is_of(&other_address) && !journal.is_of(&link(4, "eth0")));
        let ended = Journal {
            cookie: journal.cookie + 1,
            ..journal.clone()
        };
        assert!(journal.cookie != 0 && !ended.is_of(&link(3, "eth0")));
    }

    #[test]
    fn another_boot_or_namespace_is_none_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let other_boot = Journal {
            boot: "x".to_owned(),
            ..journal(&system, 3, "eth0")
        };
        other_boot.save(&system).unwrap();
        let other_namespace = Journal {
            namespace: 1,
            ..journal(&system, 4, "eth0")
        };
        other_namespace.save(&system).unwrap();
        assert_eq!(Journal::all(&system).unwrap(), []);
    }

    /// Programs stay attached when the release changes, and the next one must be able to detach them.
    #[test]
    fn a_journal_of_version_1_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let saved = Journal {
            weight_interface: Some("titan".to_owned()),
            weights_set: true,
            ..journal(&system, 3, "eth0")
        };
        saved.save(&system).unwrap();
        let path = system.run().join(saved.file());
        let mut before = fs::read_to_string(&path).unwrap();
        for (present, old) in [
            ("\"version\": 2", "\"version\": 1"),
            ("weight_interface", "weights_told_to"),
            ("weights_set", "weights_told"),
        ] {
            assert!(before.contains(present), "{present}: {before}");
            before = before.replace(present, old);
        }
        fs::write(&path, before).unwrap();
        assert_eq!(Journal::all(&system).unwrap(), [saved]);
    }

    #[test]
    fn a_damaged_journal_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        fs::create_dir_all(system.run()).unwrap();
        let file = format!("{}-3.json", System::namespace());
        fs::write(system.run().join(&file), "{\"version\":").unwrap();
        let error = Journal::all(&system).unwrap_err().to_string();
        assert!(
            error.contains(&file) && error.contains("remove it"),
            "{error}"
        );
    }

    /// A program with the superuser's rights follows no link that another user put into the directory.
    #[test]
    fn links_in_the_directory_are_not_followed() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let precious = directory.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let saved = journal(&system, 3, "eth0");
        saved.save(&system).unwrap();
        let at = |name: &str| system.run().join(name);
        symlink(&precious, at(&format!("{}.part", saved.file()))).unwrap();
        symlink(&precious, at(&format!("{}-eth0.lock", System::namespace()))).unwrap();
        saved.save(&system).unwrap();
        assert!(Lock::take(&system, "eth0").is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        fs::remove_file(at(&saved.file())).unwrap();
        symlink(&precious, at(&saved.file())).unwrap();
        let error = Journal::all(&system).unwrap_err().to_string();
        assert!(error.contains("is a link; remove it"), "{error}");
    }

    #[test]
    fn a_journal_of_another_device_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let saved = journal(&system, 3, "eth0");
        saved.save(&system).unwrap();
        let other = format!("{}-4.json", System::namespace());
        fs::rename(system.run().join(saved.file()), system.run().join(other)).unwrap();
        let error = Journal::all(&system).unwrap_err().to_string();
        assert!(error.contains("is the journal"), "{error}");
    }

    #[test]
    fn only_one_attaches_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let lock = Lock::take(&system, "eth0").unwrap();
        assert!(matches!(
            Lock::take(&system, "eth0"),
            Err(NicError::Busy { .. })
        ));
        Lock::take(&system, "eth1").unwrap();
        drop(lock);
        let again = Lock::take(&system, "eth0").unwrap();
        assert_eq!(fs::read_dir(system.run()).unwrap().count(), 1);
        drop(again);
        assert_eq!(
            fs::read_dir(system.run()).unwrap().count(),
            0,
            "no file stays"
        );
    }

    /// Goal: of many concurrent callers, one at a time holds the lock although each removes the file. Method: the
    /// holder changes a counter in two steps.
    #[test]
    fn a_removed_file_admits_no_process_twice() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while taken.load(Ordering::Relaxed) < 200 {
                        let Ok(lock) = Lock::take(&system, "eth0") else {
                            std::thread::yield_now();
                            continue;
                        };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        taken.fetch_add(1, Ordering::Relaxed);
                        drop(lock);
                    }
                });
            }
        });
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let system = System::machine();
        let own = Process::of(&system, std::process::id()).unwrap();
        assert!(own.is_running(&system));
        assert!(
            !Process {
                started: own.started + 1,
                ..own
            }
            .is_running(&system)
        );
        let line = "7 (a) S) R 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 1000";
        assert_eq!(started(line), Some(4242));
        assert_eq!(started(&line.replace(" R ", " Z ")), None);
    }
}
