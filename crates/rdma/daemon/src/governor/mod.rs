//! The deciding part: sessions, tenants and devices in; leases, classes and orders out.
//!
//! Problem: the rate of each process depends on all others and changes within a millisecond. It must follow from the
//! kernel's facts and from counters, not from a process's claims. Method: a state machine without a clock. Its driver
//! (the event loop or a test) reports arrivals, departures and wake-ups, calls [`Governor::advance`] at
//! [`Governor::next_deadline_ns`] and [`Governor::settle`] before it sleeps, and takes orders and looks. The governor
//! reads counters from the sessions' shared memory and writes leases to it. While a sender is active, the active meters
//! are read once a period; otherwise no meter is read. A sender that is alone on its device without latency flows is
//! read less often. A process that starts to send signals its event counter (a *signal*) and has its lease after the
//! next `settle`. Invariants: the shares of a device and direction add up to at most the policy's rate, apart from the
//! standing leases of newcomers between their first message and the next `settle`; a departed session leaves no weight,
//! member, group or tenant; each reading costs O(active log active). Units: nanoseconds of CLOCK_MONOTONIC outside,
//! picoseconds since [`Governor::new`] inside. Source: justitia 4 and appendix F; leases are ours
//! ([`isolane_rdma_policy::leases`]).

mod device;
mod figures;
mod foreign;
mod latency;
mod limits;
mod seat;
mod service;
mod shares;
mod slots;
mod sources;
mod stream;
mod tally;
mod tenants;
mod watch;

#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::identity::{Assigned, Who, assign};
use crate::order::{Grant, Order};
use crate::snapshot::DaemonFigures;
pub use foreign::PortCount;

use device::{DIRECTIONS, Device, READS};
use isolane_common_linux::account::{Account, NoPlace, PlaceLimits, Places};
use isolane_common_linux::tally as listeners;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use isolane_rdma_inventory::unheld::Unheld;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::{Class, NO_METER, PortAddress};
use isolane_rdma_session::region::{
    Lease, METER_ACTIVE, METER_RELEASED, METERS, Region, RegionError, SOURCES, STATE_RELEASED,
};
use seat::Seat;
use slots::Scan;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use tenants::Tenants;

/// Handle of a session. A stale handle matches no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Its place; places are reused.
    pub index: u32,
    /// How many sessions used the place before.
    pub epoch: u32,
}

/// A new session.
#[derive(Debug)]
pub struct Begun {
    /// Its handle.
    pub key: SessionKey,
    /// Session number, unique while the daemon runs.
    pub session: u64,
    /// Class after the operator's rules.
    pub class: Class,
    /// The shared memory to send to the process.
    pub memory: OwnedFd,
}

