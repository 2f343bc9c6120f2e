//! Attaches Titan to a device, and undoes the attachment.
//!
//! Problem: a host's network must keep working after a failure half-way, a kill, or the removal of a device. Method:
//! every change is written to the [`Journal`] before it is made. [`undo`] needs only the journal, works in any process,
//! and can be repeated. The data path is in the kernel and pinned, so it does not depend on a process. Order: programs
//! are loaded first, because the kernel can refuse them; XPS maps are emptied next; egress is attached last. Undo runs
//! in the opposite order. Limits: while an attachment is undone, flows get their queues from the kernel's hash again,
//! from one packet to the next.

use crate::containers::{self, Containers};
use crate::device::Device;
use crate::effect::{Choice, of_driver};
use crate::error::NicError;
use crate::journal::{Journal, Lock, Process};
use crate::link::{Link, Route};
use crate::options::{Options, Weights, dscp_weights};
use crate::push;
use crate::system::System;
use crate::{link, qdisc, queues, segments};
use isolane_ethernet_bpf::{
    Completion, CpuPools, Dqa, DqaSettings, EbpfError, LoadOptions, WeightSource, bpffs, tc,
};
use isolane_ethernet_policy::titan::{QueueSet, pools};
use std::path::PathBuf;

/// Attaches Titan; the caller then runs or starts the controller.
///
/// Undoes the attachment of a dead controller first. Fails if the device, the kernel or the options do not permit the
/// attachment; then nothing is changed.
pub fn attach(system: &System, name: &str, options: Options) -> Result<Journal, NicError> {
    options.check()?;
    containers::check(system, &options)?;
    attach_again(system, name, options, None)
}

/// Attaches with options that were checked when the device was first attached: containers may have ended since. `bond` is the
/// bond that the device is attached with.
pub(crate) fn attach_again(
    system: &System,
    name: &str,
    options: Options,
    bond: Option<&str>,
) -> Result<Journal, NicError> {
    let device = Device::read(system, name)?;
    device.refuse_software(system)?;
    let queues = check(&device)?;
    refuse_driver(&device, &options)?;
    let _lock = Lock::take(system, name)?;
    let links = Route::open()?.links()?;
    let link = link::named(&links, name)?;
    if let Some(left) = Journal::find(system, &links, name)? {
        if let Some(running) = left.running(system).filter(|_| left.is_of(link)) {
            return Err(NicError::Attached {
                device: name.to_owned(),
                place: system.place(),
                process: Some(running.process),
            });
        }
        undo(system, &left)?;
    }
    let containers = containers::list(system, &options);
    let mut journal = Journal::new(system, link, pins(link)?, queues, options);
    journal.upper = bond.map(str::to_owned);
    journal.maps = queues::saved_maps(system, name);
    journal.priority_queues = device.disciplines.priority_queues;
    journal.save(system)?;
    let attached = load(system, &device, &journal, &containers).and_then(|containers| {
        journal.not_carried.clone_from(containers.refused());
        journal.save(system)
    });
    if let Err(error) = attached {
        // Undo the changes so far. If that fails too, the journal stays and the first error is returned.
        let _ = undo(system, &journal);
        return Err(error);
    }
    Ok(journal)
}

/// Returns the number of queues to manage.
fn check(device: &Device) -> Result<u16, NicError> {
    if !device.lower.is_empty() {
        return Err(NicError::Upper {
            device: device.name.clone(),
            lower: device.lower.clone(),
        });
    }
    match device.managed_queues() {
        0 | 1 => Err(NicError::SingleQueue {
            device: device.name.clone(),
            command: device.more_queues(),
        }),
        queues => Ok(queues),
    }
}

/// Rejects a driver that chooses queues itself, unless the options permit it.
fn refuse_driver(device: &Device, options: &Options) -> Result<(), NicError> {
    match of_driver(&device.driver) {
        Choice::Ignored(how) if !options.any_driver => Err(NicError::Ignored {
            device: device.name.clone(),
            driver: device.driver.clone(),
            how,
        }),
        _ => Ok(()),
    }
}

fn pins(link: &Link) -> Result<PathBuf, NicError> {
    let directory = bpffs::find_or_mount()?;
    Ok(directory.join(format!("nic-{}-{}", System::namespace(), link.index)))
}

/// Loads and attaches what the journal contains.
fn load(
    system: &System,
    device: &Device,
    journal: &Journal,
    now: &[containers::Container],
) -> Result<Containers, NicError> {
    let mut dqa = load_programs(system, device, journal)?;
    let mut containers = Containers::default();
    if journal.options.weights == Weights::Cgroup {
        let queues = shared_queues(journal);
        containers.refresh(system, &mut dqa, now, queues)?;
    }
    queues::clear(system, &device.name, &journal.maps)?;
    dqa.attach()?;
    Ok(containers)
}

/// Loads the programs without attaching them.
fn load_programs(system: &System, device: &Device, journal: &Journal) -> Result<Dqa, NicError> {
    let options = LoadOptions {
        ifindex: device.index,
        queues: journal.queues,
        completion: match device.frees_what_it_sent() {
            true => Completion::Freed,
            false => Completion::HandedOver,
        },
        hardware_segmentation: device.cuts_segments() && !device.disciplines.cuts_segments(),
        pins: journal.pins.clone(),
        flows: 0,
    };
    let settings = settings(system, journal);
    match Dqa::load(&options, &settings) {
        // Pins of an attachment whose journal was lost are not in use.
        Err(EbpfError::Exists { path }) => {
            match Dqa::open(&path) {
                // Namespace numbers are reused.
                Ok(left) if !left.is_here() => left.discard(),
                Ok(left) => left.detach()?,
                // Maps of another version cannot be read. Only the pins hold them and the tracing programs.
                Err(EbpfError::OtherVersion { .. }) => {
                    std::fs::remove_dir_all(&path).map_err(|source| EbpfError::File {
                        action: "remove",
                        path,
                        source,
                    })?;
                    remove_filters(&mut Route::open()?, device.index)?;
                }
                Err(error) => return Err(error.into()),
            }
            Ok(Dqa::load(&options, &settings)?)
        }
        loaded => Ok(loaded?),
    }
}

