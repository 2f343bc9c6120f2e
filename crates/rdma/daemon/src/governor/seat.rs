//! A session inside the governor: its memory, meters and queue pairs. Values written by the process are clamped here.

use super::sources::Source;
use crate::identity::{Assigned, Who};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_policy::classify::{ClassifierOptions, FlowClassifier, Window};
use isolane_rdma_policy::leases::{MemberId, Usage};
use isolane_rdma_policy::{Direction, FlowClass, FlowSpec};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Counters, Lease, Region, SLOTS};
use isolane_rdma_session::slot::SlotReading;
use std::collections::BTreeMap;
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
    /// Number of its tenant.
    pub(super) tenant: u32,
    /// Number of the tenant or session that shares one part of the device.
    pub(super) group: u32,
    pub(super) meters: Vec<MeterState>,
    pub(super) slots: Vec<SlotState>,
    /// Number of its latency flows, and of those that READ, by device.
    pub(super) latency: Vec<[u32; 2]>,
    /// Number of those that READ, by device and source.
    pub(super) readers: BTreeMap<(usize, Source), u32>,
}

/// One device and direction, and for READs one source.
#[derive(Debug)]
pub(super) struct MeterState {
    pub(super) device: usize,
    pub(super) direction: usize,
    pub(super) source: Source,
    pub(super) member: MemberId,
    /// Counters of the last reading, clamped sums since the start, and the last written lease.
    seen: Counters,
    seen_at_ns: u64,
    /// Since when it waits without progress.
    still_since_ns: Option<u64>,
    /// Time of its last activity.
    alive_ns: u64,
    pub(super) passed: [u64; 2],
    pub(super) written: Lease,
}

/// Result of reading a meter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) usage: Usage,
    pub(super) implausible: bool,
}

impl MeterState {
    pub(super) fn new(
        device: usize,
        direction: usize,
        source: Source,
        member: MemberId,
        seen: Counters,
        now_ns: u64,
    ) -> Self {
        Self {
            device,
            direction,
            source,
            member,
            seen,
            seen_at_ns: now_ns,
            still_since_ns: None,
            alive_ns: now_ns,
            passed: [0; 2],
            written: Lease::default(),
        }
    }

    /// Reads the change since the last reading, clamped to what a device of `rates` (bytes and operations per second)
    /// can do.
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

    /// How long it has been silent, ns; zero if the last reading showed activity.
    pub(super) fn rests_ns(&self) -> u64 {
        self.seen_at_ns.saturating_sub(self.alive_ns)
    }
}

/// A queue pair whose class is measured.
#[derive(Debug)]
pub(super) struct SlotState {
    queue_pair: u32,
    used: bool,
    classifier: FlowClassifier,
    messages: u64,
    bytes: u64,
    seen_at: Instant,
    /// Class measured from its traffic.
    pub(super) judged: Class,
    /// Class last written to the process.
    pub(super) shown: Class,
    /// The device on which it counts as a latency flow.
    pub(super) latency_on: Option<usize>,
    /// The device and source where it counts as one that READs.
    pub(super) reads_on: Option<(usize, Source)>,
}

/// Result of reading a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotLook {
    /// Whether it posted, appeared or disappeared.
    pub(super) moved: bool,
    /// Bytes and messages posted since the last reading.
    pub(super) posted: [u64; 2],
}

impl SlotState {
    /// A queue pair without history. With `begins_fast` it starts in the latency class.
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
            reads_on: None,
        }
    }

    /// Takes in the newest reading of the slot; `None` if it has no queue pair of its own. Counters that fell belong to
    /// another queue pair, also if its number is the same.
    pub(super) fn look(
        &mut self,
        reading: Option<SlotReading>,
        now: Instant,
        options: &ClassifierOptions,
        begins_fast: bool,
    ) -> SlotLook {
        let reading = reading.filter(|reading| !reading.is_shared);
        let used = reading.is_some();
        let reading = reading.unwrap_or_default();
        let (messages, bytes) = (reading.posted_messages, reading.posted_bytes);
        let is_other =
            reading.queue_pair != self.queue_pair || messages < self.messages || bytes < self.bytes;
        if used != self.used || used && is_other {
            let (shown, latency_on, reads_on) = (self.shown, self.latency_on, self.reads_on);
            // The next queue pair in this slot starts without history.
            *self = Self {
                queue_pair: reading.queue_pair,
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
                reads_on,
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
        let window = Window {
            length: now.saturating_since(self.seen_at),
            messages: messages - self.messages,
            bytes: bytes - self.bytes,
            // The messages in flight at the end of the window represent the queue depth that its messages met.
            depth: messages
                .wrapping_sub(reading.completed_messages)
                .clamp(1, DEPTH_MAX),
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
    /// One past the highest slot that the process reports as used.
    pub(super) fn slots_used(&self) -> usize {
        let high = self.region.header.slots_high.load(Ordering::Relaxed) as usize;
        high.min(SLOTS)
    }

    /// Whether the classes of its queue pairs are measured.
    pub(super) fn is_auto(&self) -> bool {
        self.assigned.class == Class::Auto
    }
}

/// Thresholds for queue pairs that are read every `look` instead of at every message.
pub(super) fn classifier_options(messages_per_s: u64, look: Duration) -> ClassifierOptions {
    let options = ClassifierOptions::for_device(messages_per_s);
    ClassifierOptions {
        trust_declared: false,
        interval: look,
        fast_min_per_s: options.fast_min_per_s.max(FAST_LEAST),
        ..options
    }
}

/// Counters may run this many times faster than the device, because the process counts before the device sends.
const CREDIBLE: u128 = 4;
/// And by this much at once, bytes: a burst of a large lease.
const BYTES_AT_ONCE: u64 = 1 << 30;
const OPERATIONS_AT_ONCE: u64 = 1 << 24;
/// A sender that waits this long without progress does not wait for credit; its share goes to the others.
const STUCK_NS: u64 = 1_000_000_000;
/// One queue pair that waits for each response reaches this rate even on a slow device, messages per second.
const FAST_LEAST: u64 = 100_000;
/// Upper bound of a plausible queue depth.
const DEPTH_MAX: u64 = 1 << 20;
