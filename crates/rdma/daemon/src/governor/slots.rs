//! Measures the class of queue pairs whose process named none.
//!
//! Method: while traffic moves, the queue pairs of all watched sessions are read every [`LOOK_NS`], at most [`BUDGET`]
//! of them at a time. A session with a thousand queue pairs delays the classification of the others but costs no more
//! time. Without traffic, readings become less frequent.

use super::seat::{MeterState, SlotState, classifier_options};
use super::sources::Source;
use super::{Governor, SessionKey};
use isolane_common_quantities::units::Duration;
use isolane_rdma_session::message::Class;
use std::sync::atomic::Ordering;

/// The watched sessions and the time of the next reading.
#[derive(Debug, Default)]
pub(super) struct Scan {
    watched: Vec<u32>,
    /// Start of the next reading: session (place in `watched`) and slot.
    cursor: (usize, usize),
    next_ns: Option<u64>,
    pause_ns: u64,
    /// Whether traffic moved since the cursor was at the start.
    moved: bool,
}

impl Scan {
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    pub(super) fn watch(&mut self, index: u32) {
        self.watched.push(index);
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.watched.retain(|&other| other != index);
        if self.watched.is_empty() {
            self.next_ns = None;
        }
    }

    /// Traffic moves: read soon.
    pub(super) fn hurry(&mut self, now_ns: u64) {
        if !self.watched.is_empty() {
            self.pause_ns = LOOK_NS;
            let due = now_ns + LOOK_NS;
            self.next_ns = Some(self.next_ns.map_or(due, |next| next.min(due)));
        }
    }
}

impl Governor {
    /// Reads the watched sessions' queue pairs, as far as the budget permits.
    pub(super) fn scan_slots(&mut self, now_ns: u64) {
        let mut budget = BUDGET;
        while budget > 0 {
            let (at, first) = self.scan.cursor;
            let Some(&index) = self.scan.watched.get(at) else {
                self.end_scan(now_ns);
                return;
            };
            let seat = self.seats[index as usize].1.as_ref();
            let used = seat.map_or(0, |seat| seat.slots_used().max(seat.slots.len()));
            let end = used.min(first + budget);
            for slot in first..end {
                let moved = self.look_at_slot(now_ns, index, slot);
                self.scan.moved |= moved;
            }
            budget -= (end.saturating_sub(first)).max(1);
            self.scan.cursor = match end >= used {
                true => (at + 1, 0),
                false => (at, end),
            };
        }
        // The rest is read in its turn, not at the start of the next round.
        self.scan.next_ns = Some(now_ns + LOOK_NS / 8);
    }

    fn end_scan(&mut self, now_ns: u64) {
        let scan = &mut self.scan;
        scan.pause_ns = match std::mem::take(&mut scan.moved) {
            true => LOOK_NS,
            false => (scan.pause_ns * 2).clamp(LOOK_NS, PAUSE_MAX_NS),
        };
        scan.cursor = (0, 0);
        let any_latency = self
            .devices
            .iter()
            .any(|device| device.latency_weight() > 0);
        // Without a latency flow, a wrong class can only pace too much, and paced processes signal.
        let asleep = scan.pause_ns == PAUSE_MAX_NS && !any_latency;
        scan.next_ns = (!asleep && !scan.watched.is_empty()).then_some(now_ns + scan.pause_ns);
    }

    /// Reads one queue pair. Returns whether traffic moved.
    fn look_at_slot(&mut self, now_ns: u64, index: u32, at: usize) -> bool {
        let now = self.instant(now_ns);
        let (epoch, seat) = &mut self.seats[index as usize];
        let epoch = *epoch;
        let Some(seat) = seat else { return false };
        let begins_fast = seat.assigned.begins_fast;
        while seat.slots.len() <= at {
            seat.slots.push(SlotState::new(begins_fast));
        }
        let slot = &seat.region.slots[at];
        // The low half is the number of the meter of its sends, which determines the device, the other half that of its
        // READs, which determines their source.
        let reading = slot.read();
        let meters = reading.map_or(0, |reading| reading.meters as usize);
        let device = seat.meters.get(meters & 0xffff);
        let device = device.map_or(0, |meter| meter.device);
        let reads = seat.meters.get(meters >> 16);
        let reads = reads.filter(|reads: &&MeterState| reads.device == device);
        let source = reads.and_then(|reads| reads.source);
        let Some(options) = self.devices.get(device).map(|device| &device.options) else {
            return false;
        };
        let messages_per_s = options.message_rate_max_per_s;
        let rates = [options.rate_max.as_bps() / 8, messages_per_s];
        let options = classifier_options(messages_per_s, Duration::from_ns(LOOK_NS));
        let look = seat.slots[at].look(reading, now, &options, begins_fast);
        let watch = self.tenants.latency(seat.tenant, device);
        if seat.slots[at].shown == Class::Latency {
            let lost = watch.posted(now_ns, look.posted, rates);
            self.figures.latency_lost_total += u64::from(lost);
        }
        let class = match seat.slots[at].judged {
            Class::Latency if watch.is_lost(now_ns) => Class::Bandwidth,
            class => class,
        };
        let shown = std::mem::replace(&mut seat.slots[at].shown, class);
        if shown != class {
            slot.class.store(class as u32, Ordering::Release);
            seat.region.header.changes.fetch_add(1, Ordering::Release);
            self.looks.push_back(SessionKey { index, epoch });
            self.figures.reclassified_total += u64::from(class != Class::Auto);
        }
        let latency_on = (class == Class::Latency).then_some(device);
        let reads = reading.is_some_and(|reading| reading.has_read);
        let reads_on = latency_on.filter(|_| reads).map(|device| (device, source));
        self.count_latency(index, at, latency_on, reads_on);
        look.moved || shown != class
    }

    /// Counts a queue pair on the devices on which it is a latency flow, and one that READs.
    fn count_latency(
        &mut self,
        index: u32,
        at: usize,
        latency_on: Option<usize>,
        reads_on: Option<(usize, Source)>,
    ) {
        let (_, seat) = &mut self.seats[index as usize];
        let seat = seat.as_mut().expect("the caller looked");
        let slot = &mut seat.slots[at];
        let before = std::mem::replace(&mut slot.latency_on, latency_on);
        let read_before = std::mem::replace(&mut slot.reads_on, reads_on);
        if before != latency_on {
            if let Some(device) = before {
                self.remove_latency(index, device);
            }
            if let Some(device) = latency_on {
                self.add_latency(index, device);
            }
        }
        if read_before != reads_on {
            if let Some((device, source)) = read_before {
                self.remove_reader(index, device, source);
            }
            if let Some((device, source)) = reads_on {
                self.add_reader(index, device, source);
            }
        }
    }
}

/// Time between two readings while traffic moves.
const LOOK_NS: u64 = 10_000_000;
/// Longest time between two readings.
const PAUSE_MAX_NS: u64 = 160_000_000;
/// Queue pairs per reading: about 20 us of work.
const BUDGET: usize = 1_024;
