//! What the service changed on the machine, written down before it is changed, so that its successor can undo it.
//!
//! Problem: the service may be killed at any moment; applications must keep running, their limits must be reconciled,
//! and no cgroup of ours may be left behind. Method: one JSON file below the runtime directory, replaced as a whole
//! (written beside, then renamed). An entry is written before its cgroup is made and removed after the cgroup is gone,
//! so at any moment all of ours are in it. A journal of another boot is void: no cgroup outlives a boot. A lock file
//! keeps a second service away. The service writes to cgroups by what the journal says, so the directory is its own, no
//! link in it is followed ([`PrivateDirectory`]), and paths and values have the form of those that the service wrote.
//! Limits: the directory is in memory (`/run`), so nothing is synced to a disk. A foreign cgroup is known by path and
//! inode; cgroup inodes are not used again while a kernel runs.

use crate::application::Application;
use crate::backend::BackendKind;
use isolane_common_linux::private::PrivateDirectory;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The name of the file.
const FILE: &str = "journal.json";
/// The form of the file. Form 1, of an earlier release, calls an application's objective `promise`; all else is equal.
const VERSION: u32 = 2;
/// The directory of the journal.
pub const DIRECTORY: &str = "/run/isolane/mem";
/// Most applications of one service.
pub const APPLICATIONS_MAX: usize = 256;
/// Most entries: applications under control, and as many released ones whose processes still run in their cgroups.
pub const ENTRIES_MAX: usize = 2 * APPLICATIONS_MAX;
/// Largest journal that is read: none of ours is larger, as an entry is a request with a path, escaped.
const SIZE_MAX: u64 = (ENTRIES_MAX * 2 * crate::protocol::REQUEST_MAX) as u64;

/// What was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Form of the file.
    pub version: u32,
    /// The boot it belongs to.
    pub boot: String,
    /// What has been writing tier limits; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKind>,
    /// The next application's number: numbers are not used again.
    pub next_id: u32,
    /// The applications, by number.
    pub entries: Vec<Entry>,
    /// Limits of earlier backends that could not be lifted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<Owed>,
}

/// A limit that an earlier backend wrote, and that is still to be lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owed {
    /// What wrote it.
    pub backend: BackendKind,
    /// The application's name.
    pub name: String,
    /// Its cgroup, below the cgroup root.
    pub cgroup: String,
    /// The cgroup's inode; absent where it was ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// `cpuset.mems` as it was; absent where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mems_before: Option<String>,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub application: Application,
    /// Its cgroup, below the cgroup root.
    pub cgroup: String,
    /// Inode of a foreign cgroup; another inode at the path is another application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Whether the cgroup is ours to remove.
    pub own: bool,
    /// `cpu.max` as it was; absent where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_before: Option<String>,
    /// What we wrote to `cpu.max` last, and are about to write: any other value is foreign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ours: Vec<String>,
    /// `cpuset.mems` as it was; absent where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mems_before: Option<String>,
    /// The memory assumed where the application does not say.
    pub memory_bytes: u64,
    /// What the machine refuses it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Let go, but its tier limits may still be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
    /// No longer under control; the entry stays until its cgroup is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
}

/// Why the journal cannot be kept.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum JournalError {
    #[error("the journal {}: {detail}", path.display())]
    File {
        path: PathBuf,
        /// What is wrong, and what to do.
        detail: String,
    },
    #[error("another memory service runs here: it holds {}; stop it first", path.display())]
    Busy { path: PathBuf },
    #[error("{} may not be written: run as root, or choose another directory (run_dir)", path.display())]
    NotPermitted { path: PathBuf },
}

/// Where a journal is kept.
pub trait Store: Send {
    /// The journal of this boot; an empty one where there is none. Fails if it is damaged or cannot be read.
    fn load(&mut self) -> Result<Journal, JournalError>;

    /// Replaces it. Fails if it cannot be written; the old one is as it was.
    fn save(&mut self, journal: &Journal) -> Result<(), JournalError>;
}

