//! The journal of a device: each previous value, written before the value is changed.
//!
//! Problem: the program may be killed at any time, and the previous values must still be restorable. Method: one file of
//! JSON lines per device. `change` has the previous value and is appended before the write; `made` is appended after the
//! value was read back; `undone` after the previous value was read back; `complete` after the last setting of a plan. Of
//! several changes of one object the first previous value and the last new value count. A journal is read, written and
//! removed under its lock, while its name refers to it. A journal of another boot is
//! void: the kernel keeps none of these settings over a boot. The directory is the superuser's alone, and no link in it
//! is followed. A journal has the network namespace and the kernel's number of each device, because names repeat across
//! namespaces and change. Limits: one journal per name of a device on a host: a second
//! namespace with a device of the same name is refused.

use crate::error::HardwareError;
use crate::setting::{Target, Value};
use isolane_common_journal::Journal;
use isolane_common_linux::Root;
use isolane_common_linux::network_namespace::NetworkNamespace;
use isolane_common_linux::private::PrivateDirectory;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Directory of journals.
pub const DIRECTORY: &str = "/run/isolane/hardware";
/// Version of the file's format.
const VERSION: u32 = 2;
/// An earlier version, without namespace and numbers of devices.
const VERSION_WITHOUT_PLACE: u32 = 1;
const SUFFIX: &str = ".journal";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Begin {
        version: u32,
        boot: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<NetworkNamespace>,
    },
    Change {
        target: Target,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        before: Value,
        after: Value,
    },
    Made {
        target: Target,
    },
    Undone {
        target: Target,
    },
    Complete,
}

/// A changed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object.
    pub target: Target,
    /// The kernel's number of its device; absent in a journal of version 1, and for an object without a device that can be
    /// renamed.
    pub number: Option<u64>,
    /// Its value before the first change.
    pub before: Value,
    /// Its value after the last change.
    pub after: Value,
    /// Whether the last change was read back.
    pub made: bool,
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes in force, in the order of their first change.
    pub entries: Vec<Entry>,
    /// Whether the last plan was made to its end.
    pub complete: bool,
    /// The network namespace of the changes; absent in a journal of version 1.
    pub namespace: Option<NetworkNamespace>,
}

/// An open journal and its content.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    journal: Journal,
    changes: Changes,
}

/// What the directory has for a device.
#[derive(Debug)]
pub enum Found {
    /// No journal: nothing is changed.
    Nothing,
    /// A journal of an earlier boot, whose changes are gone.
    OtherBoot(Void),
    /// Changes of this boot.
    Record(Record),
}

/// A locked journal without a change of this boot.
#[derive(Debug)]
pub struct Void {
    path: PathBuf,
    /// Keeps the lock until the file is removed.
    journal: Journal,
}

impl Void {
    /// Removes the file. Fails if it cannot be removed.
    pub fn remove(self) -> Result<(), HardwareError> {
        let removed = remove(&self.path);
        drop(self.journal);
        removed
    }
}

impl Record {
    /// Opens the journal of `device` and excludes other writers. Fails with [`HardwareError::Busy`],
    /// [`HardwareError::Journal`] or [`HardwareError::Damaged`].
    pub fn find(directory: &Path, device: &str) -> Result<Found, HardwareError> {
        let path = path(directory, device);
        let private = match PrivateDirectory::open(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(HardwareError::journal(directory, error)),
            Ok(private) => private,
        };
        let (journal, bytes) = loop {
            let found = match Journal::open_locked(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
                found => found.map_err(|error| HardwareError::locked(&path, error))?,
            };
            // The previous holder may have removed the file between the opening and the lock.
            if private.names_file(&name(device), &found.0) {
                break found;
            }
        };
        match Changes::parse(&bytes, &boot()) {
            Ok(None) => Ok(Found::OtherBoot(Void { path, journal })),
            Ok(Some(Changes {
                namespace: Some(of),
                ..
            })) if !of.is(NetworkNamespace::here()) => Err(HardwareError::OtherNamespace {
                path,
                of: of.inode,
                here: NetworkNamespace::here().inode,
            }),
            Ok(Some(changes)) => Ok(Found::Record(Self {
                path,
                journal,
                changes,
            })),
            Err((line, detail)) => Err(HardwareError::Damaged { path, line, detail }),
        }
    }