/// The settings for the programs.
pub fn settings(system: &System, journal: &Journal) -> DqaSettings {
    let (options, queues) = (&journal.options, journal.queues);
    let latency_queue = latency_queue(options, queues);
    let shared = shared_of(options, queues);
    DqaSettings {
        weights: match options.weights {
            Weights::Flow => WeightSource::Flow,
            Weights::Dscp => WeightSource::Dscp,
            Weights::Cgroup => WeightSource::Containers,
        },
        pools: match options.pools {
            true => CpuPools::PerProcessor(pools::of_processors(system.processors(), shared)),
            false => CpuPools::Off,
        },
        latency_queue,
        dscp_weights: dscp_weights(),
        priority_queues: journal.priority_queues.map(QueueSet),
        ..DqaSettings::default()
    }
}

/// The lightly loaded queue: the last one, because much software uses the first one by default.
fn latency_queue(options: &Options, queues: u16) -> Option<u16> {
    options.latency.then(|| queues.saturating_sub(1))
}

fn shared_of(options: &Options, queues: u16) -> QueueSet {
    let all = QueueSet::first(queues);
    latency_queue(options, queues).map_or(all, |light| all.without(light))
}

/// The queues for bulk flows.
pub fn shared_queues(journal: &Journal) -> QueueSet {
    shared_of(&journal.options, journal.queues)
}

/// Undoes everything in a journal and removes the journal. A device that is gone, or another device with its number, is
/// not touched. After the first failure the rest is undone, and the journal stays for a retry.
pub fn undo(system: &System, journal: &Journal) -> Result<(), NicError> {
    let mut route = Route::open()?;
    let link = route
        .link_by_index(journal.index)?
        .filter(|link| journal.is_of(link));
    let mut first = Ok(());
    let mut note = |done: Result<(), NicError>| {
        if first.is_ok() {
            first = done;
        }
    };
    match Dqa::open(&journal.pins) {
        Ok(dqa) if !journal.is_here() => dqa.discard(),
        Ok(dqa) => note(dqa.detach().map_err(NicError::from)),
        Err(EbpfError::Absent { .. }) => Dqa::remove_part(&journal.pins),
        Err(error) => note(Err(error.into())),
    }
    if let Some(link) = link {
        // Exists only if the pins were lost and the filter was not.
        note(remove_filters(&mut route, link.index));
        if let Some(name) = journal
            .weight_interface
            .as_ref()
            .filter(|_| journal.weights_set)
        {
            let pusher = push::named(name, link.index, journal.queues);
            note(pusher.and_then(|pusher| {
                pusher.map_or(Ok(()), |mut pusher| pusher.undo(journal.queues))
            }));
        }
        if let Some(sizes) = journal.sizes {
            note(segments::set(system, &mut route, link.index, sizes));
        }
        note(queues::restore(system, &link.name, &journal.maps).map_err(NicError::from));
    }
    first?;
    journal.remove(system)
}

/// Undoes an attachment by the current state of its journal: its controller may have changed more since `journal` was
/// read, or may have attached the device again. A missing journal means that the attachment is already undone. Fails as
/// [`undo`] does.
pub fn undo_latest(system: &System, journal: &Journal) -> Result<(), NicError> {
    let us = Process::of(system, std::process::id());
    let is_meant = |now: &Journal| {
        now.index == journal.index || (now.controller.is_some() && now.controller == us)
    };
    for now in Journal::all(system)?.into_iter().filter(is_meant) {
        undo(system, &now)?;
    }
    Ok(())
}

/// Removes our filters at every place.
fn remove_filters(route: &mut Route, index: u32) -> Result<(), NicError> {
    for filter in qdisc::egress(route, index)? {
        if tc::PREFERENCES.contains(&filter.preference) && filter.handle == tc::HANDLE {
            qdisc::remove_egress(route, index, &filter)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::Queue;

    #[test]
    fn devices_above_others_are_refused_with_those_below() {
        let device = Device {
            name: "br0".to_owned(),
            lower: vec!["eth0".to_owned(), "eth1".to_owned()],
            queues: vec![Queue::default(); 16],
            ..Device::default()
        };
        let error = check(&device).unwrap_err();
        let wanted = "br0 sends through eth0, eth1: attach those instead";
        assert!(
            error.is_bad_input() && error.to_string() == wanted,
            "{error}"
        );
        let alone = Device {
            lower: Vec::new(),
            ..device
        };
        assert_eq!(check(&alone).unwrap(), 16);
    }

    #[test]
    fn the_latency_queue_belongs_to_no_processor() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let options = Options {
            latency: true,
            pools: true,
            ..Options::default()
        };
        let journal = Journal::new(&system, &Link::default(), "/pins".into(), 8, options);
        let settings = settings(&system, &journal);
        assert_eq!(settings.latency_queue, Some(7));
        assert_eq!(
            settings.pools,
            CpuPools::PerProcessor(vec![QueueSet::first(7)])
        );
    }
}
