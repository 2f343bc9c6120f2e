//! The control loop of an attachment: sets queue weights and segment sizes, and follows changes of the device.
//!
//! Problem: queue weights and segment sizes follow traffic within milliseconds; queues, containers, names and devices
//! change. Method: every [`BEAT`] the loop reads the queues' loads from shared memory, passes them to the policies and
//! applies their decisions; every [`LOOK`] it checks the device. The loop may end at any time: the kernel continues to
//! assign queues, and the loop's changes are in the journal. Units: the monotonic clock. Limits: without the loop,
//! weights and sizes stay unchanged.

use crate::attach::{self, shared_queues};
use crate::containers::{self, Containers};
use crate::device::Device;
use crate::effect::{Aside, Effect};
use crate::error::NicError;
use crate::journal::{Journal, Process};
use crate::link::Route;
use crate::options::Weights;
use crate::push::{self, Pusher};
use crate::system::System;
use crate::{queues, segments};
use isolane_common_quantities::units;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_bpf::{Dqa, QueueSnapshot};
use isolane_ethernet_policy::titan::segments::{SegmentOptions, SegmentSize};
use isolane_ethernet_policy::titan::weights::QueueWeights;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of reading the queues. Bulk flows live longer, and a reading takes microseconds.
pub const BEAT: Duration = Duration::from_millis(10);
/// Interval of checking the device.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long no queue must be shared before segments grow again: each change makes every socket look up its route.
const HOLD: units::Duration = units::Duration::from_secs(1);
/// Failed beats in a row before the loop ends: two seconds.
const FAILURES: u32 = 200;
/// Failed checks in a row before the loop ends: a card under reset rejects requests for seconds.
const LOOKS: u32 = 10;
/// Failed attempts to set a segment size before the loop stops trying.
const RESIZES: u32 = 100;
/// How long a removed device may be absent before it is given up: reloading a driver takes seconds.
const RETURN: Duration = Duration::from_secs(60);

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// `stop` was set.
    Stopped,
    /// The device or its network namespace was removed and did not return. Everything is undone.
    Gone,
    /// The device was detached by another process.
    Detached,
}

/// Result of checking the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Same,
    Gone,
    Detached,
    /// Its network namespace was deleted and exists only because this process is in it.
    Abandoned,
}

/// The controller of one attachment.
pub struct Controller {
    system: System,
    journal: Journal,
    dqa: Dqa,
    route: Route,
    weights: Option<(Box<dyn Pusher>, QueueWeights)>,
    segments: Option<SegmentSize>,
    /// A size that was decided but not yet set, and the number of attempts.
    wanted: Option<(Bytes, u32)>,
    effect: Effect,
    /// Whether freed packets report their queue.
    tells_queues: bool,
    /// Whether queues were shared at the last beat: a single beat can see a flow that is about to end.
    shared_before: bool,
    containers: Containers,
    begun: Instant,
    looked: Instant,
}

impl Controller {
    /// Takes over the attachment of a journal and records this process in it. Fails if the programs are gone.
    pub fn new(system: &System, mut journal: Journal) -> Result<Self, NicError> {
        let dqa = Dqa::open(&journal.pins)?;
        let mut route = Route::open()?;
        let link = route.link_by_index(journal.index)?;
        let link = link.ok_or_else(|| NicError::Gone {
            device: journal.device.clone(),
        })?;
        let device = Device::read(system, &link.name)?;
        // Weights of an earlier controller are still recorded for undo, so no others may be set beside them.
        let pusher = push::choose(&device)?.filter(|_| !journal.weights_set);
        let weights = pusher.map(|pusher| {
            let weights = QueueWeights::new(journal.queues, pusher.options());
            (pusher, weights)
        });
        if !journal.weights_set {
            journal.weight_interface = weights.as_ref().map(|(pusher, _)| pusher.name().to_owned());
        }
        journal.controller = Process::of(system, std::process::id());
        journal.save(system)?;
        let normal = journal.sizes.unwrap_or(link.sizes).general;
        let segments = journal.options.segments.reduced().map(|reduced| {
            let normal = Bytes::new(normal.into());
            SegmentSize::new(SegmentOptions {
                normal,
                reduced: reduced.min(normal),
                hold: HOLD,
            })
        });
        let counters = dqa.counters()?;
        let now = Instant::now();
        Ok(Self {
            system: system.clone(),
            journal,
            dqa,
            route,
            weights,
            segments,
            wanted: None,
            effect: Effect::new(counters),
            tells_queues: device.frees_what_it_sent(),
            shared_before: false,
            containers: Containers::default(),
            begun: now,
            looked: now,
        })
    }

