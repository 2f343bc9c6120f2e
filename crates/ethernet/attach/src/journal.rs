//! What an attachment changed, written down before it is changed, so that anybody can undo it.
//!
//! Problem: the controller may be killed at any time, and the device may go away; what it changed must still be undone,
//! once, by whoever comes next.
//! Method: one JSON file for each device below the runtime directory, named by network namespace and device number, as
//! numbers of devices repeat from namespace to namespace. It is replaced as a whole (written beside, renamed). A lock
//! file serialises those who attach and detach. A journal of another boot is void: nothing of it lives on.
//! A journal makes a privileged program write to the device, so the directory is the superuser's alone, no link in it is
//! followed ([`PrivateDirectory`]), and every field is checked when the file is read (`checks`).
//! A device is the journal's if the namespace's cookie and the device's number agree, neither of which is used again,
//! and its permanent address where it has one. Its name and its present address may change meanwhile.
//! Limits: a kernel before 5.14 has no cookies; there a namespace that has ended may be taken for one that got its number.

use crate::effect::Aside;
use crate::error::NicError;
use crate::link::{Link, Route, Sizes};
use crate::options::Options;
use crate::queues::SavedMap;
use crate::system::{System, denied};
use isolane_common_linux::private::PrivateDirectory;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

mod checks;

/// The form of the file.
const VERSION: u32 = 1;
/// Longest journal, bytes: two maps of 4 KiB for each of the most queues that a device has would be more, and no device has
/// such maps.
const BYTES_MAX: u64 = 4 << 20;

/// A process that is told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub process: u32,
    /// Start in ticks since boot.
    pub started: u64,
}

/// What was changed, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Form of the file.
    pub version: u32,
    /// The boot it belongs to.
    pub boot: String,
    /// Network namespace.
    pub namespace: u64,
    /// Its cookie, 0 where the kernel does not tell.
    #[serde(default)]
    pub cookie: u64,
    /// The device's name when it was attached.
    pub device: String,
    /// Its number.
    pub index: u32,
    /// Its hardware address.
    pub address: Vec<u8>,
    /// Whether that is the permanent one.
    #[serde(default)]
    pub has_permanent_address: bool,
    /// Where programs and maps are pinned.
    pub pins: PathBuf,
    /// Queues that are managed.
    pub queues: u16,
    /// What the user asked for.
    pub options: Options,
    /// Who controls it; none before and after.
    pub controller: Option<Process>,
    /// XPS maps as they were.
    pub maps: Vec<SavedMap>,
    /// Segment sizes as they were before they were reduced; none while they are not.
    pub sizes: Option<Sizes>,
    /// Who is told queue weights.
    pub weights_told_to: Option<String>,
    /// Whether he was told any, so that what he made of them is ours to take back.
    #[serde(default)]
    pub weights_told: bool,
    /// Why the programs do nothing; absent while they work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Aside>,
}

impl Journal {
    /// The journal of an attachment that has changed nothing yet.
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
            options,
            controller: None,
            maps: Vec::new(),
            sizes: None,
            weights_told_to: None,
            weights_told: false,
            aside: None,
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`NicError::File`].
    pub fn save(&self, system: &System) -> Result<(), NicError> {
        let directory = system.make_private()?;
        let (name, path) = (self.file(), system.run().join(self.file()));
        let text = serde_json::to_string_pretty(self).expect("a journal is plain data");
        let written = directory.replace(&name, &text);
        written.map_err(|error| NicError::file(path, format!("cannot be written: {error}")))
    }

    /// Removes it. One that is gone is as good.
    ///
    /// # Errors
    /// [`NicError::File`].
    pub fn remove(&self, system: &System) -> Result<(), NicError> {
        let Some(directory) = system.private()? else {
            return Ok(());
        };
        // The controller's last words, if it had any.
        let _ = directory.remove(&self.log());
        directory.remove(&self.file()).map_err(|error| {
            let path = system.run().join(self.file());
            NicError::file(path, format!("cannot be removed: {error}"))
        })
    }

    /// The name of its file.
    fn file(&self) -> String {
        format!("{}-{}.json", self.namespace, self.index)
    }

    /// The name of the file with the controller's last words.
    pub fn log(&self) -> String {
        format!("{}-{}.log", self.namespace, self.index)
    }

    /// The journals of this thread's namespace and of this boot.
    ///
    /// # Errors
    /// [`NicError::File`] if one cannot be read or understood.
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

    /// The journal of the device that is called so among `links`, which are all there are; else that of a device which
    /// was called so and is gone. A device that has another name now is not meant by its old one.
    ///
    /// # Errors
    /// [`NicError::File`].
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

    /// [`Journal::find`] among the devices that there are now.
    ///
    /// # Errors
    /// [`NicError::File`], and the kernel's.
    pub fn of_device(system: &System, name: &str) -> Result<Option<Self>, NicError> {
        Self::find(system, &Route::open()?.links()?, name)
    }

    /// Whether it is about this device, under whatever name and present address.
    pub fn is_of(&self, link: &Link) -> bool {
        let both_permanent = self.has_permanent_address && link.has_permanent_address;
        self.is_here()
            && self.index == link.index
            && (!both_permanent || self.address == link.address)
    }

    /// Whether its network namespace is this thread's, not an earlier one of the same number.
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
    /// The process of that number; none when there is none.
    pub fn of(system: &System, process: u32) -> Option<Self> {
        let started = started(&system.proc().text(&format!("{process}/stat"))?)?;
        Some(Self { process, started })
    }

    /// Whether it still runs: a process that has ended but was not waited for does not.
    pub fn is_running(self, system: &System) -> bool {
        Self::of(system, self.process) == Some(self)
    }
}

/// Start of a process from `/proc/PID/stat`, none for one that has ended. Its name, in parentheses, may hold anything.
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

/// Held while a device is attached or detached. Its file goes with it.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
    directory: PrivateDirectory,
    name: String,
}

impl Lock {
    /// Takes the lock of a device.
    ///
    /// # Errors
    /// [`NicError::Busy`] if somebody else has it.
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
            // Otherwise whoever had it before removed the file between the two calls: ours has no name any more.
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
        // While it is still held, so that nobody else's is removed. One that stays does no harm.
        if self.directory.names_file(&self.name, &self.file) {
            let _ = self.directory.remove(&self.name);
        }
    }
}

/// A journal; none if it is of another boot or went away meanwhile.
fn read(directory: &PrivateDirectory, name: &str, boot: &str) -> Result<Option<Journal>, NicError> {
    let path = &directory.path().join(name);
    let text = directory.read(name, BYTES_MAX);
    let Some(text) = text.map_err(|error| denied(path, error))? else {
        return Ok(None);
    };
    let journal: Journal = serde_json::from_str(&text).map_err(|error| {
        let detail = format!("is no journal of ours ({error}); remove it if nothing is attached");
        NicError::file(path, detail)
    })?;
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
        assert!(journal.is_of(&other_address), "anybody may set it");
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

    /// A program with the rights of the superuser follows no link that somebody else put into the directory.
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

    /// Goal: of many that try at once, one at a time has it, though each removes the file. Method: a counter that only
    /// whoever has the lock changes, in two steps.
    #[test]
    fn a_removed_file_lets_nobody_in_twice() {
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
