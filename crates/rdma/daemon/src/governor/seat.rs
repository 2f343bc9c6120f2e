//! One session as the governor sees it: its memory, its meters, its queue pairs. What the process wrote is clamped here.

use crate::identity::{Assigned, Who};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_policy::classify::{ClassifierOptions, FlowClassifier, Window};
use isolane_rdma_policy::leases::{MemberId, Usage};
use isolane_rdma_policy::{Direction, FlowClass, FlowSpec};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Counters, Lease, Region, SLOT_USED, SLOTS, Slot};
use std::sync::atomic::Ordering;

/// A meter of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) seat: u32,
    pub(super) meter: u16,
}

/// A session.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) region: Region,
    pub(super) session: u64,
    pub(super) who: Who,
    pub(super) assigned: Assigned,
    /// Its tenant's number.
    pub(super) tenant: u32,
    /// What shares one part with it, by number: its tenant or itself.
    pub(super) group: u32,
    pub(super) meters: Vec<MeterState>,
    pub(super) slots: Vec<SlotState>,
    /// Latency flows that it counts for, by device.
    pub(super) latency: Vec<u32>,
}

/// One device and direction.
#[derive(Debug)]
pub(super) struct MeterState {
    pub(super) device: usize,
    pub(super) direction: usize,
    pub(super) member: MemberId,
    /// Counters at the last look, clamped sums since the start, and the lease as it was last written.
    seen: Counters,
    seen_at_ns: u64,
    /// Since when it waits without that anything passes.
    still_since_ns: Option<u64>,
    /// When something was last seen of it.
    alive_ns: u64,
    pub(super) passed: [u64; 2],
    pub(super) written: Lease,
}

/// What a look at a meter shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) usage: Usage,
    pub(super) implausible: bool,
}

impl MeterState {
    pub(super) fn new(
        device: usize,
        direction: usize,
        member: MemberId,
        seen: Counters,
        now_ns: u64,
    ) -> Self {
        Self {
            device,
            direction,
            member,
            seen,
            seen_at_ns: now_ns,
            still_since_ns: None,
            alive_ns: now_ns,
            passed: [0; 2],
            written: Lease::default(),
        }
    }

    /// What happened since the last look, at most what a device of `rates` (bytes and operations per second) could
    /// have done.
    pub(super) fn look(&mut self, counters: Counters, now_ns: u64, rates: [u64; 2]) -> Look {
        let elapsed_ns = now_ns.saturating_sub(self.seen_at_ns);
        let most = |rate: u64, at_once: u64| {
            let in_time = u128::from(rate) * u128::from(elapsed_ns) * CREDIBLE / 1_000_000_000;
            u64::try_from(in_time)
                .unwrap_or(u64::MAX)
                .saturating_add(at_once)
        };
        let most = [
            most(rates[0], BYTES_AT_ONCE),
            most(rates[1], OPERATIONS_AT_ONCE),
        ];
        let moved = [
            counters.passed_bytes.wrapping_sub(self.seen.passed_bytes),
            counters
                .passed_operations
                .wrapping_sub(self.seen.passed_operations),
        ];
        let implausible = moved[0] > most[0] || moved[1] > most[1];
        let [bytes, operations] = [moved[0].min(most[0]), moved[1].min(most[1])];
        self.seen = counters;
        self.seen_at_ns = now_ns;
        self.passed[0] = self.passed[0].saturating_add(bytes);
        self.passed[1] = self.passed[1].saturating_add(operations);
        let waits = counters.waiting_since_ns != 0;
        let still = waits && bytes == 0 && operations == 0;
        let since = match still {
            true => Some(self.still_since_ns.unwrap_or(now_ns)),
            false => None,
        };
        self.still_since_ns = since;
        let stuck = since.is_some_and(|since| now_ns.saturating_sub(since) > STUCK_NS);
        let usage = Usage {
            bytes,
            operations,
            waiting: waits && !stuck,
        };
        if usage != Usage::default() {
            self.alive_ns = now_ns;
        }
        Look { usage, implausible }
    }

    /// How long nothing was seen of it; zero where the last look saw something.
    pub(super) fn rests_ns(&self) -> u64 {
        self.seen_at_ns.saturating_sub(self.alive_ns)
    }
}

/// A queue pair whose class is found out.
#[derive(Debug)]
pub(super) struct SlotState {
    queue_pair: u32,
    used: bool,
    classifier: FlowClassifier,
    messages: u64,
    bytes: u64,
    seen_at: Instant,
    /// Its class by what it posts.
    pub(super) judged: Class,
    /// Its class as the process was last shown it.
    pub(super) shown: Class,
    /// The device for whose latency flows it counts.
    pub(super) latency_on: Option<usize>,
}

