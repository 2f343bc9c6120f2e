//! A bond: its lower devices are attached, each with a journal that names the bond.
//!
//! Problem: the transmit queues of a bond are those of its lower devices, which join and leave. Method: each lower device is an
//! attachment with a controller in its own thread of one process. Every [`LOOK`] the lower devices are compared with the
//! attached ones: one that joined is attached, one that left is detached. Limits: sockets take their segment size from the bond,
//! which does not follow the limits of its lower devices, so segment sizes never change. A lower device that joins and cannot
//! be attached is named once with each new reason, and tried again at each comparison.

use crate::attach::{attach_again, undo, undo_latest};
use crate::containers;
use crate::control::{BEAT, Controller, Ended, LOOK};
use crate::detach::{Detached, end};
use crate::device::lower;
use crate::error::NicError;
use crate::journal::Journal;
use crate::link::{self, Route};
use crate::options::{Options, Segments};
use crate::status::{Asked, Report, report};
use crate::system::System;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Failed comparisons in a row before the controllers end.
const FAILURES: u32 = 10;

/// Whether the device called `name` is a bond. Fails with [`NicError::NoDevice`] or the kernel's error.
pub fn is_bond(name: &str) -> Result<bool, NicError> {
    let link = Route::open()?.link(name)?;
    Ok(link.kind.as_deref() == Some("bond"))
}

/// The journals of the bond's attached devices. Fails with [`NicError::File`].
pub fn journals(system: &System, bond: &str) -> Result<Vec<Journal>, NicError> {
    let mut journals = Journal::all(system)?;
    journals.retain(|journal| journal.upper.as_deref() == Some(bond));
    Ok(journals)
}

/// The reports of the bond's attached devices, measured one after the other; at least one. Fails as [`report`] does.
pub fn reports(system: &System, bond: &str, asked: Asked) -> Result<Vec<Report>, NicError> {
    let journals = journals(system, bond)?;
    if journals.is_empty() {
        return Err(not_attached(system, bond));
    }
    let of = |journal: &Journal| report(system, &journal.device, asked);
    journals.iter().map(of).collect()
}

/// The bond's devices that no controller has. Fails with [`NicError::File`].
pub fn left_out(system: &System, bond: &str) -> Result<Vec<String>, NicError> {
    let mut attached = journals(system, bond)?;
    attached.retain(|journal| journal.running(system).is_some());
    let mut devices = lower(system, bond);
    devices.retain(|device| attached.iter().all(|journal| journal.device != *device));
    Ok(devices)
}

/// Attaches all lower devices of a bond, or none. Fails as [`crate::attach::attach`] does for the first device that cannot be
/// attached, if the bond has no device, or with a segment size.
pub fn attach(system: &System, bond: &str, mut options: Options) -> Result<Vec<Journal>, NicError> {
    options.check()?;
    containers::check(system, &options)?;
    if let Segments::Bytes(bytes) = options.segments {
        return Err(NicError::Value {
            what: "segment size",
            value: bytes.to_string(),
            expected: format!(
                "must be auto or off: {bond} is a bond, whose segments stay as they are"
            ),
        });
    }
    options.segments = Segments::Off;
    let devices = lower(system, bond);
    if devices.is_empty() {
        return Err(NicError::Value {
            what: "bond",
            value: bond.to_owned(),
            expected: "has no device; add one first".to_owned(),
        });
    }
    let mut journals = Vec::new();
    for device in devices {
        match attach_again(system, &device, options.clone(), Some(bond)) {
            Ok(journal) => journals.push(journal),
            Err(error) => {
                // The first error is returned; a journal that cannot be undone stays.
                for journal in &journals {
                    let _ = undo(system, journal);
                }
                return Err(error);
            }
        }
    }
    Ok(journals)
}

/// Detaches the devices of a bond. Repeating it is not an error. Fails for a failed undo.
pub fn detach(system: &System, bond: &str) -> Result<Detached, NicError> {
    let attached = journals(system, bond)?;
    for journal in &attached {
        if let Some(controller) = journal.running(system) {
            end(system, controller);
        }
    }
    undo_all(system, bond)?;
    Ok(match attached.is_empty() {
        true => Detached::Nothing,
        false => Detached::Undone,
    })
}

/// Undoes the attachments of a bond's devices. After the first failure the rest is undone. Fails as [`undo`] does.
pub fn undo_all(system: &System, bond: &str) -> Result<(), NicError> {
    let mut first = Ok(());
    for journal in journals(system, bond)? {
        let undone = undo_latest(system, &journal);
        first = first.and(undone);
    }
    first
}

/// The controllers of a bond's devices.
pub struct BondController {
    system: System,
    bond: String,
    options: Options,
    members: BTreeMap<String, Member>,
    /// Devices that cannot be attached, with the reason that was said.
    refused: BTreeMap<String, String>,
}

