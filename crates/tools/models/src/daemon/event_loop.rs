//! The event loop of a daemon in simulated time, around the product's governor.

use super::Defect;
use super::enforcer::{Caller, Door, Heard};
use isolane_common_quantities::units::Duration;
use isolane_rdma_session::message::ToDaemon;
use isolaned::governor::{Governor, SessionKey};
use isolaned::order::Order;
use std::collections::{BTreeMap, BTreeSet};

/// A daemon that runs, and since when.
pub(super) struct Daemon {
    pub(super) governor: Governor,
    /// When the event loop wakes next.
    pub(super) due_ns: u64,
    /// It runs nothing before this time.
    pub(super) stopped_until_ns: u64,
    /// When it last divided.
    pub(super) ran_ns: u64,
    /// When the governor was last called: a new session and a reload also get leases.
    pub(super) called_ns: u64,
    pub(super) wakes: BTreeSet<SessionKey>,
    /// Ends of connections that it will notice.
    pub(super) ends: BTreeMap<SessionKey, u64>,
    /// Sessions that it must have.
    pub(super) sessions: BTreeSet<u64>,
    pub(super) numbers: BTreeMap<SessionKey, u64>,
    /// The enforcer's connection, and the rates and tenants that came over it.
    pub(super) caller: Option<Caller>,
    pub(super) rates: BTreeMap<u32, u64>,
    pub(super) tenant_of: BTreeMap<u32, u32>,
    heard: u64,
}

/// One of so many of the enforcer's messages is lost by the planted defect.
const LOST: u64 = 3;

impl Daemon {
    /// A daemon that starts at `now_ns` and serves no process yet.
    pub(super) fn new(governor: Governor, now_ns: u64) -> Self {
        Self {
            governor,
            due_ns: now_ns,
            stopped_until_ns: 0,
            ran_ns: now_ns,
            called_ns: now_ns,
            wakes: BTreeSet::new(),
            ends: BTreeMap::new(),
            sessions: BTreeSet::new(),
            numbers: BTreeMap::new(),
            caller: None,
            rates: BTreeMap::new(),
            tenant_of: BTreeMap::new(),
            heard: 0,
        }
    }

    /// Reads what the enforcer sent, as `server/enforcers.rs` does: one at a time, and its limits end with it.
    pub(super) fn hear_enforcer(&mut self, door: &Door, defect: Defect) {
        loop {
            match self.caller.as_ref().map(Caller::hear) {
                None => match door.accept() {
                    None => return,
                    caller => self.caller = caller,
                },
                Some(Heard::Nothing) => return,
                Some(Heard::Gone) => {
                    self.caller = None;
                    if defect != Defect::KeepsLimits {
                        self.lift();
                    }
                }
                Some(Heard::Message(message)) => self.take(&message, defect),
            }
        }
    }

    fn take(&mut self, message: &ToDaemon, defect: Defect) {
        self.heard += 1;
        let is_lost = defect == Defect::LosesLimits && self.heard.is_multiple_of(LOST);
        match *message {
            ToDaemon::Enforce => {
                if defect != Defect::KeepsLimits {
                    self.lift();
                }
                self.caller.as_ref().expect("it spoke").heed();
            }
            _ if is_lost => {}
            ToDaemon::Limit {
                tenant,
                bytes_per_s,
            } => {
                self.rates.insert(tenant, bytes_per_s);
                self.governor.limit_tenant(tenant, bytes_per_s);
            }
            ToDaemon::Belongs { process, tenant } => {
                self.tenant_of.insert(process, tenant);
                assert!(
                    self.governor.limit_process(process, tenant),
                    "few processes"
                );
            }
            ref other => panic!("an enforcer sends {other:?}"),
        }
    }

    fn lift(&mut self) {
        self.rates.clear();
        self.tenant_of.clear();
        self.governor.lift_limits();
    }

    /// It will not notice this end.
    pub(super) fn forgets(&mut self, key: SessionKey) {
        if let Some(session) = self.numbers.remove(&key) {
            self.sessions.remove(&session);
        }
    }

    /// What the event loop does when it wakes, with the time `now_ns`; `true_ns` is the real one.
    pub(super) fn run(&mut self, now_ns: u64, true_ns: u64, latency_us: u64) {
        (self.ran_ns, self.called_ns) = (true_ns, true_ns);
        let ended = self.ends.extract_if(.., |_, noticed| *noticed <= true_ns);
        for (key, _) in ended.collect::<Vec<_>>() {
            self.governor.depart(now_ns, key);
            self.forgets(key);
        }
        for key in std::mem::take(&mut self.wakes) {
            self.governor.signalled(now_ns, key);
        }
        if self
            .governor
            .next_deadline_ns()
            .is_some_and(|due| due <= now_ns)
        {
            self.governor.advance(now_ns);
        } else {
            self.governor.settle(now_ns);
        }
        while let Some((device, order)) = self.governor.take_order() {
            if order == Order::SendReference {
                let latency = Duration::from_us(latency_us);
                self.governor.reference_latency(now_ns, device, latency);
            }
        }
        while self.governor.take_look().is_some() {}
        self.due_ns = true_ns;
    }
}
