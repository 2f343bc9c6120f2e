//! The loop beside an attachment: tells the device weights, sizes segments, follows what changes.
//!
//! Problem: queue weights and segment sizes follow traffic within milliseconds; queues, containers, names and devices
//! come and go. Method: every [`BEAT`] the queues' loads are read from shared memory and given to the policies of
//! `core`, whose decisions are performed; every [`LOOK`] the device is looked at. The loop may die at any time: queue
//! assignment goes on in the kernel, and what the loop changed is in the journal.
//! Units: wall time of the monotonic clock. Limits: weights and sizes stay as they are while nobody runs the loop.

use crate::attach::{self, shared_queues};
use crate::containers::{self, Containers};
use crate::device::Device;
use crate::effect::{Aside, Effect};
use crate::error::NicError;
use crate::journal::{Journal, Process};
use crate::link::Route;
use crate::options::Weights;
use crate::push::{Pusher, Told};
use crate::system::System;
use crate::{queues, segments};
use isolane_common_quantities::units;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_bpf::{Dqa, QueueSnapshot};
use isolane_ethernet_policy::titan::segments::{SegmentOptions, SegmentSize};
use isolane_ethernet_policy::titan::weights::QueueWeights;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at the queues. Flows of bulk data live longer; reading the queues costs microseconds.
pub const BEAT: Duration = Duration::from_millis(10);
/// Between two looks at the device.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long nothing must have been shared before segments grow: changing them makes every socket look up its route.
const HOLD: units::Duration = units::Duration::from_secs(1);
/// Beats that may fail in a row: two looks' worth.
const FAILURES: u32 = 200;
/// Looks that may fail in a row: a card that is reset refuses for seconds.
const LOOKS: u32 = 10;
/// Tries of a segment size before segments are left as they are.
const RESIZES: u32 = 100;
/// How long a device may be away before it is given up: a driver that is loaded again takes seconds.
const RETURN: Duration = Duration::from_secs(60);

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// The device, or its network namespace, went away and did not come back. Everything is undone.
    Gone,
    /// Somebody detached the device.
    Detached,
}

/// What a look at the device found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Same,
    Gone,
    Detached,
    /// Its network namespace was deleted, and lives only because we are in it.
    Abandoned,
}

/// Controls one attachment.
pub struct Controller {
    system: System,
    journal: Journal,
    dqa: Dqa,
    route: Route,
    weights: Option<(Box<dyn Pusher>, QueueWeights)>,
    segments: Option<SegmentSize>,
    /// A size decided and not yet set, and how often that was tried.
    wanted: Option<(Bytes, u32)>,
    effect: Effect,
    /// Whether freed packets tell which queue they had.
    tells_queues: bool,
    /// Whether queues were shared at the last beat: one look alone may see a flow that is about to go.
    shared_before: bool,
    containers: Containers,
    begun: Instant,
    looked: Instant,
}