/// What a look at a slot shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotLook {
    /// It posted something, or came, or went.
    pub(super) moved: bool,
    /// Bytes and messages posted since the last look.
    pub(super) posted: [u64; 2],
}

impl SlotState {
    /// One of which nothing is known; `begins_fast`: it is latency until it posts otherwise.
    pub(super) fn new(begins_fast: bool) -> Self {
        let spec = FlowSpec {
            class: begins_fast.then_some(FlowClass::Latency),
            weight: 1,
            direction: Direction::Outgoing,
        };
        Self {
            queue_pair: 0,
            used: false,
            classifier: FlowClassifier::new(&spec),
            messages: 0,
            bytes: 0,
            seen_at: Instant::ZERO,
            judged: Class::Auto,
            shown: Class::Auto,
            latency_on: None,
        }
    }

    /// What the queue pair did since the last look.
    pub(super) fn look(
        &mut self,
        slot: &Slot,
        now: Instant,
        options: &ClassifierOptions,
        begins_fast: bool,
    ) -> SlotLook {
        let used = slot.state.load(Ordering::Acquire) == SLOT_USED;
        let queue_pair = slot.queue_pair.load(Ordering::Relaxed);
        let messages = slot.posted_messages.load(Ordering::Relaxed);
        let bytes = slot.posted_bytes.load(Ordering::Relaxed);
        if used != self.used || used && queue_pair != self.queue_pair {
            let (shown, latency_on) = (self.shown, self.latency_on);
            // Whoever gets the slot next starts as one of whom nothing is known.
            *self = Self {
                queue_pair,
                used,
                messages,
                bytes,
                seen_at: now,
                judged: match used && begins_fast {
                    true => Class::Latency,
                    false => Class::Auto,
                },
                shown,
                latency_on,
                ..Self::new(begins_fast)
            };
            return SlotLook {
                moved: true,
                ..SlotLook::default()
            };
        }
        if !used {
            return SlotLook::default();
        }
        let completed = slot.completed_messages.load(Ordering::Relaxed);
        let window = Window {
            length: now.saturating_since(self.seen_at),
            messages: messages.wrapping_sub(self.messages),
            bytes: bytes.wrapping_sub(self.bytes),
            // What is under way at the end of the window stands for what its messages found.
            depth: messages.wrapping_sub(completed).clamp(1, DEPTH_MAX),
        };
        self.messages = messages;
        self.bytes = bytes;
        self.seen_at = now;
        if let Some(class) = self.classifier.on_window(options, now, window) {
            self.judged = number_of(class);
        }
        SlotLook {
            moved: window.messages > 0,
            posted: [window.bytes, window.messages],
        }
    }
}

fn number_of(class: FlowClass) -> Class {
    match class {
        FlowClass::Latency => Class::Latency,
        FlowClass::Throughput => Class::Throughput,
        FlowClass::Bandwidth => Class::Bandwidth,
    }
}

impl Seat {
    /// One past the highest slot that it says it uses.
    pub(super) fn slots_used(&self) -> usize {
        let high = self.region.header.slots_high.load(Ordering::Relaxed) as usize;
        high.min(SLOTS)
    }

    /// Whether its queue pairs' classes are found out.
    pub(super) fn is_auto(&self) -> bool {
        self.assigned.class == Class::Auto
    }
}

/// Thresholds for queue pairs that are looked at every `look` instead of at every message.
pub(super) fn classifier_options(messages_per_s: u64, look: Duration) -> ClassifierOptions {
    let options = ClassifierOptions::for_device(messages_per_s);
    ClassifierOptions {
        trust_declared: false,
        interval: look,
        fast_min_per_s: options.fast_min_per_s.max(FAST_LEAST),
        ..options
    }
}

/// Counters may run this much faster than the device: they count before the device does.
const CREDIBLE: u128 = 4;
/// And by so much at once, whatever the time: a burst of a large lease.
const BYTES_AT_ONCE: u64 = 1 << 30;
const OPERATIONS_AT_ONCE: u64 = 1 << 24;
/// Who waits this long without that anything passes does not wait for credit; its share goes to the others.
const STUCK_NS: u64 = 1_000_000_000;
/// One queue pair that waits for each answer reaches this rate even on a slow device.
const FAST_LEAST: u64 = 100_000;
/// Deeper than any queue.
const DEPTH_MAX: u64 = 1 << 20;