    /// The journal of `device`; makes an empty one if there is none of this boot.
    pub fn open_or_make(directory: &Path, device: &str) -> Result<Self, HardwareError> {
        let private = PrivateDirectory::open_or_make(directory)
            .map_err(|error| HardwareError::journal(directory, error))?;
        let path = path(directory, device);
        let mut journal = loop {
            match Self::find(directory, device)? {
                Found::Record(record) => return Ok(record),
                Found::OtherBoot(void) => void.remove()?,
                Found::Nothing => {}
            }
            let journal = match Journal::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(|error| HardwareError::journal(&path, error))?,
            };
            let locked = journal.lock();
            locked.map_err(|error| HardwareError::locked(&path, error))?;
            // Another process may have taken the empty file for a void one, and removed it.
            if private.names_file(&name(device), &journal) {
                break journal;
            }
        };
        let namespace = Some(NetworkNamespace::here());
        append(
            &mut journal,
            &path,
            &Line::Begin {
                version: VERSION,
                boot: boot(),
                namespace,
            },
        )?;
        Ok(Self {
            path,
            journal,
            changes: Changes {
                namespace,
                ..Changes::default()
            },
        })
    }

    /// The devices that have a journal of this boot, sorted. Fails if the directory cannot be read.
    pub fn devices(directory: &Path) -> Result<Vec<String>, HardwareError> {
        let names = match PrivateDirectory::open(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.and_then(|opened| opened.names()),
        };
        let names = names.map_err(|error| HardwareError::journal(directory, error))?;
        let device = |name: String| name.strip_suffix(SUFFIX).map(str::to_owned);
        Ok(names.into_iter().filter_map(device).collect())
    }

    /// Changes in force, in the order of their first change.
    pub fn entries(&self) -> &[Entry] {
        &self.changes.entries
    }

    /// Whether the last plan was made to its end.
    pub fn is_complete(&self) -> bool {
        self.changes.complete
    }

    /// Whether the journal says of which device the entry is.
    pub fn knows_device(&self, entry: &Entry) -> bool {
        let has_number = entry.target.renamable().is_none() || entry.number.is_some();
        self.changes.namespace.is_some() && has_number
    }

    /// Records that `target`, of the device with this number, is about to get `after`. Fails if the journal cannot be written; then nothing may be
    /// changed.
    pub fn change(
        &mut self,
        target: &Target,
        number: Option<u64>,
        before: &Value,
        after: &Value,
    ) -> Result<(), HardwareError> {
        self.line(Line::Change {
            target: target.clone(),
            number,
            before: before.clone(),
            after: after.clone(),
        })
    }

    /// Records that the new value of `target` was read back. Fails if the journal cannot be written.
    pub fn made(&mut self, target: &Target) -> Result<(), HardwareError> {
        self.line(Line::Made {
            target: target.clone(),
        })
    }

    /// Records that the previous value of `target` was read back. Fails if the journal cannot be written.
    pub fn undone(&mut self, target: &Target) -> Result<(), HardwareError> {
        self.line(Line::Undone {
            target: target.clone(),
        })
    }

    /// Records that every setting of a plan is made. Fails if the journal cannot be written.
    pub fn finish(&mut self) -> Result<(), HardwareError> {
        self.line(Line::Complete)
    }

    /// Removes the journal: nothing of ours is in force. Fails if the file cannot be removed.
    pub fn remove(self) -> Result<(), HardwareError> {
        assert!(
            self.changes.entries.is_empty(),
            "a change in force keeps its journal"
        );
        remove(&self.path)
    }

    fn line(&mut self, line: Line) -> Result<(), HardwareError> {
        append(&mut self.journal, &self.path, &line)?;
        self.changes.take(line);
        Ok(())
    }
}

impl Changes {
    /// What a journal of the boot `boot` says; `None` for one of another boot. The error is the number of a line and what is
    /// wrong with it.
    pub fn parse(bytes: &[u8], boot: &str) -> Result<Option<Self>, (usize, String)> {
        let mut lines = Vec::new();
        for (index, bytes) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = serde_json::from_slice(bytes);
            lines.push(line.map_err(|error| (index + 1, error.to_string()))?);
        }
        match lines.first() {
            // Killed between making the file and its first line: nothing was changed.
            None => return Ok(None),
            Some(Line::Begin { version, .. })
                if ![VERSION_WITHOUT_PLACE, VERSION].contains(version) =>
            {
                return Err((
                    1,
                    format!("version {version}; this program reads {VERSION}"),
                ));
            }
            Some(Line::Begin { boot: of, .. }) if of != boot => return Ok(None),
            Some(Line::Begin { .. }) => {}
            Some(_) => return Err((1, "the first line must be `begin`".to_owned())),
        }
        let mut changes = Self::default();
        lines.into_iter().for_each(|line| changes.take(line));
        Ok(Some(changes))
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Begin { namespace, .. } => self.namespace = namespace,
            Line::Change {
                target,
                number,
                before,
                after,
            } => {
                self.complete = false;
                match self.entries.iter_mut().find(|entry| entry.target == target) {
                    Some(entry) => {
                        entry.after = after;
                        entry.made = false;
                    }
                    None => self.entries.push(Entry {
                        target,
                        number,
                        before,
                        after,
                        made: false,
                    }),
                }
            }
            Line::Made { target } => {
                if let Some(entry) = self.entries.iter_mut().find(|entry| entry.target == target) {
                    entry.made = true;
                }
            }
            Line::Undone { target } => {
                self.complete = false;
                self.entries.retain(|entry| entry.target != target);
            }
            Line::Complete => self.complete = true,
        }
    }
}

fn append(journal: &mut Journal, path: &Path, line: &Line) -> Result<(), HardwareError> {
    let mut text = serde_json::to_string(line).expect("a line is plain data");
    text.push('\n');
    let appended = journal.append(text.as_bytes());
    appended.map_err(|error| HardwareError::journal(path, error))
}

fn remove(path: &Path) -> Result<(), HardwareError> {
    std::fs::remove_file(path).map_err(|error| HardwareError::journal(path, error))
}

fn path(directory: &Path, device: &str) -> PathBuf {
    directory.join(name(device))
}

fn name(device: &str) -> String {
    format!("{device}{SUFFIX}")
}

/// The kernel's number of this boot.
fn boot() -> String {
    Root::machine()
        .text("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