impl Journal {
    /// One without applications.
    pub fn empty(boot: &str) -> Self {
        Self {
            version: VERSION,
            boot: boot.to_owned(),
            backend: None,
            next_id: 1,
            entries: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// The journal in `text`, written in this form or an earlier one.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        // Read alone: a later form may have fields that this one rejects.
        if let Ok(Form { version }) = serde_json::from_str(text)
            && !(1..=VERSION).contains(&version)
        {
            return Err(format!(
                "has form {version}, not {VERSION}: use that release to end what it began"
            ));
        }
        let mut journal: Self = serde_json::from_str(text).map_err(|error| {
            format!("is no journal of ours ({error}); remove it if nothing is under control")
        })?;
        journal.version = VERSION;
        for entry in &journal.entries {
            let name = &entry.application.name;
            let checked = entry.application.check();
            checked.map_err(|error| format!("application {name}: {error}"))?;
            check_cgroup(name, &entry.cgroup)?;
            let mut limits = entry.cpu_before.iter().chain(&entry.cpu_ours);
            if let Some(limit) = limits.find(|limit| !is_cpu_limit(limit)) {
                return Err(format!(
                    "application {name}: cpu.max = {limit:?}; must be `max PERIOD` or `QUOTA PERIOD`"
                ));
            }
            check_nodes(name, entry.mems_before.as_deref())?;
            if entry.id >= journal.next_id {
                return Err(format!(
                    "application {name} has number {} of the future",
                    entry.id
                ));
            }
        }
        for owed in &journal.owed {
            check_cgroup(&owed.name, &owed.cgroup)?;
            check_nodes(&owed.name, owed.mems_before.as_deref())?;
        }
        Ok(journal)
    }
}

/// Whether a path stays below the cgroup root.
fn check_cgroup(name: &str, cgroup: &str) -> Result<(), String> {
    let is_below = !cgroup.split('/').any(|part| part == "..") && !cgroup.contains('\0');
    match is_below {
        true => Ok(()),
        false => Err(format!(
            "application {name}: cgroup = {cgroup:?}; must be a path below the cgroup root, without `..`"
        )),
    }
}

/// Whether `text` is what `cpu.max` says.
fn is_cpu_limit(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    matches!(words[..], [quota, period] if (quota == "max" || is_number(quota)) && is_number(period))
}

/// Whether `mems` is what `cpuset.mems` says.
fn check_nodes(name: &str, mems: Option<&str>) -> Result<(), String> {
    let is_list = |list: &str| {
        let plain = |byte: u8| byte.is_ascii_digit() || byte == b',' || byte == b'-';
        list.bytes().all(plain)
    };
    match mems.is_none_or(is_list) {
        true => Ok(()),
        false => Err(format!(
            "application {name}: cpuset.mems = {mems:?}; must be a list of nodes such as 0-1,3"
        )),
    }
}

/// A journal in a directory, with the directory's lock.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    directory: PrivateDirectory,
    boot: String,
    _lock: OwnedFd,
}

impl FileStore {
    /// Takes the directory, making it where it is not there; `boot` names this boot. Fails if another service has it,
    /// or if permission is missing.
    pub fn open(directory: &Path, boot: &str) -> Result<Self, JournalError> {
        let private = PrivateDirectory::open_or_make(directory);
        let private = private.map_err(|error| failed(directory, &error))?;
        let path = directory.join("lock");
        let lock = private.lock_file("lock");
        let lock = lock.map_err(|error| failed(&path, &error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::Busy { path }),
            Err(error) => return Err(failed(&path, &error.into())),
        }
        Ok(Self {
            path: directory.join(FILE),
            directory: private,
            boot: boot.to_owned(),
            _lock: lock,
        })
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Journal, JournalError> {
        let file = |detail: String| JournalError::File {
            path: self.path.clone(),
            detail,
        };
        let text = self.directory.read(FILE, SIZE_MAX);
        let Some(text) = text.map_err(|error| failed(&self.path, &error))? else {
            return Ok(Journal::empty(&self.boot));
        };
        #[derive(Deserialize)]
        struct Boot {
            boot: String,
        }
        // The form of another boot's journal does not matter: nothing of it lives on.
        if let Ok(of) = serde_json::from_str::<Boot>(&text)
            && of.boot != self.boot
        {
            return Ok(Journal::empty(&self.boot));
        }
        Journal::parse(&text).map_err(file)
    }

    fn save(&mut self, journal: &Journal) -> Result<(), JournalError> {
        let mut text = serde_json::to_string(journal).expect("a journal is plain data");
        text.push('\n');
        let written = self.directory.replace(FILE, &text);
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> JournalError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            JournalError::NotPermitted { path }
        }
        _ => JournalError::File {
            path,
            detail: error.to_string(),
        },
    }
}