impl Controller {
    /// Takes over the attachment of a journal, and says so in it.
    ///
    /// # Errors
    /// Programs that are gone; the kernel's.
    pub fn new(system: &System, mut journal: Journal) -> Result<Self, NicError> {
        let dqa = Dqa::open(&journal.pins)?;
        let mut route = Route::open()?;
        let link = route.link_by_index(journal.index)?;
        let link = link.ok_or_else(|| NicError::Gone {
            device: journal.device.clone(),
        })?;
        let device = Device::read(system, &link.name)?;
        let weights = match Told::choose(&device)? {
            // Weights of an earlier controller are still to be taken back: none are told beside them.
            _ if journal.weights_told => None,
            Told::By(pusher) => {
                let weights = QueueWeights::new(journal.queues, pusher.options());
                Some((pusher, weights))
            }
            Told::Nobody(_) => None,
        };
        if !journal.weights_told {
            journal.weights_told_to = weights.as_ref().map(|(pusher, _)| pusher.name().to_owned());
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

    /// What is controlled.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Runs until `stop` is set, the device is gone for good, or somebody detached it.
    ///
    /// # Errors
    /// The kernel's; the attachment stays as it is.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<Ended, NicError> {
        let (mut failures, mut looks) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            failures = match self.beat() {
                Ok(()) => 0,
                // A device that is going away refuses before it is gone; the next look tells.
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

    /// One look at the queues.
    fn beat(&mut self) -> Result<(), NicError> {
        if self.journal.aside.is_some() {
            return Ok(());
        }
        let queues = self.dqa.queues();
        let elapsed = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = units::Instant::ZERO.saturating_add(units::Duration::from_ns(elapsed));
        let loads = self.containers.loads(&queues);
        if self.tell(now, &loads).is_err() {
            // What was told stays in the journal to be taken back; the device is not asked again.
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
            // What it was stays in the journal, if it was changed at all; the device is not asked again.
            (self.wanted, self.segments) = (None, None);
        }
        resized
    }

    /// Tells the device weights, if there is news. That it was told is in the journal before.
    fn tell(&mut self, now: units::Instant, loads: &[u64]) -> Result<(), NicError> {
        let Some((pusher, weights)) = &mut self.weights else {
            return Ok(());
        };
        let Some(told) = weights.poll(now, loads) else {
            return Ok(());
        };
        if !self.journal.weights_told {
            if !pusher.is_free()? {
                self.weights = None;
                self.journal.weights_told_to = None;
                return self.journal.save(&self.system);
            }
            self.journal.weights_told = true;
            self.journal.save(&self.system)?;
        }
        pusher.push(told)
    }

    /// Sets the segment size. What it was goes into the journal before, and out of it after it is back.
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

    /// One look at the device: its presence, name, queues and containers.
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
        let news = is_news(device.managed_queues(), self.journal.queues, has_one);
        if news {
            self.reload(&device)?;
        }
        self.look_at_maps(&device, news)?;
        self.refresh_containers()?;
        self.look_at_effect()?;
        Ok(Seen::Same)
    }

    /// Maps that a driver set when the number of queues changed, or as they were before, are emptied. Others are the
    /// user's: they stay, also at detach, and the programs step aside until they are gone.
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

    /// Steps aside where packets go through other queues than the chosen ones.
    fn look_at_effect(&mut self) -> Result<(), NicError> {
        if !self.tells_queues || self.journal.aside.is_some() {
            return Ok(());
        }
        match self.effect.overruled(self.dqa.counters()?) {
            Some(percent) => self.step_aside(Aside::Overruled { percent }),
            None => Ok(()),
        }
    }

    /// Lets packets pass untouched, and takes back what was changed for the sake of chosen queues.
    fn step_aside(&mut self, reason: Aside) -> Result<(), NicError> {
        let mut settings =
            attach::settings(&self.system, &self.journal.options, self.journal.queues);
        settings.enabled = false;
        self.dqa.set(&settings)?;
        if let Some(before) = self.journal.sizes {
            segments::set(&self.system, &mut self.route, self.journal.index, before)?;
            self.journal.sizes = None;
        }
        if let Some((pusher, _)) = self.weights.as_mut().filter(|_| self.journal.weights_told) {
            pusher.undo(self.journal.queues)?;
            self.journal.weights_told = false;
        }
        self.journal.aside = Some(reason);
        self.journal.save(&self.system)
    }

    /// Goes on as before the programs stepped aside.
    fn resume(&mut self) -> Result<(), NicError> {
        let settings = attach::settings(&self.system, &self.journal.options, self.journal.queues);
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
        // A container that was named and has ended is no reason to stop caring for the others.
        let Ok(now) = containers::list(&self.system, &self.journal.options) else {
            return Ok(());
        };
        self.containers
            .refresh(&mut self.dqa, &now, shared_queues(&self.journal))
    }

    /// Tells the programs of another number of queues. With one queue left they stand aside until there are more.
    fn reload(&mut self, device: &Device) -> Result<(), NicError> {
        let queues = device.managed_queues();
        if queues < 2 {
            return self.step_aside(Aside::OneQueue);
        }
        let by_user = self.journal.aside == Some(Aside::XpsMaps);
        // Settings name queues that must be there at every moment.
        let settings = attach::settings(&self.system, &self.journal.options, queues);
        if queues > self.journal.queues {
            self.dqa.set_queues(queues)?;
            self.dqa.set(&settings)?;
        } else {
            self.dqa.set(&settings)?;
            self.dqa.set_queues(queues)?;
        }
        self.journal.aside = None;
        self.journal.queues = queues;
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

    /// Empties maps that somebody set meanwhile, as drivers do when the number of queues changes.
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

    /// Undoes what is left of a device that went away, and attaches it again when it is back: a driver that was
    /// loaded again makes a new device of the same name and address.
    fn wait_for_return(&mut self, stop: &AtomicBool) -> Result<bool, NicError> {
        attach::undo(&self.system, &self.journal)?;
        // Whoever detaches meanwhile finds us by it.
        let waiting = Journal {
            maps: Vec::new(),
            sizes: None,
            weights_told_to: None,
            weights_told: false,
            aside: None,
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
                // A driver that is still at work on its device refuses things: it is asked again.
                if let Ok(again) = attach::attach(&self.system, &name, options)
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

/// Whether programs that were told of so many queues, or stand aside, must be told of another number.
fn is_news(queues: u16, told: u16, aside: bool) -> bool {
    match aside {
        true => queues > 1,
        false => queues != told,
    }
}

/// Whether flows share a queue, but for the one that is there to be shared.
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
    fn programs_that_stood_aside_are_told_of_as_many_queues_as_before() {
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
