//! Makes the settings of a plan, compares them with the host, and restores previous values.
//!
//! Method: for each setting the present value is read, recorded with the wanted one, written, and read back. If a
//! setting fails, everything is restored at once. Objects that an earlier plan changed and this one does not name get
//! their previous values first. Restoration goes backwards, because a group of rates must outlive its members. An object
//! whose value is neither ours nor the previous one was changed by another program: restoration leaves it, and reports
//! it.

use crate::backend::Backend;
use crate::error::HardwareError;
use crate::plan::Plan;
use crate::record::{Entry, Record};
use crate::setting::{Target, Value};
use serde::Serialize;

/// A setting beside the host's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// The object.
    pub target: Target,
    /// The value of the plan, or of the journal.
    pub wanted: Value,
    /// The host's value.
    pub found: Value,
    /// Whether both are equal.
    pub equal: bool,
}

/// What an apply did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Applied {
    /// Objects whose value changed.
    pub changed: Vec<Target>,
    /// Objects that had the wanted value.
    pub kept: Vec<Target>,
    /// Objects of an earlier plan that have their previous value again.
    pub restored: Vec<Target>,
    /// Objects of an earlier plan that no longer exist.
    pub gone: Vec<Target>,
    /// Objects of an earlier plan that another program changed; they are as that program left them, and stay in the
    /// journal.
    pub foreign: Vec<Comparison>,
    /// Objects of an earlier plan that were not found although they may exist; they stay in the journal.
    pub unreached: Vec<Unreached>,
}

/// An object that a restoration did not find, although its device may exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Unreached {
    /// The object.
    pub target: Target,
    /// Why, and what to do.
    pub reason: String,
}

/// What a restoration did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct RolledBack {
    /// Objects that have their previous value again.
    pub restored: Vec<Target>,
    /// Objects that this network namespace no longer has.
    pub gone: Vec<Target>,
    /// Objects that another program changed; they are as that program left them.
    pub foreign: Vec<Comparison>,
    /// Objects that were not found although they may exist; they stay in the journal.
    pub unreached: Vec<Unreached>,
}

impl RolledBack {
    /// Whether the journal has no entry that stays.
    pub fn is_all(&self) -> bool {
        self.foreign.is_empty() && self.unreached.is_empty()
    }
}

/// Whether a restoration overwrites the values of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Leave them.
    Leave,
    /// Overwrite them.
    Overwrite,
}

/// Of an object of a journal of version 1.
const UNKNOWN_DEVICE: &str = "no device here has this name, and the journal of an earlier release does not say whether the \
    device was renamed or is in another network namespace; rename it back or run the command there, or remove the journal \
    if the device is gone";

/// Makes every setting of `plan`. A setting that fails is [`HardwareError::Restored`], or [`HardwareError::Left`] if
/// the restoration failed too.
pub fn apply(
    backend: &mut dyn Backend,
    record: &mut Record,
    plan: &Plan,
) -> Result<Applied, HardwareError> {
    let failed = |record: &mut Record, backend: &mut dyn Backend, cause: HardwareError| {
        let cause = Box::new(cause);
        match restore(backend, record, Foreign::Leave) {
            Ok(done) if done.is_all() => HardwareError::Restored { cause },
            Ok(done) => HardwareError::Left {
                cause,
                restoration: match (done.foreign.first(), done.unreached.first()) {
                    (Some(one), _) => format!("another program changed the {}", one.target),
                    (None, Some(one)) => format!("the {}: {}", one.target, one.reason),
                    (None, None) => unreachable!("one of the lists has an entry"),
                },
            },
            Err(error) => HardwareError::Left {
                cause,
                restoration: error.to_string(),
            },
        }
    };
    match make(backend, record, plan) {
        Ok(done) => Ok(done),
        Err(cause) => Err(failed(record, backend, cause)),
    }
}

fn make(
    backend: &mut dyn Backend,
    record: &mut Record,
    plan: &Plan,
) -> Result<Applied, HardwareError> {
    let mut earlier = RolledBack::default();
    let is_planned = |target: &Target| {
        plan.settings
            .iter()
            .any(|setting| setting.target == *target)
    };
    let dropped: Vec<Entry> = record.entries().iter().rev().cloned().collect();
    for entry in dropped.iter().filter(|entry| !is_planned(&entry.target)) {
        restore_one(backend, record, entry, Foreign::Leave, &mut earlier)?;
    }
    let mut done = Applied {
        restored: earlier.restored,
        gone: earlier.gone,
        foreign: earlier.foreign,
        unreached: earlier.unreached,
        ..Applied::default()
    };
    for setting in &plan.settings {
        let (target, wanted) = (&setting.target, &setting.value);
        let present = backend.read(target)?;
        if present == Value::Absent && !matches!(target, Target::RateNode { .. }) {
            return Err(HardwareError::Gone {
                target: Box::new(target.clone()),
            });
        }
        let number = match target.renamable() {
            Some(device) => backend.number(device)?,
            None => None,
        };
        end_entry_of_former_device(backend, record, target)?;
        // Recorded also where nothing has to change, so that `status` sees a later change.
        record.change(target, number, &present, wanted)?;
        match present == *wanted {
            true => done.kept.push(target.clone()),
            false => {
                backend.write(target, wanted)?;
                verify(backend, target, wanted)?;
                done.changed.push(target.clone());
            }
        }
        record.made(target)?;
    }
    record.finish()?;
    Ok(done)
}