    /// The journal of the attachment.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Runs until `stop` is set, the device is gone for good, or another process detached it. An error leaves the
    /// attachment unchanged.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<Ended, NicError> {
        let (mut failures, mut looks) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            failures = match self.beat() {
                Ok(()) => 0,
                // A device that is being removed rejects requests first; the next check detects the removal.
                Err(error) if failures == FAILURES => return Err(error),
                Err(_) => failures + 1,
            };
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                let seen = match self.look() {
                    Err(error) if looks == LOOKS => return Err(error),
                    Err(_) => {
                        looks += 1;
                        continue;
                    }
                    Ok(seen) => seen,
                };
                looks = 0;
                match seen {
                    Seen::Same => {}
                    Seen::Detached => return Ok(Ended::Detached),
                    Seen::Abandoned => {
                        attach::undo(&self.system, &self.journal)?;
                        return Ok(Ended::Gone);
                    }
                    Seen::Gone => match self.wait_for_return(stop)? {
                        true => {}
                        false => return Ok(Ended::Gone),
                    },
                }
            }
            thread::sleep(BEAT);
        }
        Ok(Ended::Stopped)
    }

    /// Reads the queues and applies the policies.
    fn beat(&mut self) -> Result<(), NicError> {
        if self.journal.aside.is_some() {
            return Ok(());
        }
        let queues = self.dqa.queues();
        let elapsed = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = units::Instant::ZERO.saturating_add(units::Duration::from_ns(elapsed));
        let loads = self.containers.loads(&queues);
        if self.tell(now, &loads).is_err() {
            // The journal keeps the set weights for undo; the device is not read again.
            self.weights = None;
        }
        let shared = is_shared(&queues, &self.journal);
        let oversubscribed = shared && self.shared_before;
        self.shared_before = shared;
        let size = self
            .segments
            .as_mut()
            .and_then(|segments| segments.update(now, oversubscribed));
        let decided = size.map(|size| (size, 0));
        let Some((size, tries)) = decided.or(self.wanted) else {
            return Ok(());
        };
        self.wanted = Some((size, tries + 1));
        let resized = self.resize(size);
        if resized.is_ok() {
            self.wanted = None;
        } else if tries >= RESIZES {
            // The journal keeps the original size if it was changed; the device is not read again.
            (self.wanted, self.segments) = (None, None);
        }
        resized
    }

    /// Sets changed weights on the device, after recording in the journal that weights were set.
    fn tell(&mut self, now: units::Instant, loads: &[u64]) -> Result<(), NicError> {
        let Some((pusher, weights)) = &mut self.weights else {
            return Ok(());
        };
        let Some(wanted) = weights.poll(now, loads) else {
            return Ok(());
        };
        if !self.journal.weights_set {
            if !pusher.is_free()? {
                self.weights = None;
                self.journal.weight_interface = None;
                return self.journal.save(&self.system);
            }
            self.journal.weights_set = true;
            self.journal.save(&self.system)?;
        }
        pusher.push(wanted)
    }

    /// Sets the segment size. The journal records the original size before the change, and removes it after it is
    /// restored.
    fn resize(&mut self, size: Bytes) -> Result<(), NicError> {
        let Some(link) = self.route.link_by_index(self.journal.index)? else {
            return Ok(());
        };
        let before = self.journal.sizes.unwrap_or(link.sizes);
        let sizes = segments::sizes(before, size);
        if sizes != before {
            self.journal.sizes = Some(before);
            self.journal.save(&self.system)?;
        }
        segments::set(&self.system, &mut self.route, link.index, sizes)?;
        if sizes == before {
            self.journal.sizes = None;
            self.journal.save(&self.system)?;
        }
        Ok(())
    }

    /// Checks the device: presence, name, queues and containers.
    fn look(&mut self) -> Result<Seen, NicError> {
        if self.system.is_abandoned() {
            return Ok(Seen::Abandoned);
        }
        let link = self.route.link_by_index(self.journal.index)?;
        let Some(link) = link.filter(|link| self.journal.is_of(link)) else {
            return Ok(Seen::Gone);
        };
        if !self.journal.pins.exists() {
            return Ok(Seen::Detached);
        }
        if (&link.name, &link.address) != (&self.journal.device, &self.journal.address) {
            self.journal.device.clone_from(&link.name);
            self.journal.address.clone_from(&link.address);
            self.journal.save(&self.system)?;
        }
        let device = Device::read(&self.system, &link.name)?;
        let has_one = self.journal.aside == Some(Aside::OneQueue);
        let news = is_news(device.managed_queues(), self.journal.queues, has_one)
            || (self.journal.aside.is_none()
                && device.disciplines.priority_queues != self.journal.priority_queues);
        if news {
            self.reload(&device)?;
        }
        self.look_at_maps(&device, news)?;
        self.refresh_containers()?;
        self.look_at_effect()?;
        Ok(Seen::Same)
    }

    /// Empties maps that a driver set when the number of queues changed. Maps set by the user stay, also at detach; the
    /// programs step aside while they exist.
    fn look_at_maps(&mut self, device: &Device, news: bool) -> Result<(), NicError> {
        if !device.has_maps() {
            return match self.journal.aside {
                Some(Aside::XpsMaps) => self.resume(),
                _ => Ok(()),
            };
        }
        if self.journal.aside.is_some() {
            return Ok(());
        }
        let now = queues::saved_maps(&self.system, &device.name);
        if news || now.iter().all(|map| self.journal.maps.contains(map)) {
            return self.clear_maps(&device.name);
        }
        self.journal.maps.clear();
        self.step_aside(Aside::XpsMaps)
    }

    /// Steps aside if packets use other queues than the chosen ones.
    fn look_at_effect(&mut self) -> Result<(), NicError> {
        if !self.tells_queues || self.journal.aside.is_some() {
            return Ok(());
        }
        match self.effect.overruled(self.dqa.counters()?) {
            Some(percent) => self.step_aside(Aside::Overruled { percent }),
            None => Ok(()),
        }
    }

    /// Lets packets pass untouched, and undoes the changes that chosen queues need.
    fn step_aside(&mut self, reason: Aside) -> Result<(), NicError> {
        let mut settings = attach::settings(&self.system, &self.journal);
        settings.enabled = false;
        self.dqa.set(&settings)?;
        if let Some(before) = self.journal.sizes {
            segments::set(&self.system, &mut self.route, self.journal.index, before)?;
            self.journal.sizes = None;
        }
        if let Some((pusher, _)) = self.weights.as_mut().filter(|_| self.journal.weights_set) {
            pusher.undo(self.journal.queues)?;
            self.journal.weights_set = false;
        }
        self.journal.aside = Some(reason);
        self.journal.save(&self.system)
    }

    /// Resumes after the programs stepped aside.
    fn resume(&mut self) -> Result<(), NicError> {
        let settings = attach::settings(&self.system, &self.journal);
        self.dqa.set(&settings)?;
        self.effect = Effect::new(self.dqa.counters()?);
        if let Some((pusher, weights)) = &mut self.weights {
            *weights = QueueWeights::new(self.journal.queues, pusher.options());
        }
        self.journal.aside = None;
        self.journal.save(&self.system)
    }

    fn refresh_containers(&mut self) -> Result<(), NicError> {
        if self.journal.options.weights != Weights::Cgroup {
            return Ok(());
        }
        let now = containers::list(&self.system, &self.journal.options);
        let queues = shared_queues(&self.journal);
        self.containers
            .refresh(&self.system, &mut self.dqa, &now, queues)?;
        let refused = self.containers.refused();
        if *refused == self.journal.not_carried {
            return Ok(());
        }
        self.journal.not_carried.clone_from(refused);
        self.journal.save(&self.system)
    }

    /// Updates the programs after a change of the number of queues. With one queue they step aside.
    fn reload(&mut self, device: &Device) -> Result<(), NicError> {
        let queues = device.managed_queues();
        if queues < 2 {
            return self.step_aside(Aside::OneQueue);
        }
        let by_user = self.journal.aside == Some(Aside::XpsMaps);
        // Queues in the settings must exist at every moment.
        let next = Journal {
            queues,
            priority_queues: device.disciplines.priority_queues,
            ..self.journal.clone()
        };
        let settings = attach::settings(&self.system, &next);
        if queues > self.journal.queues {
            self.dqa.set_queues(queues)?;
            self.dqa.set(&settings)?;
        } else {
            self.dqa.set(&settings)?;
            self.dqa.set_queues(queues)?;
        }
        self.journal = Journal {
            aside: None,
            ..next
        };
        if by_user {
            return self.step_aside(Aside::XpsMaps);
        }
        self.journal.save(&self.system)?;
        self.effect = Effect::new(self.dqa.counters()?);
        if let Some((pusher, weights)) = &mut self.weights {
            *weights = QueueWeights::new(queues, pusher.options());
        }
        self.refresh_containers()
    }

    /// Empties maps that were set meanwhile; drivers do so when the number of queues changes.
    fn clear_maps(&mut self, name: &str) -> Result<(), NicError> {
        let set = queues::saved_maps(&self.system, name);
        for map in &set {
            let known =
                |saved: &queues::SavedMap| saved.queue == map.queue && saved.file == map.file;
            if !self.journal.maps.iter().any(known) {
                self.journal.maps.push(map.clone());
            }
        }
        self.journal.save(&self.system)?;
        Ok(queues::clear(&self.system, name, &set)?)
    }

    /// Undoes what is left of a removed device, and attaches it again when it returns: a reloaded driver makes a new
    /// device with the same name and address.
    fn wait_for_return(&mut self, stop: &AtomicBool) -> Result<bool, NicError> {
        attach::undo(&self.system, &self.journal)?;
        // A detach in the meantime finds this controller by the journal.
        let waiting = Journal {
            maps: Vec::new(),
            sizes: None,
            weight_interface: None,
            weights_set: false,
            aside: None,
            not_carried: BTreeMap::new(),
            ..self.journal.clone()
        };
        waiting.save(&self.system)?;
        let (name, address) = (self.journal.device.clone(), self.journal.address.clone());
        let gone = Instant::now();
        while gone.elapsed() < RETURN && !stop.load(Ordering::Relaxed) {
            let links = self.route.links()?;
            let back = |link: &&crate::link::Link| link.name == name && link.address == address;
            let queues = queues::count(&self.system, &name);
            if links.iter().any(|link| back(&link)) && queues > 1 {
                let options = self.journal.options.clone();
                // A driver that is still setting up its device rejects requests: retry.
                if let Ok(again) = attach::attach_again(
                    &self.system,
                    &name,
                    options,
                    self.journal.upper.as_deref(),
                )
                .and_then(|journal| Self::new(&self.system.clone(), journal))
                {
                    *self = again;
                    return Ok(true);
                }
            }
            thread::sleep(LOOK / 4);
        }
        waiting.remove(&self.system)?;
        Ok(false)
    }
}

