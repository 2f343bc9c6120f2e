//! The adapter between policies and the model: what the shim and the daemon do on a real host.
//!
//! One daemon per host drives one policy instance. Daemons whose hosts share a tenant exchange the reports of their
//! policies; a policy gets one sum of the latest reports. Queue pairs map to flows by the chosen granularity. Work of a
//! held flow waits here; a grant lets chunks of it through, splitting messages at the chunk size the policy set (RC and
//! UC data verbs; datagrams and atomics are paced but never split), and costs the application's core what posting
//! costs. Reference messages travel like any tenant's message, on a queue pair of their own. Daemons exchange reports
//! by SEND, which takes [`TELL_DELAY`] in addition to the path.

mod act;

use super::gates::{Gates, WorkingSet};
use super::peers::Reports;
use super::queue_pair::NONE;
use isolane_rdma_policy::granularity::FlowMap;
use isolane_rdma_policy::harmonic::ControlLimiter;
use isolane_rdma_policy::{FlowClass, FlowId, Policy, RemoteState};
use isolane_rdma_scenario::model::Class;
use std::collections::VecDeque;

/// Wake-up, SEND and RECV of two daemons, ps (a few microseconds of software).
pub(crate) const TELL_DELAY: u64 = 5_000_000;

/// The daemons, one for each host in use; absent without a policy.
#[derive(Default)]
pub(crate) struct Enforcer {
    pub(crate) daemons: Vec<Option<Box<Daemon>>>,
    /// Weight and declared class of each tenant.
    pub(crate) tenants: Vec<(u32, Class)>,
    pub(crate) gates: Gates,
    /// Per host and tenant, where deregistrations are limited.
    pub(crate) deregistrations: Vec<Vec<ControlLimiter>>,
}

/// One host's daemon.
pub(crate) struct Daemon {
    pub(crate) policy: Box<dyn Policy>,
    host: u8,
    map: FlowMap,
    flow_of_pair: Vec<u32>,
    pub(crate) flows: Vec<Flow>,
    timer: u64,
    reference: u32,
    /// Messages under way to this daemon, and the source host of each.
    inbox: VecDeque<(u8, RemoteState)>,
    pub(crate) reports: Reports,
    remaps: VecDeque<(u64, u32, u8)>,
    pub(crate) chunk: u64,
    /// Chunks a queue pair may have in the NIC; 0 is no bound.
    pub(crate) window: u32,
    pub(crate) grants: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) host: u8,
    pub(crate) number: u32,
    tenant: u16,
    held: bool,
    /// Granted and not yet used; never more than what waits.
    credit_bytes: u64,
    credit_operations: u64,
    pub(crate) waiting: VecDeque<u32>,
    /// Which queue pairs may have work in the NIC.
    pub(crate) working_set: WorkingSet,
    pub(crate) pairs: Vec<u32>,
    bytes: u64,
    operations: u64,
    grants: u64,
    pub(crate) chunks: u64,
    /// Completions of chunks that the application's core looked for.
    pub(crate) polls: u64,
}

impl Flow {
    /// Whether its work waits for tokens.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether waiting work may go as soon as there is room for it.
    fn may_send(&self) -> bool {
        !self.held || self.credit_bytes > 0 || self.credit_operations > 0
    }
}

impl Daemon {
    /// A daemon for `policy`, whose reference flow is queue pair `reference`.
    pub(crate) fn new(policy: Box<dyn Policy>, host: u8, map: FlowMap, reference: u32) -> Self {
        Self {
            policy,
            host,
            map,
            flow_of_pair: Vec::new(),
            flows: Vec::new(),
            timer: u64::MAX,
            reference,
            inbox: VecDeque::new(),
            reports: Reports::default(),
            remaps: VecDeque::new(),
            chunk: u64::MAX,
            window: 0,
            grants: 0,
        }
    }

    /// Makes room for `pairs` queue pairs.
    pub(crate) fn size_for(&mut self, pairs: usize) {
        self.flow_of_pair.resize(pairs, NONE);
    }

    /// The class the policy treats the tenant as, by its first flow here.
    pub(crate) fn class_of(&self, tenant: u16) -> Option<FlowClass> {
        let flow = self.flows.iter().position(|flow| flow.tenant == tenant)?;
        self.policy.class_of(FlowId(flow as u32))
    }

    /// Work requests written for a tenant's held or split flows, tokens granted to them, and chunks polled for.
    pub(crate) fn tenant_sums(&self, tenant: u16) -> (u64, u64, u64) {
        let flows = self.flows.iter().filter(|flow| flow.tenant == tenant);
        flows.fold((0, 0, 0), |(chunks, grants, polls), flow| {
            (
                chunks + flow.chunks,
                grants + flow.grants,
                polls + flow.polls,
            )
        })
    }
}
