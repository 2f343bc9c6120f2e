//! Processes of a run, which draw credit from their leases as the preload library does (`preload/src/meter.rs`).

use isolane_rdma_session::region::{
    GRACE_NS, METER_ACTIVE, METER_RELEASED, Region, SILENT_NS, STATE_RELEASED,
};
use isolaned::governor::SessionKey;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// A process wakes the daemon at most once in this time.
const WAKE_EVERY_NS: u64 = 1_000_000;
/// Rate of a process that no lease limits, bytes per second.
const FREE_RATE: u64 = 5_000_000;

/// How a process may send at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nothing limits it.
    Free,
    /// A lease without activity: the daemon must still notice that it sends.
    Idle(u64),
    /// A lease of an active sender, bytes per second.
    Active(u64),
}

/// A process with one sender.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: u32,
    pub(super) tenant: usize,
    pub(super) device: usize,
    /// Whether it has unlimited work.
    pub(super) is_hungry: bool,
    /// Bytes that it sent.
    pub(super) sent: u64,
    /// Its session with the daemon that runs.
    pub(super) key: Option<SessionKey>,
    /// When it connects.
    pub(super) connects_ns: u64,
    /// Since when it sends and has no active lease of a daemon that runs.
    pub(super) unheld_since_ns: u64,
    /// Since when the lease of an idle process limits it although it sends.
    pub(super) idle_since_ns: u64,
    /// When it woke the daemon first since the last answer, and the number of answers before.
    unanswered: Option<(u64, u64)>,
    region: Option<Region>,
    meter: u16,
    stepped_ns: u64,
    woken_ns: u64,
    credit: u64,
}

impl Process {
    pub(super) fn new(number: u32, tenant: usize, device: usize) -> Self {
        Self {
            number,
            tenant,
            device,
            is_hungry: true,
            sent: 0,
            key: None,
            connects_ns: 0,
            unheld_since_ns: 0,
            idle_since_ns: 0,
            unanswered: None,
            region: None,
            meter: 0,
            stepped_ns: 0,
            woken_ns: 0,
            credit: 0,
        }
    }

    /// It has a session.
    pub(super) fn connected(&mut self, key: SessionKey, memory: &OwnedFd, meter: u16, now_ns: u64) {
        self.region = Some(Region::map(memory).expect("what the daemon made"));
        (self.key, self.meter, self.credit) = (Some(key), meter, 0);
        self.unanswered = None;
        self.unheld_since_ns = now_ns;
    }

    /// Its daemon has ended. It notices that at `noticed_ns`, and connects again.
    pub(super) fn loses_daemon(&mut self, noticed_ns: u64) {
        (self.key, self.connects_ns) = (None, noticed_ns);
    }

    /// How it may send.
    pub(super) fn pace(&self, now_ns: u64, ignores_end: bool) -> Pace {
        let Some(region) = &self.region else {
            return Pace::Free;
        };
        let is_lost = self.key.is_none() && now_ns >= self.connects_ns;
        let is_released = region.header.state.load(Ordering::Relaxed) == STATE_RELEASED;
        let lease = region.meters[usize::from(self.meter)].lease();
        let has_ended = lease.valid_until_ns.saturating_add(GRACE_NS) < now_ns;
        let is_silent = self.unanswered.is_some_and(|(since_ns, answers)| {
            now_ns - since_ns > SILENT_NS
                && region.header.answers.load(Ordering::Relaxed) == answers
        });
        match lease.flags {
            _ if is_lost || is_released || has_ended && !ignores_end => Pace::Free,
            flags if flags & METER_ACTIVE == 0 && is_silent && !ignores_end => Pace::Free,
            flags if flags & METER_RELEASED != 0 => Pace::Free,
            flags if flags & METER_ACTIVE != 0 => Pace::Active(lease.rate_bytes_per_s),
            _ => Pace::Idle(lease.rate_bytes_per_s),
        }
    }

    /// Sends what it may since the last step.
    pub(super) fn send(&mut self, now_ns: u64, ignores_end: bool) {
        let elapsed_ns = now_ns
            - std::mem::replace(&mut self.stepped_ns, now_ns)
                .max(1)
                .min(now_ns);
        let pace = self.pace(now_ns, ignores_end);
        let (rate, most) = match (pace, &self.region) {
            (Pace::Active(rate) | Pace::Idle(rate), Some(region)) => (
                rate,
                region.meters[usize::from(self.meter)].lease().burst_bytes,
            ),
            _ => (FREE_RATE, u64::MAX),
        };
        let waits = if self.is_hungry { now_ns } else { 0 };
        let grown = u128::from(rate) * u128::from(elapsed_ns.min(1_000_000_000)) / 1_000_000_000;
        self.credit = (self.credit + grown as u64).min(most);
        let passed = if self.is_hungry {
            std::mem::take(&mut self.credit)
        } else {
            0
        };
        self.sent += passed;
        if let Some(region) = &self.region {
            let meter = &region.meters[usize::from(self.meter)];
            meter.passed_bytes.fetch_add(passed, Ordering::Relaxed);
            meter
                .passed_operations
                .fetch_add(passed.div_ceil(4_096), Ordering::Relaxed);
            meter.waiting_since_ns.store(waits, Ordering::Relaxed);
        }
    }

    /// Whether it wakes the daemon now: it sends, and has no active lease.
    pub(super) fn wakes(&mut self, now_ns: u64) -> bool {
        let Some(region) = &self.region else {
            return false;
        };
        let lease = region.meters[usize::from(self.meter)].lease();
        let is_active = lease.flags & METER_ACTIVE != 0 && lease.valid_until_ns >= now_ns;
        let answers = region.header.answers.load(Ordering::Relaxed);
        let is_open = |(_, before): &(u64, u64)| !is_active && *before == answers;
        self.unanswered = self.unanswered.filter(is_open);
        let wakes = self.is_hungry && !is_active && now_ns - self.woken_ns >= WAKE_EVERY_NS;
        if wakes {
            self.woken_ns = now_ns;
            self.unanswered = self.unanswered.or(Some((now_ns, answers)));
        }
        wakes
    }
}
