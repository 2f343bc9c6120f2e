//! Assignments: files that give the processes of one workload a tenant, a class and a weight while the workload runs.
//!
//! Problem: a cluster's scheduler starts and ends workloads all the time, and the operator's file cannot list them.
//! Method: a directory that only root can write has one file for each workload: a job of Slurm, a pod of Kubernetes. The
//! daemon looks at the directory once per second ([`Folder::look`]). An assignment comes before the operator's rules. It
//! ends when its file is removed. An assignment with `lasts_while` also ends when this path is gone, so a scheduler
//! that was killed leaves nothing behind.
//!
//! Limits: at most [`ASSIGNMENTS_MAX`] files of [`FILE_MAX`] bytes each; a file with a mistake is left out and named.

use crate::config::{Assignment, Config, Members, Rule, TenantConfig};
use crate::settings::assignment::parse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Directory of the assignments, beside the daemon's control socket.
pub const FOLDER: &str = "/run/isolane/control/assignments";
/// Largest number of assignments: more than the pods or jobs of a machine.
pub const ASSIGNMENTS_MAX: usize = 2048;
/// Longest file, bytes.
pub const FILE_MAX: u64 = 4096;
/// An assignment may be written this long before the path of `lasts_while` exists. A longer wait means that the workload
/// never started.
const START_MAX: Duration = Duration::from_secs(600);
/// A writer that has not finished its file after this time was killed.
const PART_MAX: Duration = Duration::from_secs(60);
/// End of the names of the files.
const SUFFIX: &str = ".toml";
/// Longest name of an assignment, bytes.
const NAME_MAX: usize = 128;

/// Why an assignment cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AssignError {
    #[error("assignment {0:?}: a name must have 1 to {NAME_MAX} letters, digits and any of - _ .")]
    Name(String),
    #[error(transparent)]
    Input(#[from] isolane_common_toml_input::error::InputError),
    #[error("cannot write assignments into {}: {error}; start isolaned, and run as root", .folder.display())]
    Write {
        folder: PathBuf,
        error: std::io::Error,
    },
}

impl Assignment {
    /// The file's text, with the keys in a fixed order.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let quoted = |value: &str| toml_string(value);
        let mut line = |key: &str, value: String| {
            writeln!(text, "{key} = {value}").expect("a string takes everything");
        };
        match &self.members {
            Members::Cgroup(pattern) => line("cgroup", quoted(pattern)),
            Members::Pod(identifier) => line("pod", quoted(identifier)),
        }
        if let Some(tenant) = &self.tenant {
            line("tenant", quoted(tenant));
        }
        if let Some(class) = self.class {
            line("class", quoted(class.name()));
        }
        if let Some(weight) = self.weight {
            line("weight", weight.to_string());
        }
        if let Some(path) = &self.lasts_while {
            line("lasts_while", quoted(&path.to_string_lossy()));
        }
        text
    }

    /// Writes the assignment `name` into `folder`, in place of an earlier one. The file is never half there.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(), AssignError> {
        check_name(name)?;
        let text = self.text();
        parse(name, &text)?;
        let written = (|| {
            // Only the daemon makes the folders above, with their modes.
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            // A name without the suffix: the daemon does not read it.
            let part = folder.join(format!(".{name}.{}", std::process::id()));
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&part, folder.join(format!("{name}{SUFFIX}")))
        })();
        written.map_err(|error| AssignError::Write {
            folder: folder.to_owned(),
            error,
        })
    }
}

/// `value` as a TOML string on one line.
fn toml_string(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => {
                write!(text, "\\u{:04X}", u32::from(c)).expect("a string takes everything");
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn check_name(name: &str) -> Result<(), AssignError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with('.')
        && name.chars().all(plain)
    {
        true => Ok(()),
        false => Err(AssignError::Name(name.to_owned())),
    }
}

/// Removes the assignment `name`; one that is not there is no error.
pub fn end(folder: &Path, name: &str) -> Result<(), AssignError> {
    check_name(name)?;
    match fs::remove_file(folder.join(format!("{name}{SUFFIX}"))) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(AssignError::Write {
            folder: folder.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}

/// The names of the assignments in `folder`, sorted; empty if there is no directory.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let name = name.strip_suffix(SUFFIX)?;
            check_name(name).is_ok().then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names
}

/// Reads the assignment `name`; `None` if its file is gone, an error as one line for people.
pub fn read(folder: &Path, name: &str) -> Option<Result<Assignment, String>> {
    let path = folder.join(format!("{name}{SUFFIX}"));
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("cannot read {}: {error}", path.display()))),
    };
    let mut text = String::new();
    match file.take(FILE_MAX + 1).read_to_string(&mut text) {
        Err(error) => Some(Err(format!("cannot read {}: {error}", path.display()))),
        Ok(bytes) if bytes as u64 > FILE_MAX => Some(Err(format!(
            "{}: is longer than the {FILE_MAX} bytes that are read",
            path.display()
        ))),
        Ok(_) => Some(parse(&path.to_string_lossy(), &text).map_err(|error| error.to_string())),
    }
}

/// Whether a file's name is that of a part: see [`Assignment::write`].
fn is_part(name: &str) -> bool {
    let parts = name
        .strip_prefix('.')
        .and_then(|name| name.rsplit_once('.'));
    parts.is_some_and(|(name, process)| check_name(name).is_ok() && process.parse::<u32>().is_ok())
}