/// Whether the programs must be updated to `queues`, given their last number and whether they step aside.
fn is_news(queues: u16, reported: u16, aside: bool) -> bool {
    match aside {
        true => queues > 1,
        false => queues != reported,
    }
}

/// Whether flows share a queue other than the shared one.
fn is_shared(queues: &[QueueSnapshot], journal: &Journal) -> bool {
    let bulk = shared_queues(journal);
    let shared = |(queue, snapshot): (usize, &QueueSnapshot)| {
        u16::try_from(queue).is_ok_and(|queue| bulk.holds(queue)) && snapshot.flows > 1
    };
    queues.iter().enumerate().any(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::options::Options;

    #[test]
    fn programs_that_left_the_choice_get_as_many_queues_as_before() {
        assert!(is_news(1, 8, false) && is_news(8, 8, true) && is_news(4, 8, false));
        assert!(!is_news(1, 8, true) && !is_news(8, 8, false));
    }

    #[test]
    fn the_latency_queue_may_be_shared() {
        let directory = tempfile::tempdir().unwrap();
        let system = System::at(directory.path());
        let options = Options {
            latency: true,
            ..Options::default()
        };
        let journal = Journal::new(&system, &Link::default(), "/pins".into(), 4, options);
        let queues = |flows: [u32; 4]| {
            flows.map(|flows| QueueSnapshot {
                flows,
                ..QueueSnapshot::default()
            })
        };
        assert!(!is_shared(&queues([1, 1, 1, 9]), &journal));
        assert!(is_shared(&queues([1, 2, 1, 0]), &journal));
    }
}
