//! Daemons join tenants, hold work back, and perform what their policies decide.

use super::{Daemon, Flow, TELL_DELAY};
use crate::rnic::event::Event;
use crate::rnic::gates::WorkingSet;
use crate::rnic::queue_pair::{Membership, NONE};
use crate::rnic::world::World;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_rdma_policy::granularity::{Opened, Owner};
use isolane_rdma_policy::{Action, Completion, Direction, FlowClass, FlowId, FlowSpec, Signal};
use isolane_rdma_scenario::model::{Class, Transport, Verb};
use std::ops::Range;

impl<const RECORDS: bool> World<RECORDS> {
    /// Notifies the daemons of a tenant that starts or stops.
    pub(crate) fn tenant_joins_or_leaves(&mut self, now: u64, tenant: u16, starts: bool) {
        for host in 0..self.enforcer.daemons.len() {
            let Some(mut daemon) = self.enforcer.daemons[host].take() else {
                continue;
            };
            for pair in 0..self.pairs.len() as u32 {
                let queue_pair = &self.pairs[pair as usize];
                if queue_pair.tenant != tenant
                    || usize::from(queue_pair.host) != host
                    || queue_pair.reference
                {
                    continue;
                }
                if starts {
                    self.join(now, &mut daemon, pair);
                } else {
                    self.leave(now, &mut daemon, pair);
                }
            }
            self.act(now, host, &mut daemon);
            self.enforcer.daemons[host] = Some(daemon);
        }
    }

    fn direction(&self, pair: u32) -> Direction {
        let queue_pair = &self.pairs[pair as usize];
        let remote = queue_pair.verb == Verb::Read && queue_pair.host != queue_pair.peer;
        if remote {
            Direction::RemoteRead
        } else {
            Direction::Outgoing
        }
    }

    fn owner(&self, pair: u32) -> Owner {
        let queue_pair = &self.pairs[pair as usize];
        Owner {
            tenant: u32::from(queue_pair.tenant),
            process: queue_pair.process,
            queue_pair: pair,
        }
    }

    fn join(&mut self, now: u64, daemon: &mut Daemon, pair: u32) {
        let direction = self.direction(pair);
        let tenant = self.pairs[pair as usize].tenant;
        let (weight, class) = self.enforcer.tenants[usize::from(tenant)];
        let flow = match daemon.map.open(self.owner(pair), direction) {
            Opened::New(flow) => {
                let class = match class {
                    Class::Latency => Some(FlowClass::Latency),
                    Class::Throughput => Some(FlowClass::Throughput),
                    Class::Bandwidth => Some(FlowClass::Bandwidth),
                    Class::Auto => None,
                };
                daemon.flows.push(Flow {
                    host: daemon.host,
                    number: flow.0,
                    tenant,
                    ..Flow::default()
                });
                let spec = FlowSpec {
                    class,
                    weight,
                    direction,
                };
                daemon
                    .policy
                    .on_signal(Instant::from_ps(now), &Signal::Joined(spec));
                flow
            }
            Opened::Known(flow) => flow,
        };
        daemon.flow_of_pair[pair as usize] = flow.0;
        self.pairs[pair as usize].window = daemon.window;
        daemon.flows[flow.0 as usize].pairs.push(pair);
    }

    fn leave(&mut self, now: u64, daemon: &mut Daemon, pair: u32) {
        if let Some(flow) = daemon.map.close(self.owner(pair), self.direction(pair)) {
            daemon
                .policy
                .on_signal(Instant::from_ps(now), &Signal::Left(flow));
            let flow = &mut daemon.flows[flow.0 as usize];
            flow.waiting.clear();
            flow.working_set = WorkingSet::default();
            flow.held = false;
            (
                flow.bytes,
                flow.operations,
                flow.credit_bytes,
                flow.credit_operations,
            ) = (0, 0, 0, 0);
        }
        daemon.flow_of_pair[pair as usize] = NONE;
        self.pairs[pair as usize].in_backlog = false;
        self.pairs[pair as usize].membership = Membership::Out;
    }

