//! The parts that all objects of the process share: settings, clock, the pump's bell, messages for the user, and the
//! count of waiting messages. This module knows none of the objects.

use crate::bell::Bell;
use crate::session::Shared;
use crate::settings::Settings;
use crate::table::lock;
use isolane_rdma_session::region::{SLOTS, Service};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// What the objects of one process share.
#[derive(Debug)]
pub struct Base {
    /// The user's environment variables.
    pub settings: Settings,
    /// Tag in our work-request identifiers.
    pub tag: u64,
    /// Wakes the pump when a message waits.
    pub bell: Bell,
    clock: fn() -> u64,
    waiting: AtomicI64,
    said: AtomicU32,
    served: Mutex<Option<Arc<Shared>>>,
}

/// Messages that are printed once.
#[derive(Clone, Copy, Debug)]
pub enum Saying {
    /// The first attempt to get a session failed.
    NoDaemon = 1,
    /// The daemon does not renew leases.
    Silent = 2,
    /// The pump's thread could not be started.
    NoPump = 4,
    /// A completion queue was created past the shim.
    VendorQueue = 8,
    /// All places of queue pairs are taken.
    NoPlace = 16,
    /// All slots of queue pairs are taken.
    NoSlot = 32,
}

impl Base {
    /// The base of a process without a session.
    pub fn new(settings: Settings, clock: fn() -> u64) -> Self {
        let seed = clock() ^ (u64::from(std::process::id()) << 32);
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            settings,
            tag: crate::ring::tag(mixed ^ (mixed >> 29)),
            bell: Bell::default(),
            clock,
            waiting: AtomicI64::new(0),
            said: AtomicU32::new(0),
            served: Mutex::default(),
        }
    }

    /// CLOCK_MONOTONIC in nanoseconds, or a test's clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    /// Sets the session whose region shows [`Self::waits`] and [`Self::show_asleep`]; `None` after its end.
    pub fn serve(&self, session: Option<Arc<Shared>>) {
        *lock(&self.served) = session;
    }

    /// Adds `change` to the number of messages that wait in the process.
    pub fn waits(&self, change: i64) {
        let waiting = self.waiting.fetch_add(change, Ordering::Relaxed) + change;
        self.show(|shared| {
            let waiting = u64::try_from(waiting).unwrap_or(0);
            shared
                .region
                .header
                .waiting
                .store(waiting, Ordering::Relaxed);
        });
    }

    /// Whether a message waits in the process.
    pub fn has_waiting_messages(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Shows in the metrics whether the pump sleeps.
    pub fn show_asleep(&self, asleep: bool) {
        self.show(|shared| {
            let asleep = u32::from(asleep);
            shared
                .region
                .header
                .pump_asleep
                .store(asleep, Ordering::Relaxed);
        });
    }

    /// Shows the class of a connection whose queue pair has no slot.
    pub fn show_service(&self, service: Service) {
        self.show(|shared| {
            let word = &shared.region.header.service;
            word.store(service.word(), Ordering::Relaxed);
        });
    }

    /// Never blocks: while the session begins or ends, nothing is shown.
    fn show(&self, show: impl FnOnce(&Shared)) {
        if let Ok(served) = self.served.try_lock()
            && let Some(shared) = served.as_ref()
        {
            show(shared);
        }
    }

    /// Prints that the daemon renews no lease, or answers no wake-up.
    pub fn say_silent(&self) {
        self.say_once(
            Saying::Silent,
            "the daemon does not answer; the program runs unpaced until it does",
        );
    }

    /// Prints that queue pairs share a slot.
    pub fn say_no_slot(&self) {
        let text = format!(
            "more than {} queue pairs; further ones share one class and one row of isolane rdma top",
            SLOTS - 1
        );
        self.say_once(Saying::NoSlot, &text);
    }

    /// Prints `text` the first time.
    pub fn say_once(&self, what: Saying, text: &str) {
        let bit = what as u32;
        if self.said.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.settings.say(text);
        }
    }
}