/// Where the device of an entry is.
enum Whereabouts {
    /// It has the name of the entry, as far as the journal says.
    Here,
    /// This network namespace has it no more.
    Gone,
    /// It has another name; the text says which, and what to do.
    Renamed(String),
}

fn whereabouts(backend: &mut dyn Backend, entry: &Entry) -> Result<Whereabouts, HardwareError> {
    let (Some(device), Some(number)) = (entry.target.renamable(), entry.number) else {
        return Ok(Whereabouts::Here);
    };
    Ok(match backend.name(device, number)? {
        None => Whereabouts::Gone,
        Some(name) if name == device.name() => Whereabouts::Here,
        Some(name) => Whereabouts::Renamed(format!(
            "its device is called {name} now; rename it to {} and run `isolane rdma rollback` again",
            device.name()
        )),
    })
}

/// The previous value of a device that is gone is not that of another device with its name.
fn end_entry_of_former_device(
    backend: &mut dyn Backend,
    record: &mut Record,
    target: &Target,
) -> Result<(), HardwareError> {
    let mut entries = record.entries().iter();
    let Some(entry) = entries.find(|entry| entry.target == *target).cloned() else {
        return Ok(());
    };
    match whereabouts(backend, &entry)? {
        Whereabouts::Here => Ok(()),
        Whereabouts::Gone => record.undone(target),
        Whereabouts::Renamed(reason) => Err(HardwareError::OtherDevice {
            target: Box::new(target.clone()),
            reason,
        }),
    }
}

fn verify(backend: &mut dyn Backend, target: &Target, wanted: &Value) -> Result<(), HardwareError> {
    let found = backend.read(target)?;
    match found == *wanted {
        true => Ok(()),
        false => Err(HardwareError::NotKept {
            target: Box::new(target.clone()),
            wanted: Box::new(wanted.clone()),
            found: Box::new(found),
        }),
    }
}

/// Gives every changed object its previous value. The journal keeps those that failed or that others changed. The error
/// is the first that failed; the others are restored.
pub fn restore(
    backend: &mut dyn Backend,
    record: &mut Record,
    foreign: Foreign,
) -> Result<RolledBack, HardwareError> {
    let entries: Vec<Entry> = record.entries().iter().rev().cloned().collect();
    let mut done = RolledBack::default();
    let mut first = None;
    for entry in &entries {
        if let Err(error) = restore_one(backend, record, entry, foreign, &mut done) {
            first.get_or_insert(error);
        }
    }
    match first {
        Some(error) => Err(error),
        None => Ok(done),
    }
}

fn restore_one(
    backend: &mut dyn Backend,
    record: &mut Record,
    entry: &Entry,
    foreign: Foreign,
    done: &mut RolledBack,
) -> Result<(), HardwareError> {
    let (target, before) = (&entry.target, &entry.before);
    let mut unreached = |reason: String| {
        let target = target.clone();
        done.unreached.push(Unreached { target, reason });
    };
    let present = match whereabouts(backend, entry)? {
        Whereabouts::Renamed(reason) => {
            unreached(reason);
            return Ok(());
        }
        Whereabouts::Gone => Value::Absent,
        Whereabouts::Here => backend.read(target)?,
    };
    if present == Value::Absent && !matches!(target, Target::RateNode { .. }) {
        if !record.knows_device(entry) {
            unreached(UNKNOWN_DEVICE.to_owned());
            return Ok(());
        }
        record.undone(target)?;
        done.gone.push(target.clone());
        return Ok(());
    }
    if present != *before {
        if foreign == Foreign::Leave && !present.is_between(before, &entry.after) {
            done.foreign.push(Comparison {
                target: target.clone(),
                wanted: before.clone(),
                found: present,
                equal: false,
            });
            return Ok(());
        }
        backend.write(target, before)?;
        verify(backend, target, before)?;
    }
    record.undone(target)?;
    done.restored.push(target.clone());
    Ok(())
}

/// The settings of `plan` beside the host's values. Fails if a value cannot be read.
pub fn differences(
    backend: &mut dyn Backend,
    plan: &Plan,
) -> Result<Vec<Comparison>, HardwareError> {
    let settings = plan.settings.iter();
    compare(
        backend,
        settings.map(|setting| (&setting.target, &setting.value)),
    )
}

/// The recorded values beside the host's: drift. Fails if a value cannot be read.
pub fn drift(backend: &mut dyn Backend, record: &Record) -> Result<Vec<Comparison>, HardwareError> {
    let entries = record.entries().iter();
    compare(backend, entries.map(|entry| (&entry.target, &entry.after)))
}

fn compare<'a>(
    backend: &mut dyn Backend,
    wanted: impl Iterator<Item = (&'a Target, &'a Value)>,
) -> Result<Vec<Comparison>, HardwareError> {
    wanted
        .map(|(target, wanted)| {
            let found = backend.read(target)?;
            Ok(Comparison {
                target: target.clone(),
                wanted: wanted.clone(),
                equal: found == *wanted,
                found,
            })
        })
        .collect()
}

#[cfg(test)]
mod kills;
#[cfg(test)]
mod tests;