/// This boot's name.
pub fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::tests::redis;
    use std::fs;

    fn entry(id: u32) -> Entry {
        Entry {
            id,
            application: redis(),
            cgroup: "/isolane/redis".to_owned(),
            inode: None,
            own: true,
            cpu_before: Some("max 100000".to_owned()),
            cpu_ours: vec!["50000 100000".to_owned()],
            mems_before: Some(String::new()),
            memory_bytes: 1 << 30,
            trouble: Some("no".to_owned()),
            limited: false,
            let_go: false,
        }
    }

    fn journal() -> Journal {
        Journal {
            backend: Some(BackendKind::Cpuset),
            next_id: 4,
            entries: vec![entry(3)],
            ..Journal::empty("now")
        }
    }

    #[test]
    fn what_is_saved_is_loaded_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "now").unwrap();
        assert_eq!(store.load().unwrap(), Journal::empty("now"));
        store.save(&journal()).unwrap();
        drop(store);
        let mut next = FileStore::open(directory.path(), "now").unwrap();
        assert_eq!(next.load().unwrap(), journal());
    }

    /// The journal survives the service, so the next release finds the applications of this one under control.
    #[test]
    fn a_journal_of_form_1_is_read_and_saved_in_the_present_form() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "now").unwrap();
        let before = r#"{"version":1,"boot":"now","backend":"cpuset","next_id":4,"entries":[{"id":3,
            "application":{"name":"redis","promise":{"latency_ps":160000},"priority":3,"weight":1000},
            "cgroup":"/isolane/redis","own":true,"cpu_before":"max 100000","cpu_ours":["50000 100000"],"mems_before":"",
            "memory_bytes":1073741824,"trouble":"no"}]}"#;
        fs::write(directory.path().join(FILE), before).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!(loaded, journal());
        store.save(&loaded).unwrap();
        let saved = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(saved.contains("\"version\":2"), "{saved}");
        assert!(!saved.contains("promise"), "{saved}");
        assert_eq!(store.load().unwrap(), journal());
    }

    #[test]
    fn another_boot_is_void() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "before").unwrap();
        store
            .save(&Journal {
                boot: "before".into(),
                version: 99,
                ..journal()
            })
            .unwrap();
        drop(store);
        let mut next = FileStore::open(directory.path(), "now").unwrap();
        assert_eq!(next.load().unwrap(), Journal::empty("now"));
    }

    #[test]
    fn one_service_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = FileStore::open(directory.path(), "now").unwrap();
        let second = FileStore::open(directory.path(), "now").unwrap_err();
        assert!(matches!(second, JournalError::Busy { .. }), "{second}");
        drop(first);
        FileStore::open(directory.path(), "now").unwrap();
    }

    #[test]
    fn damage_is_named_and_never_counts_as_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "now").unwrap();
        let said = |store: &mut FileStore, text: &str| {
            fs::write(directory.path().join("journal.json"), text).unwrap();
            store.load().unwrap_err().to_string()
        };
        assert!(said(&mut store, "").contains("is no journal of ours"));
        assert!(said(&mut store, "{\"boot\":\"now\"}").contains("remove it if"));
        let good = serde_json::to_string(&journal()).unwrap();
        let later = "\"version\":9,\"of_a_later_release\":1";
        let later = good.replace("\"version\":2", later);
        assert!(said(&mut store, &later).contains("form 9"));
        assert!(
            said(&mut store, &good.replace("\"next_id\":4", "\"next_id\":3")).contains("future")
        );
        assert!(
            said(
                &mut store,
                &good.replace("\"priority\":3", "\"priority\":9999999")
            )
            .contains("priority")
        );
        for cut in 0..good.len() {
            let message = said(&mut store, &good[..cut]);
            assert!(message.contains("is no journal"), "{cut}: {message}");
        }
    }

    /// A changed journal cannot make the service write elsewhere, nor through a link.
    #[test]
    fn a_forged_journal_is_refused() {
        let forged = |change: &dyn Fn(&mut Journal)| {
            let mut journal = journal();
            change(&mut journal);
            let text = serde_json::to_string(&journal).unwrap();
            Journal::parse(&text).expect_err("forged")
        };
        let error = forged(&|journal| journal.entries[0].cgroup = "/a/../../etc".to_owned());
        assert!(error.contains("below the cgroup root"), "{error}");
        let error = forged(&|journal| journal.entries[0].cpu_before = Some("max".to_owned()));
        assert!(error.contains("cpu.max"), "{error}");
        let error = forged(&|journal| journal.entries[0].mems_before = Some("0\n1".to_owned()));
        assert!(error.contains("cpuset.mems"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "boot-1").unwrap();
        let precious = directory.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in [FILE, "journal.json.part"] {
            std::os::unix::fs::symlink(&precious, directory.path().join(name)).unwrap();
        }
        assert!(store.load().is_err());
        store.save(&Journal::empty("boot-1")).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(store.load().is_ok());
    }

    #[test]
    fn a_full_disk_keeps_the_old_journal() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(directory.path(), "now").unwrap();
        store.save(&journal()).unwrap();
        // A directory in the place of the part: the write fails as on a full disk, for root too.
        fs::create_dir(directory.path().join("journal.json.part")).unwrap();
        assert!(store.save(&Journal::empty("now")).is_err());
        assert_eq!(store.load().unwrap(), journal());
    }
}
