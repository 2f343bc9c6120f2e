//! The governor's state for metrics and people.

use super::Governor;
use super::device::Device;
use super::seat::Seat;
use crate::snapshot::{
    DaemonFigures, DeviceSnapshot, LimitSnapshot, MeterSnapshot, QueuePairSnapshot,
    SessionSnapshot, Snapshot, TenantSnapshot,
};
use isolane_rdma_inventory::unheld::{Session, Unheld};
use isolane_rdma_policy::Policy;
use isolane_rdma_policy::leases::{EVERYTHING, LimitKind};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{METER_ACTIVE, METER_RELEASED, SLOTS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

impl Governor {
    /// The daemon's own figures.
    pub fn figures(&self) -> DaemonFigures {
        DaemonFigures {
            sessions: (self.seats.len() - self.free.len()) as u64,
            ..self.figures
        }
    }

    /// The whole state at `now_ns`, with fresh counters.
    pub fn snapshot(&mut self, now_ns: u64) -> Snapshot {
        for index in 0..self.seats.len() as u32 {
            self.look_at(now_ns, index);
        }
        self.settle(now_ns);
        let mut sessions: Vec<SessionSnapshot> = self
            .present()
            .map(|seat| self.session(seat, now_ns))
            .collect();
        sessions.sort_by_key(|session| session.session);
        Snapshot {
            now_ns,
            daemon: self.figures(),
            devices: self.devices.iter().map(|one| device(one, now_ns)).collect(),
            tenants: self
                .tenants
                .iter()
                .map(|(number, tenant)| self.tenant(number, tenant, now_ns))
                .collect(),
            limits: self.standing_limits(),
            sessions,
            unheld: self.unheld.clone(),
        }
    }

    /// The sessions by process id, as the comparison with the kernel's list needs them.
    pub fn paced(&self, now_ns: u64) -> BTreeMap<u32, Session> {
        let sessions = self.present().map(|seat| self.session(seat, now_ns));
        let snapshot = Snapshot {
            sessions: sessions.collect(),
            ..Snapshot::default()
        };
        snapshot.paced()
    }

    /// Sets what is known of processes whose work is not paced.
    pub fn set_unheld(&mut self, unheld: Vec<Unheld>) {
        self.unheld = unheld;
    }

    fn standing_limits(&self) -> Vec<LimitSnapshot> {
        let mut under: BTreeMap<u32, Vec<&Seat>> = BTreeMap::new();
        for seat in self.present() {
            if let Some(number) = self.limit_over(seat.who.pid) {
                under.entry(number).or_default().push(seat);
            }
        }
        let limit = |(number, bytes_per_s)| {
            let seats = under.get(&number).map_or(&[][..], Vec::as_slice);
            let tenants: BTreeSet<_> = seats.iter().map(|seat| &seat.assigned.tenant).collect();
            LimitSnapshot {
                number,
                bytes_per_s,
                sessions: seats.len() as u64,
                unheld: seats.iter().filter(|seat| !is_held(seat)).count() as u64,
                tenants: tenants.into_iter().cloned().collect(),
            }
        };
        self.limits.standing().map(limit).collect()
    }

    fn present(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter_map(|(_, seat)| seat.as_ref())
    }

    fn tenant(&self, number: u32, tenant: &super::tenants::Tenant, now_ns: u64) -> TenantSnapshot {
        let watches = tenant.latency.iter().zip(&self.devices);
        let lost = watches.filter(|(watch, _)| watch.is_lost(now_ns));
        let mut passed = tenant.passed;
        let of_it = self.present().filter(|seat| seat.tenant == number);
        for meter in of_it.flat_map(|seat| &seat.meters) {
            passed[0] = passed[0].saturating_add(meter.passed[0]);
            passed[1] = passed[1].saturating_add(meter.passed[1]);
        }
        TenantSnapshot {
            name: tenant.name.clone(),
            weight: tenant.weight,
            sessions: tenant.sessions,
            passed_bytes: passed[0],
            passed_operations: passed[1],
            latency_lost_on: lost.map(|(_, device)| device.config.name.clone()).collect(),
        }
    }

    fn session(&self, seat: &Seat, now_ns: u64) -> SessionSnapshot {
        let header = &seat.region.header;
        let meters = seat.meters.iter().zip(&seat.region.meters);
        let meters = meters.map(|(state, meter)| {
            let counters = meter.counters();
            let is_active = state.written.flags & METER_ACTIVE != 0;
            let is_released = state.written.flags & METER_RELEASED != 0;
            let device = &self.devices[state.device];
            let cap = device.streams[state.direction]
                .leases
                .cap(state.member, LimitKind::Tenant);
            let of_lease = |value: u64| if is_released { 0 } else { value };
            MeterSnapshot {
                device: device.config.name.clone(),
                remote_read: state.direction == 1,
                active: is_active && !is_released,
                lease_bytes_per_s: of_lease(state.written.rate_bytes_per_s),
                lease_operations_per_s: of_lease(state.written.rate_operations_per_s),
                limit_bytes_per_s: (cap != EVERYTHING && is_held(seat)).then_some(cap),
                passed_bytes: state.passed[0],
                passed_operations: state.passed[1],
                posted_bytes: counters.posted_bytes,
                posted_operations: counters.posted_operations,
                waiting_ns: match counters.waiting_since_ns {
                    0 => 0,
                    since => now_ns.saturating_sub(since),
                },
            }
        });
        SessionSnapshot {
            session: seat.session,
            tenant: seat.assigned.tenant.clone(),
            pid: seat.who.pid,
            user: seat.who.user,
            program: seat.who.program.clone(),
            class: seat.assigned.class.name().to_owned(),
            weight: seat.assigned.weight,
            limit: self.limit_over(seat.who.pid),
            waiting: header.waiting.load(Ordering::Relaxed),
            meters: by_direction(meters),
            queue_pairs: queue_pairs(seat),
        }
    }
}

/// One figure for each device and direction: the sum over the ports that are read.
fn by_direction(meters: impl Iterator<Item = MeterSnapshot>) -> Vec<MeterSnapshot> {
    let mut sums: Vec<MeterSnapshot> = Vec::new();
    for meter in meters {
        let same = |sum: &&mut MeterSnapshot| {
            sum.device == meter.device && sum.remote_read == meter.remote_read
        };
        match sums.iter_mut().find(same) {
            Some(sum) => sum.add(&meter),
            None => sums.push(meter),
        }
    }
    sums
}

/// Whether a limit can apply to the process: processes of the latency class have no lease.
fn is_held(seat: &Seat) -> bool {
    seat.assigned.class != Class::Latency
}

fn queue_pairs(seat: &Seat) -> Vec<QueuePairSnapshot> {
    let of_process = seat.assigned.class;
    let slots = seat.region.slots[..seat.slots_used().min(SLOTS)].iter();
    slots
        .filter_map(|slot| {
            let reading = slot.read()?;
            let class = match Class::from_number(slot.class.load(Ordering::Relaxed)) {
                Some(Class::Auto) | None => of_process,
                Some(class) => class,
            };
            Some(QueuePairSnapshot {
                queue_pair: reading.queue_pair,
                class: class.name().to_owned(),
                posted_messages: reading.posted_messages,
                posted_bytes: reading.posted_bytes,
                completed_messages: reading.completed_messages,
                completed_bytes: reading.completed_bytes,
                chunks: reading.chunks,
                waited_ns: reading.waited_ns,
            })
        })
        .collect()
}

fn device(device: &Device, now_ns: u64) -> DeviceSnapshot {
    let policy = device.policy.as_ref();
    let figures = policy.map(|policy| policy.snapshot()).unwrap_or_default();
    let rate_max_bps = device.options.rate_max.as_bps();
    DeviceSnapshot {
        name: device.config.name.clone(),
        policy: device.config.policy.name().to_owned(),
        rate_max_bps,
        safe_util_bps: policy.map_or(rate_max_bps, |policy| policy.safe_util().as_bps()),
        minimum_rate_bps: policy.map_or(0, |policy| policy.minimum_rate().as_bps()),
        active_sending: device.streams[0].leases.active() as u64,
        active_reading: device.streams[1].leases.active() as u64,
        leased_bytes_per_s: device.streams[0].leases.leased_bytes_per_s(),
        latency_weight: device.latency_weight(),
        foreign_bytes_per_s: device.foreign.rate,
        foreign_bytes: device.foreign.bytes,
        has_foreign: device.foreign.is_there(now_ns),
        figures: figures
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