/// Why a session is rejected. The process receives the text.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum Refusal {
    #[error("{0}; raise sessions_max or sessions_per_account_max")]
    Place(#[from] NoPlace),
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl Refusal {
    /// Its reason in the counters of listeners.
    pub(crate) fn reason(&self) -> listeners::Refusal {
        match self {
            Self::Place(_) => listeners::Refusal::Sessions,
            Self::Region(_) => listeners::Refusal::Memory,
        }
    }
}

/// The state machine; see the module.
#[derive(Debug)]
pub struct Governor {
    config: Config,
    port_rates: Vec<BitRate>,
    epoch_ns: u64,
    devices: Vec<Device>,
    tenants: Tenants,
    seats: Vec<(u32, Option<Seat>)>,
    free: Vec<u32>,
    places: Places,
    sessions_bound: usize,
    next_session: u64,
    next_period_ns: Option<u64>,
    /// Sessions that signalled before their counters changed; they are read again soon.
    again: Vec<SessionKey>,
    again_at_ns: Option<u64>,
    scan: Scan,
    orders: VecDeque<(usize, Order)>,
    looks: VecDeque<SessionKey>,
    figures: DaemonFigures,
    limits: limits::Limits,
    /// Processes whose work is not paced, for the snapshot.
    unheld: Vec<Unheld>,
    /// When the classes of connections are read again.
    services_due_ns: u64,
}

impl Governor {
    /// Makes a governor without sessions. `port_rates` are the rates of the devices' ports, in the configuration's
    /// order. Fails if a device's options are invalid. Panics if the number of port rates differs from the number of
    /// devices.
    pub fn new(config: Config, port_rates: Vec<BitRate>, now_ns: u64) -> Result<Self, OptionError> {
        let devices = Self::devices(&config, &port_rates)?;
        Ok(Self {
            config,
            port_rates,
            epoch_ns: now_ns,
            devices,
            tenants: Tenants::default(),
            seats: Vec::new(),
            free: Vec::new(),
            places: Places::default(),
            sessions_bound: usize::MAX,
            next_session: 1,
            next_period_ns: None,
            again: Vec::new(),
            again_at_ns: None,
            scan: Scan::default(),
            orders: VecDeque::new(),
            looks: VecDeque::new(),
            figures: DaemonFigures::default(),
            limits: limits::Limits::default(),
            unheld: Vec::new(),
            services_due_ns: 0,
        })
    }

    fn devices(config: &Config, port_rates: &[BitRate]) -> Result<Vec<Device>, OptionError> {
        assert_eq!(
            config.devices.len(),
            port_rates.len(),
            "one port rate for each device"
        );
        config.check()?;
        let each = config.devices.iter().zip(port_rates);
        each.map(|(device, &rate)| Device::new(config, device, rate))
            .collect()
    }

    /// The current configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The configuration's places, or the same shares of fewer where open files suffice for fewer only.
    pub(crate) fn session_places(&self) -> PlaceLimits {
        let places = self.config.session_places();
        match places.total > self.sessions_bound {
            true => places.scaled_to(self.sessions_bound),
            false => places,
        }
    }

    /// Lets at most so many sessions begin, whatever the configuration has.
    pub(crate) fn bound_sessions(&mut self, most: usize) {
        self.sessions_bound = most;
    }

    /// Checks that a place is left for one more session of `account`. Fails if no place is left.
    pub fn check_place(&self, account: &Account) -> Result<(), NoPlace> {
        self.places.check(&self.session_places(), account)
    }

    /// Places by account.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Opens a session for a process. Fails for too many sessions, and without memory.
    pub fn arrive(&mut self, _now_ns: u64, who: Who) -> Result<Begun, Refusal> {
        if let Err(refusal) = self.check_place(&who.account) {
            self.figures.refused_total += 1;
            return Err(refusal.into());
        }
        let session = self.next_session;
        let (region, memory) = Region::create(session)?;
        self.next_session += 1;
        let assigned = self.assign(&who);
        let class = assigned.class;
        region.header.class.store(class as u32, Ordering::Release);
        let index = self.free.pop().unwrap_or_else(|| {
            self.seats.push((0, None));
            (self.seats.len() - 1) as u32
        });
        let limits = self.session_places();
        let taken = self.places.take(&limits, &who.account);
        taken.expect("there was a place");
        let (tenant, reweighed) = self.tenants.join(&assigned);
        let seat = Seat {
            region,
            session,
            who,
            tenant,
            group: self.group(tenant, index),
            assigned,
            meters: Vec::new(),
            slots: Vec::new(),
            latency: vec![[0; 2]; self.devices.len()],
            readers: BTreeMap::new(),
        };
        if seat.is_auto() {
            self.scan.watch(index);
        }
        let place = &mut self.seats[index as usize];
        place.1 = Some(seat);
        let key = SessionKey {
            index,
            epoch: place.0,
        };
        if reweighed {
            self.reweigh(tenant);
        }
        self.figures.sessions_total += 1;
        Ok(Begun {
            key,
            session,
            class,
            memory,
        })
    }

    /// Assigns tenant, class and weight, within the limit of names per owner.
    fn assign(&self, who: &Who) -> Assigned {
        let assigned = assign(&self.config, who);
        match self
            .tenants
            .has_too_many_names(&assigned, self.config.own_names_max)
        {
            true => assigned.without_its_word(&self.config),
            false => assigned,
        }
    }

    /// Opens a device for a session. Returns its two meters, or [`NO_METER`] twice if the device is not served.
    pub fn open(&mut self, now_ns: u64, key: SessionKey, device: &str) -> [u16; 2] {
        const NOT_SERVED: [u16; 2] = [NO_METER; 2];
        let Some(at) = self
            .config
            .devices
            .iter()
            .position(|known| known.name == device)
        else {
            return NOT_SERVED;
        };
        let Some(seat) = self.seat(key) else {
            return NOT_SERVED;
        };
        if let Some(first) = seat.meters.iter().position(|meter| meter.device == at) {
            return [first as u16, first as u16 + 1];
        }
        if seat.meters.len() + DIRECTIONS.len() > METERS {
            return NOT_SERVED;
        }
        let first = seat.meters.len() as u16;
        let is_latency = seat.assigned.class == Class::Latency;
        for direction in 0..DIRECTIONS.len() {
            self.add_meter(now_ns, key.index, at, direction, None);
        }
        if is_latency {
            // The daemon cannot see the data path of a latency process, so the process counts while it exists.
            self.add_latency(key.index, at);
            self.add_reader(key.index, at, None);
        }
        [first, first + 1]
    }

    /// Opens the meter of a session's READs from a port by an open device. Returns [`NO_METER`] for further ports than
    /// [`SOURCES`], and if the device is not open.
    pub fn open_reads(
        &mut self,
        now_ns: u64,
        key: SessionKey,
        device: &str,
        source: PortAddress,
    ) -> u16 {
        let Some(seat) = self.seat(key) else {
            return NO_METER;
        };
        let is_it = |meter: &&seat::MeterState| {
            self.config.devices[meter.device].name == device && meter.direction == READS
        };
        let Some(at) = seat.meters.iter().find(is_it).map(|meter| meter.device) else {
            return NO_METER;
        };
        let mut known = seat.meters.iter();
        let same = |meter: &seat::MeterState| meter.device == at && meter.source == Some(source);
        if let Some(number) = known.position(same) {
            return number as u16;
        }
        let sources = seat.meters.iter().filter(|meter| meter.source.is_some());
        let number = seat.meters.len();
        if sources.count() >= SOURCES || number >= METERS {
            return NO_METER;
        }
        self.add_meter(now_ns, key.index, at, READS, Some(source));
        number as u16
    }

    /// Ends a session.
    pub fn depart(&mut self, now_ns: u64, key: SessionKey) {
        if self.seat(key).is_none() {
            return;
        }
        self.look_at(now_ns, key.index);
        let (epoch, seat) = &mut self.seats[key.index as usize];
        *epoch = epoch.wrapping_add(1);
        let seat = seat.take().expect("it was there");
        self.free.push(key.index);
        seat.region
            .header
            .state
            .store(STATE_RELEASED, Ordering::Release);
        self.drop_shares(&seat);
        self.scan.forget(key.index);
        let sum = |at: usize| {
            let each = seat.meters.iter().map(|meter| meter.passed[at]);
            each.fold(0, u64::saturating_add)
        };
        self.tenants.leave(now_ns, seat.tenant, [sum(0), sum(1)]);
        self.places.give_back(&seat.who.account);
    }

    /// Handles a wake-up: the process sends, or something in its memory changed.
    pub fn signalled(&mut self, now_ns: u64, key: SessionKey) {
        let Some(seat) = self.seat(key) else { return };
        seat.region.header.answers.fetch_add(1, Ordering::Release);
        self.scan.hurry(now_ns);
        if !self.look_at(now_ns, key.index) {
            // A process signals before it counts.
            self.again.push(key);
            self.again_at_ns.get_or_insert(now_ns + AGAIN_NS);
        }
    }

    /// Reports the latency of a reference message of `device`.
    pub fn reference_latency(&mut self, now_ns: u64, device: usize, latency: Duration) {
        let now = self.instant(now_ns);
        self.devices[device].reference_latency(now, latency);
    }

    /// Reports the sum of the other daemons' states of `device`.
    pub fn remote(&mut self, now_ns: u64, device: usize, state: RemoteState) {
        let now = self.instant(now_ns);
        let orders = &mut self.orders;
        self.devices[device].remote(now, state, &mut |order| orders.push_back((device, order)));
        self.devices[device].dirty = true;
    }

    /// Reports the rates at which the other daemons let this host's `device` READ.
    pub fn granted(&mut self, device: usize, grants: Vec<Grant>) {
        self.devices[device].granted(grants);
    }

    /// Time of the next call of [`Self::advance`]; `None` if none is needed.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let policies = self.devices.iter().filter_map(Device::timeout);
        let policies = policies.map(|at| self.epoch_ns + at.as_ps().div_ceil(1_000));
        let own = [self.next_period_ns, self.again_at_ns, self.scan.next_ns()];
        policies.chain(own.into_iter().flatten()).min()
    }

    /// Does what is due, then settles.
    pub fn advance(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.epoch_ns) > EPOCH_NS {
            let (config, rates) = (self.config.clone(), self.port_rates.clone());
            self.reconfigure(now_ns, config, rates)
                .expect("the options worked before");
        }
        let now = self.instant(now_ns);
        let period_ns = self.period_ns();
        let orders = &mut self.orders;
        // Work that is due soon is done now, because a wake-up costs more than a reading.
        let mut slack_ns = period_ns / 8;
        for (at, device) in self.devices.iter_mut().enumerate() {
            if device.timeout().is_some_and(|due| due <= now) {
                slack_ns = period_ns / 2;
                device.handle_timeout(now, &mut |order| orders.push_back((at, order)));
            }
        }
        if self
            .next_period_ns
            .is_some_and(|due| due <= now_ns + slack_ns)
        {
            self.period(now_ns);
        }
        if self.again_at_ns.is_some_and(|due| due <= now_ns) {
            self.again_at_ns = None;
            for key in std::mem::take(&mut self.again) {
                if self.seat(key).is_some() {
                    self.look_at(now_ns, key.index);
                }
            }
        }
        if self.scan.next_ns().is_some_and(|due| due <= now_ns) {
            self.scan_slots(now_ns);
        }
        self.settle(now_ns);
    }

    /// Updates the leases after all reports since the last call.
    pub fn settle(&mut self, now_ns: u64) {
        let now = self.instant(now_ns);
        for at in 0..self.devices.len() {
            if !self.devices[at].dirty {
                continue;
            }
            let orders = &mut self.orders;
            self.devices[at].settle(now, &mut |order| orders.push_back((at, order)));
            self.divide(now_ns, at);
        }
        let soonest = self.pause_ns().map(|pause_ns| now_ns + pause_ns);
        self.next_period_ns =
            soonest.map(|soonest| self.next_period_ns.unwrap_or(soonest).min(soonest));
    }

    /// The next order, with the place of its device.
    pub fn take_order(&mut self) -> Option<(usize, Order)> {
        self.orders.pop_front()
    }

    /// The next session whose process should read its memory.
    pub fn take_look(&mut self) -> Option<SessionKey> {
        self.looks.pop_front()
    }

    /// Applies a configuration, also an unchanged one: every session is assigned again and every policy restarts. Fails
    /// if a device's options are invalid; then nothing changes. Panics if the number of port rates differs from the
    /// number of devices, or the devices changed.
    pub fn reconfigure(
        &mut self,
        now_ns: u64,
        config: Config,
        port_rates: Vec<BitRate>,
    ) -> Result<(), OptionError> {
        let names = |config: &Config| -> Vec<String> {
            config
                .devices
                .iter()
                .map(|device| device.name.clone())
                .collect()
        };
        assert_eq!(
            names(&config),
            names(&self.config),
            "sessions hold meters of the devices"
        );
        let devices = Self::devices(&config, &port_rates)?;
        for index in 0..self.seats.len() as u32 {
            self.look_at(now_ns, index);
        }
        let before = std::mem::replace(&mut self.devices, devices);
        self.config = config;
        self.port_rates = port_rates;
        self.epoch_ns = now_ns;
        self.next_period_ns = None;
        self.tenants = self.tenants.emptied();
        self.scan = Scan::default();
        for index in 0..self.seats.len() as u32 {
            self.seat_anew(now_ns, index);
        }
        self.tenants.prune();
        let orders = &mut self.orders;
        let now = Instant::ZERO;
        for (at, (device, before)) in self.devices.iter_mut().zip(&before).enumerate() {
            device.inherit(now, before, &mut |order| orders.push_back((at, order)));
        }
        self.settle(now_ns);
        Ok(())
    }

    /// Sets the measured target of a device's reference flow; its policy restarts. Fails if the policy rejects the
    /// target; then nothing changes.
    pub fn set_target(
        &mut self,
        now_ns: u64,
        device: usize,
        target: Duration,
    ) -> Result<(), OptionError> {
        let (mut config, rates) = (self.config.clone(), self.port_rates.clone());
        config.devices[device].target = Some(target);
        self.reconfigure(now_ns, config, rates)
    }

    /// Rates of the devices' ports, in the configuration's order.
    pub fn port_rates(&self) -> &[BitRate] {
        &self.port_rates
    }

    /// Releases all senders from pacing when the daemon ends.
    pub fn release_all(&mut self) {
        for (_, seat) in &self.seats {
            let Some(seat) = seat else { continue };
            for (meter, _) in seat.region.meters.iter().zip(&seat.meters) {
                meter.grant(&Lease {
                    flags: METER_ACTIVE | METER_RELEASED,
                    valid_until_ns: u64::MAX,
                    ..Lease::default()
                });
            }
            let header = &seat.region.header;
            header.state.store(STATE_RELEASED, Ordering::Release);
            header.changes.fetch_add(1, Ordering::Release);
        }
    }

    fn instant(&self, now_ns: u64) -> Instant {
        Instant::from_ps(now_ns.saturating_sub(self.epoch_ns).saturating_mul(1_000))
    }

    fn period_ns(&self) -> u64 {
        (self.config.period().as_ps() / 1_000).max(1)
    }

    /// Time between two readings of the active meters; `None` while no sender is active.
    fn pause_ns(&self) -> Option<u64> {
        let active = self.devices.iter().filter(|device| device.is_active());
        let pauses = active.map(|device| match device.is_calm() {
            true => self.period_ns() * CALM_PERIODS,
            false => self.period_ns(),
        });
        pauses.min()
    }

    /// How long the only active process may be silent before it loses its lease.
    fn rest_ns(&self) -> u64 {
        self.config.idle_after().as_ps() / 1_000 * CALM_RESTS
    }

    fn seat(&self, key: SessionKey) -> Option<&Seat> {
        let (epoch, seat) = self.seats.get(key.index as usize)?;
        (*epoch == key.epoch).then_some(seat.as_ref()?)
    }
}

/// A process that is alone on its device is read this many times less often: its lease does not depend on the counters.
/// A newcomer's wake-up ends the pause.
const CALM_PERIODS: u64 = 8;
/// A lone process may be silent this many times longer. Becoming idle and waking up again costs more than reading on: a
/// process counts when it draws credit, a sixteenth of a burst at a time, which on a fast device is less often than
/// `idle_after`.
const CALM_RESTS: u64 = 5;
/// When a process that signalled without a change of its counters is read again.
const AGAIN_NS: u64 = 100_000;
/// u64 picoseconds last 213 days; the policies restart before that.
const EPOCH_NS: u64 = 100 * 86_400 * 1_000_000_000;