/// Removes the parts in `folder` that no writer completes; returns a line for each that was removed.
fn remove_parts(folder: &Path, now: SystemTime) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let parts = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_part));
    let left = parts.filter(|entry| {
        let Ok(found) = entry.metadata() else {
            return false;
        };
        let age = found
            .modified()
            .ok()
            .and_then(|at| now.duration_since(at).ok());
        found.is_file() && age.is_some_and(|age| age > PART_MAX)
    });
    // A folder that cannot be written stays as it is.
    let removed = left.filter(|entry| fs::remove_file(entry.path()).is_ok());
    removed
        .map(|entry| format!("{}: removed, its writer was killed", entry.path().display()))
        .collect()
}

/// What identifies a version of a file: a rename gives another inode.
type Version = (u64, Option<SystemTime>, u64);

/// The directory, as the daemon watches it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    versions: BTreeMap<String, Version>,
    read: BTreeMap<String, Assignment>,
    /// Assignments whose path of `lasts_while` was there.
    started: BTreeMap<String, Version>,
    /// Whether the last look found too many.
    crowded: bool,
}

/// What a look at the directory found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether the assignments differ from those of the last look.
    pub changed: bool,
    /// Lines for people: mistakes, and assignments that ended by themselves.
    pub notes: Vec<String>,
}

impl Folder {
    /// The directory at `path`, not looked at yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            versions: BTreeMap::new(),
            read: BTreeMap::new(),
            started: BTreeMap::new(),
            crowded: false,
        }
    }

    /// The assignments of the last look, by name.
    pub fn assignments(&self) -> &BTreeMap<String, Assignment> {
        &self.read
    }

    /// Reads files that changed, forgets those that are gone, and removes those whose workload has ended and parts of
    /// writers that were killed. `now` is the time of day.
    pub fn look(&mut self, now: SystemTime) -> Change {
        let mut change = Change::default();
        change.notes.extend(remove_parts(&self.path, now));
        let mut names = names(&self.path);
        let crowded = names.len() > ASSIGNMENTS_MAX;
        if crowded && !self.crowded {
            change.notes.push(format!(
                "{} has {} assignments; only the first {ASSIGNMENTS_MAX} by name are read",
                self.path.display(),
                names.len()
            ));
        }
        self.crowded = crowded;
        names.truncate(ASSIGNMENTS_MAX);
        let gone: Vec<String> = self
            .read
            .keys()
            .filter(|name| !names.contains(name))
            .cloned()
            .collect();
        for name in gone {
            self.forget(&name, &mut change);
        }
        for name in names {
            let path = self.path.join(format!("{name}{SUFFIX}"));
            let Ok(found) = fs::metadata(&path) else {
                self.forget(&name, &mut change);
                continue;
            };
            let version = (found.ino(), found.modified().ok(), found.len());
            if self.versions.get(&name) != Some(&version) {
                self.take(&name, version, &mut change);
            }
            if self.has_ended(&name, version, now) {
                let removed = fs::remove_file(&path);
                change.notes.push(match removed {
                    Ok(()) => format!("assignment {name} has ended with its workload"),
                    Err(error) => format!(
                        "assignment {name} has ended, but {} stays: {error}",
                        path.display()
                    ),
                });
                self.forget(&name, &mut change);
                self.versions.insert(name, version);
            }
        }
        change
    }

    fn take(&mut self, name: &str, version: Version, change: &mut Change) {
        self.versions.insert(name.to_owned(), version);
        match read(&self.path, name) {
            Some(Ok(assignment)) => {
                change.changed |= self.read.get(name) != Some(&assignment);
                self.read.insert(name.to_owned(), assignment);
            }
            Some(Err(reason)) => {
                change.notes.push(format!("assignment left out: {reason}"));
                change.changed |= self.read.remove(name).is_some();
            }
            None => change.changed |= self.read.remove(name).is_some(),
        }
    }

    fn forget(&mut self, name: &str, change: &mut Change) {
        self.versions.remove(name);
        self.started.remove(name);
        change.changed |= self.read.remove(name).is_some();
    }

    fn has_ended(&mut self, name: &str, version: Version, now: SystemTime) -> bool {
        let assignment = self.read.get(name);
        let Some(path) = assignment.and_then(|assignment| assignment.lasts_while.as_ref()) else {
            return false;
        };
        if path.exists() {
            self.started.insert(name.to_owned(), version);
            return false;
        }
        let old = version
            .1
            .and_then(|written| now.duration_since(written).ok());
        self.started.get(name) == Some(&version) || old.is_some_and(|age| age > START_MAX)
    }

    /// `config` with the assignments: their rules come first. The operator's own weight of a tenant counts; of several
    /// assignments for one tenant the largest weight does.
    pub fn applied(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let rules = self.read.values().map(|assignment| Rule {
            cgroup: assignment.members.cgroup().map(str::to_owned),
            pod: assignment.members.pod().map(str::to_owned),
            tenant: assignment.tenant.clone(),
            class: assignment.class,
            // The workload's author chooses its class: a label, or an option of the job.
            watches_latency: true,
            ..Rule::default()
        });
        config.rules = rules.chain(std::mem::take(&mut config.rules)).collect();
        let mut weights: BTreeMap<&str, u32> = BTreeMap::new();
        for assignment in self.read.values() {
            if let (Some(tenant), Some(weight)) = (&assignment.tenant, assignment.weight) {
                let largest = weights.entry(tenant).or_insert(weight);
                *largest = weight.max(*largest);
            }
        }
        for (name, weight) in weights {
            if config.tenants.iter().all(|tenant| tenant.name != name) {
                config.tenants.push(TenantConfig {
                    name: name.to_owned(),
                    weight,
                });
            }
        }
        config
    }
}

#[cfg(test)]
mod tests;