/// The controller of one device, in its thread.
struct Member {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl BondController {
    /// Takes over the attachments of a bond. Fails if there are none, or the programs of one are gone.
    pub fn new(system: &System, bond: &str) -> Result<Self, NicError> {
        let journals = journals(system, bond)?;
        let first = journals.first().ok_or_else(|| not_attached(system, bond))?;
        let mut all = Self {
            system: system.clone(),
            bond: bond.to_owned(),
            options: first.options.clone(),
            members: BTreeMap::new(),
            refused: BTreeMap::new(),
        };
        for journal in journals {
            all.start(journal)?;
        }
        Ok(all)
    }

    /// Runs until `stop` is set or the bond is gone. The attachments stay, unless the bond is gone. `say` gets a line for each
    /// device that joined and cannot be attached, and when it is.
    pub fn run(&mut self, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Ended, NicError> {
        let (mut looked, mut failures) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                failures = match self.follow(say) {
                    Ok(true) => 0,
                    Ok(false) => {
                        self.end_members();
                        undo_all(&self.system, &self.bond)?;
                        return Ok(Ended::Gone);
                    }
                    // A device that is being removed rejects requests first.
                    Err(error) if failures == FAILURES => return Err(error),
                    Err(_) => failures + 1,
                };
            }
            thread::sleep(BEAT);
        }
        self.end_members();
        Ok(Ended::Stopped)
    }

    /// Attaches devices that joined and detaches those that left; false if the bond is gone.
    fn follow(&mut self, say: &mut dyn FnMut(&str)) -> Result<bool, NicError> {
        let links = Route::open()?.links()?;
        if link::named(&links, &self.bond).is_err() || self.system.is_abandoned() {
            return Ok(false);
        }
        let devices = lower(&self.system, &self.bond);
        let ended = |(name, member): (&String, &Member)| {
            (!devices.contains(name) || member.thread.is_finished()).then(|| name.clone())
        };
        let ended: Vec<String> = self.members.iter().filter_map(ended).collect();
        for name in ended {
            self.members.remove(&name).into_iter().for_each(Member::end);
        }
        for journal in journals(&self.system, &self.bond)? {
            if !devices.contains(&journal.device) {
                // A journal that cannot be undone is tried again.
                let _ = undo(&self.system, &journal);
            }
        }
        self.refused.retain(|name, _| devices.contains(name));
        for name in devices {
            if self.members.contains_key(&name) {
                continue;
            }
            let journal = match Journal::find(&self.system, &links, &name)? {
                Some(mut journal) => {
                    journal.upper = Some(self.bond.clone());
                    journal.save(&self.system).map(|()| journal)
                }
                None => attach_again(&self.system, &name, self.options.clone(), Some(&self.bond)),
            };
            match journal.and_then(|journal| self.start(journal)) {
                Ok(()) if self.refused.remove(&name).is_some() => {
                    say(&format!("{name} of {} is attached now", self.bond));
                }
                Ok(()) => (),
                // It is tried again at the next comparison.
                Err(error) => self.refuse(name, error.to_string(), say),
            }
        }
        Ok(true)
    }

    /// Says why a device is not attached, unless that was the last thing said of it.
    fn refuse(&mut self, name: String, reason: String, say: &mut dyn FnMut(&str)) {
        if self.refused.get(&name) != Some(&reason) {
            say(&format!(
                "{name} of {} is not attached: {reason}",
                self.bond
            ));
            self.refused.insert(name, reason);
        }
    }

    /// Starts a controller and waits until it is in the journal.
    fn start(&mut self, journal: Journal) -> Result<(), NicError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (system, name, flag) = (
            self.system.clone(),
            journal.device.clone(),
            Arc::clone(&stop),
        );
        let (started, result) = channel();
        let thread = thread::Builder::new()
            .name("nic-controller".to_owned())
            .spawn(move || control(&system, journal, &flag, &started))
            .map_err(|error| NicError::Kernel {
                action: format!("start a controller of {name}"),
                detail: error.to_string(),
            })?;
        let started = result.recv().unwrap_or_else(|_| {
            Err(NicError::Gone {
                device: name.clone(),
            })
        });
        self.members.insert(name, Member { stop, thread });
        started
    }

    fn end_members(&mut self) {
        std::mem::take(&mut self.members)
            .into_values()
            .for_each(Member::end);
    }
}

impl Drop for BondController {
    fn drop(&mut self) {
        self.end_members();
    }
}

impl Member {
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        // A controller that failed leaves its attachment to the next comparison.
        let _ = self.thread.join();
    }
}

fn not_attached(system: &System, bond: &str) -> NicError {
    NicError::NotAttached {
        device: bond.to_owned(),
        place: system.place(),
    }
}

/// One controller; reports whether it started. Its end is seen by its thread's.
fn control(
    system: &System,
    journal: Journal,
    stop: &AtomicBool,
    started: &Sender<Result<(), NicError>>,
) {
    match Controller::new(system, journal) {
        Ok(mut controller) => {
            let _ = started.send(Ok(()));
            let _ = controller.run(stop);
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}