    /// Whether `count` freshly posted messages may go straight to the NIC; otherwise they wait for grants.
    pub(crate) fn hold_or_pass(&mut self, at: u64, pair: u32, count: u64) -> bool {
        let host = usize::from(self.pairs[pair as usize].host);
        if self.enforcer.daemons[host].is_none() {
            return true;
        }
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return true;
        };
        let passes = self.offer(at, host, &mut daemon, pair, count);
        self.enforcer.daemons[host] = Some(daemon);
        passes
    }

    fn offer(&mut self, at: u64, host: usize, daemon: &mut Daemon, pair: u32, count: u64) -> bool {
        let flow = daemon.flow_of_pair[pair as usize];
        if flow == NONE {
            return true;
        }
        let now = self.queue.now();
        let queue_pair = &mut self.pairs[pair as usize];
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        let cost = queue_pair.cost;
        let (mut bytes, mut splits) = (0, false);
        for message in queue_pair.app_posted - count..queue_pair.app_posted {
            let size = plan.entry(message).bytes;
            daemon.policy.on_sent(now, FlowId(flow), Bytes::new(size));
            bytes += size;
            splits |= queue_pair.window > 0 && size > daemon.chunk;
        }
        // A flow that was let go while its send queue was full has older messages to write first.
        let state = &mut daemon.flows[flow as usize];
        let passes = !queue_pair.in_backlog
            && queue_pair.room() >= count
            && !splits
            && !state.working_set.is_bounded()
            && self.enforcer.gates.receives_for(queue_pair) >= count;
        if !state.held && passes {
            queue_pair.claim_receives(count);
            self.act(now.as_ps(), host, daemon);
            return true;
        }
        state.bytes += bytes * cost.bytes;
        state.operations += count * cost.operations;
        if !state.held && queue_pair.window > 0 {
            self.fill_window(at, daemon, (flow, pair), true);
            self.act(now.as_ps(), host, daemon);
            return false;
        }
        if !queue_pair.in_backlog {
            queue_pair.in_backlog = true;
            state.waiting.push_back(pair);
        }
        self.drain(at, daemon, flow, true);
        if daemon.flows[flow as usize].held {
            self.report_backlog(now.as_ps(), daemon, flow);
        }
        self.act(now.as_ps(), host, daemon);
        false
    }

    /// Reports to the policy the waiting work beyond its grants.
    fn report_backlog(&self, now: u64, daemon: &mut Daemon, flow: u32) {
        let state = &daemon.flows[flow as usize];
        let signal = Signal::Backlog {
            flow: FlowId(flow),
            bytes: Bytes::new(state.bytes - state.credit_bytes),
            operations: state.operations - state.credit_operations,
        };
        daemon.policy.on_signal(Instant::from_ps(now), &signal);
    }

    /// Lets through what the flow's credit covers, queue pair by queue pair in turn.
    fn drain(&mut self, at: u64, daemon: &mut Daemon, flow: u32, posting: bool) {
        let state = &mut daemon.flows[flow as usize];
        let mut stuck = 0;
        while stuck < state.waiting.len() {
            let Some(pair) = state.waiting.pop_front() else {
                break;
            };
            if !self.admit(at, state, pair) {
                continue;
            }
            let (sent, starved) = self.let_through(at, state, (daemon.chunk, posting), pair);
            state.chunks += sent;
            let queue_pair = &mut self.pairs[pair as usize];
            if queue_pair.released == queue_pair.app_posted {
                queue_pair.in_backlog = false;
            } else if starved {
                // The message whose turn it is waits for the next grant.
                state.waiting.push_front(pair);
                break;
            } else {
                state.waiting.push_back(pair);
            }
            stuck = if sent == 0 { stuck + 1 } else { 0 };
        }
    }

    /// Writes one chunk, or a run of whole messages, of one queue pair: how many work requests, and whether
    /// credit ran out.
    pub(crate) fn let_through(
        &mut self,
        at: u64,
        state: &mut Flow,
        (chunk, posting): (u64, bool),
        pair: u32,
    ) -> (u64, bool) {
        let queue_pair = &mut self.pairs[pair as usize];
        let process = queue_pair.process as usize;
        let plan = &self.plans[self.processes[process].plan as usize];
        let cost = queue_pair.cost;
        let splits = queue_pair.transport != Transport::Ud
            && matches!(queue_pair.verb, Verb::Write | Verb::Read | Verb::Send);
        let list = u64::from(plan.post_list).max(1);
        let window = queue_pair.window;
        let (mut written, mut chunks, mut starved) = (0, 0, false);
        let mut look_at = None;
        while queue_pair.released < queue_pair.app_posted && queue_pair.room() > 0 && written < list
        {
            let begins = queue_pair.release_offset == 0;
            if begins && queue_pair.membership == Membership::Leaving {
                break;
            }
            let (left, size) = queue_pair.next_release(plan);
            if splits && window > 0 && size > chunk && queue_pair.chunks_out >= window {
                break;
            }
            let take = if splits && (state.held || window > 0) {
                left.min(chunk)
            } else {
                left
            };
            let ends = u64::from(take == left);
            let operations = ends * cost.operations;
            let bytes = take * cost.bytes;
            if state.held && (state.credit_bytes < bytes || state.credit_operations < operations) {
                starved = true;
                break;
            }
            if !(self.enforcer.gates).lets_begin(at, queue_pair, &mut look_at) {
                break;
            }
            if begins {
                queue_pair.claim_receives(1);
            }
            queue_pair.write_chunk(plan, take);
            if state.held {
                state.credit_bytes -= bytes;
                state.credit_operations -= operations;
            }
            state.bytes -= bytes;
            state.operations -= operations;
            written += 1;
            chunks += 1 - ends;
            if ends == 0 && state.held {
                break;
            }
        }
        if let Some(due) = look_at {
            self.look_again_at(due, state.host, state.number);
        }
        if written > 0 {
            let process = &mut self.processes[process];
            // The application's own post has paid for its messages; chunks, and a doorbell rung later, come on top.
            let extra = self.device.post * chunks + if posting { 0 } else { self.device.ring };
            process.cpu_free = process.cpu_free.max(at) + extra;
            let seen = process.cpu_free + self.device.mmio;
            if RECORDS {
                self.trace_released(pair, seen - self.device.mmio);
            }
            self.schedule(
                seen,
                Event::Doorbell {
                    pair,
                    count: written as u16,
                },
            );
        }
        (written, starved)
    }

    /// Send queue slots of the pair are free again: a flow with credit may go on.
    pub(crate) fn room_again(&mut self, now: u64, pair: u32) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        if !queue_pair.in_backlog && queue_pair.membership != Membership::Leaving {
            return;
        }
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return;
        };
        let flow = daemon.flow_of_pair[pair as usize];
        if flow != NONE && self.pairs[pair as usize].window > 0 {
            self.window_moves(now, &mut daemon, (flow, pair));
        } else if flow != NONE {
            self.acknowledged_in_set(now, &mut daemon.flows[flow as usize], pair);
            if daemon.flows[flow as usize].may_send() {
                self.drain(now, &mut daemon, flow, false);
            }
        }
        self.enforcer.daemons[host] = Some(daemon);
    }

    /// Something that held a flow's work back may be over: a turn in its working set, or a missing receive.
    pub(crate) fn look_again(&mut self, now: u64, host: usize, flow: u32) {
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return;
        };
        self.next_turns(now, &mut daemon.flows[flow as usize]);
        if daemon.flows[flow as usize].may_send() {
            self.drain(now, &mut daemon, flow, false);
        }
        self.enforcer.daemons[host] = Some(daemon);
    }

    /// A reference message completed.
    pub(crate) fn reference_completed(&mut self, now: u64, host: usize, latency: Duration) {
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return;
        };
        daemon
            .policy
            .on_signal(self.queue.now(), &Signal::ReferenceLatency(latency));
        self.act(now, host, &mut daemon);
        self.enforcer.daemons[host] = Some(daemon);
    }

    /// Reports the completions of `messages`, seen at `at`, to the policy.
    pub(crate) fn completions_seen(&mut self, pair: u32, messages: Range<u64>, at: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let cost = queue_pair.cost;
        let Some(daemon) = &mut self.enforcer.daemons[usize::from(queue_pair.host)] else {
            return;
        };
        let flow = daemon.flow_of_pair[pair as usize];
        if flow == NONE {
            return;
        }
        let now = self.queue.now();
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        for message in messages {
            daemon.policy.on_completion(
                now,
                &Completion {
                    flow: FlowId(flow),
                    bytes: Bytes::new(plan.entry(message).bytes),
                    operations: cost.operations,
                    latency: Duration::from_ps(at - queue_pair.post_time(message)),
                },
            );
        }
    }

    pub(crate) fn policy_timer(&mut self, now: u64, host: usize) {
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return;
        };
        if daemon.timer == now {
            daemon.timer = u64::MAX;
            daemon.policy.handle_timeout(Instant::from_ps(now));
            self.act(now, host, &mut daemon);
        }
        self.enforcer.daemons[host] = Some(daemon);
    }

    /// A message from another host's daemon.
    pub(crate) fn peer_reported(&mut self, now: u64, host: usize) {
        let Some(mut daemon) = self.enforcer.daemons[host].take() else {
            return;
        };
        if let Some((from, state)) = daemon.inbox.pop_front() {
            let state = daemon.reports.update(from, state);
            daemon
                .policy
                .on_signal(Instant::from_ps(now), &Signal::Remote(state));
            self.act(now, host, &mut daemon);
        }
        self.enforcer.daemons[host] = Some(daemon);
    }

    /// A queue mapping takes effect.
    pub(crate) fn remap(&mut self, host: usize, now: u64) {
        let Some(daemon) = &mut self.enforcer.daemons[host] else {
            return;
        };
        let queues = self.device.priority_queues as u8;
        while let Some((_, flow, queue)) = daemon.remaps.pop_front_if(|remap| remap.0 <= now) {
            for &pair in &daemon.flows[flow as usize].pairs {
                self.pairs[pair as usize].queue = queue.min(queues - 1);
            }
        }
    }

    /// Performs what the policy wants, and sets its timer.
    fn act(&mut self, now: u64, host: usize, daemon: &mut Daemon) {
        while let Some(action) = daemon.policy.poll_action() {
            match action {
                Action::Grant {
                    flow,
                    bytes,
                    operations,
                } => {
                    daemon.grants += 1;
                    let state = &mut daemon.flows[flow.0 as usize];
                    state.grants += 1;
                    state.credit_bytes = (state.credit_bytes + bytes.get()).min(state.bytes);
                    state.credit_operations =
                        (state.credit_operations + operations).min(state.operations);
                    self.drain(now, daemon, flow.0, false);
                }
                Action::ChunkSize(bytes) => daemon.chunk = bytes.get().max(1),
                Action::ChunksOutstanding(chunks) => self.set_window(daemon, chunks),
                Action::Release(flow) => {
                    let state = &mut daemon.flows[flow.0 as usize];
                    state.held = false;
                    (state.credit_bytes, state.credit_operations) = (0, 0);
                    self.drain(now, daemon, flow.0, false);
                }
                Action::Hold(flow) => {
                    daemon.flows[flow.0 as usize].held = true;
                    if daemon.flows[flow.0 as usize].operations > 0 {
                        self.report_backlog(self.queue.now().as_ps(), daemon, flow.0);
                    }
                }
                Action::SendReference => self.send_reference(now, daemon.reference),
                Action::Tell(state) => {
                    let at = now + self.one_way() + TELL_DELAY;
                    for &peer in &daemon.reports.peers {
                        if let Some(other) = &mut self.enforcer.daemons[usize::from(peer)] {
                            other.inbox.push_back((host as u8, state));
                            self.schedule(at, Event::PeerReport { host: peer });
                        }
                    }
                }
                Action::WorkingSet {
                    flow,
                    queue_pairs,
                    slice,
                } => {
                    let set = &mut daemon.flows[flow.0 as usize].working_set;
                    set.bound(queue_pairs, slice.as_ps());
                    self.look_again_at(now, host as u8, flow.0);
                }
                Action::UseQueue { flow, queue } => {
                    let at = now + self.device.reconfigure;
                    daemon.remaps.push_back((at, flow.0, queue));
                    self.schedule(at, Event::Remap { host: host as u8 });
                }
            }
        }
        if let Some(at) = daemon.policy.poll_timeout() {
            let at = at.as_ps().max(now).max(self.queue.now().as_ps());
            if at < daemon.timer && at <= self.horizon {
                daemon.timer = at;
                self.schedule(at, Event::Policy { host: host as u8 });
            }
        }
    }
}
