//! Work requests of send queues: from the post to the model, from the model's reports to completions.
//!
//! A request of a reliable pair takes effect when the model says that it has arrived, and in the order of its queue; its
//! completion is written when the model says that the poster can see it, in that order too. A message of an unreliable pair
//! may arrive after its completion: its payload is read when it leaves. An error ends the queue: what comes after it is
//! flushed.

use crate::fabric::{Fabric, LIVE_MAX};
use crate::memory::Payload;
use crate::pair::{Lane, Pair, Work};
use crate::transfer::Outcome;
use isolane_common_quantities::units::Instant;
use isolane_rdma_emulated_verbs::attributes::SendRequest;
use isolane_rdma_emulated_verbs::context::MESSAGE_MAX;
use isolane_rdma_emulated_verbs::ring::Entry;
use isolane_rdma_emulated_verbs::wire::Reader;
use isolane_rdma_scenario::model::{Transport, Verb};
use isolane_rdma_simulator::rnic::live::{Connection, LivePair, LiveRequest, Report};
use isolane_rdma_verbs_sys::*;
use std::collections::VecDeque;

/// READs and atomics under way at once, at most: what the devices' attributes say.
const READ_ATOMIC_MAX: u32 = 16;
/// Messages of an unreliable pair that are kept until they arrive; what is older has been dropped on its way.
const FLYING_MAX: usize = 1 << 10;
/// Bytes of these messages of one client: they take memory here.
const FLYING_BYTES_MAX: u64 = 16 << 20;
/// Queue pairs of the model that one client uses: a quarter, which is two verbs of each of its pairs.
const LANES_MAX: usize = LIVE_MAX / 4;

/// What a request is in the model; `None` for what never leaves the host.
const fn verb(opcode: ibv_wr_opcode) -> Option<Verb> {
    Some(match opcode {
        IBV_WR_RDMA_WRITE => Verb::Write,
        IBV_WR_RDMA_READ => Verb::Read,
        IBV_WR_ATOMIC_CMP_AND_SWP => Verb::CompareSwap,
        IBV_WR_ATOMIC_FETCH_AND_ADD => Verb::FetchAdd,
        // A WRITE with immediate data uses a receive, as a SEND does.
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV | IBV_WR_RDMA_WRITE_WITH_IMM => {
            Verb::Send
        }
        _ => return None,
    })
}

const fn completion_opcode(opcode: ibv_wr_opcode) -> ibv_wc_opcode {
    match opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_RDMA_WRITE,
        IBV_WR_RDMA_READ => IBV_WC_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP => IBV_WC_COMP_SWAP,
        IBV_WR_ATOMIC_FETCH_AND_ADD => IBV_WC_FETCH_ADD,
        IBV_WR_LOCAL_INV => IBV_WC_LOCAL_INV,
        IBV_WR_BIND_MW => IBV_WC_BIND_MW,
        _ => IBV_WC_SEND,
    }
}

/// Whether the library lets a pair of this transport post such a request.
const fn is_known(transport: Transport, opcode: ibv_wr_opcode) -> bool {
    let sends = matches!(opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
    let connected = matches!(
        opcode,
        IBV_WR_RDMA_WRITE
            | IBV_WR_RDMA_WRITE_WITH_IMM
            | IBV_WR_SEND_WITH_INV
            | IBV_WR_LOCAL_INV
            | IBV_WR_BIND_MW
    );
    let reliable = matches!(
        opcode,
        IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    match transport {
        Transport::Rc => sends || connected || reliable,
        Transport::Uc => sends || connected,
        Transport::Ud => sends,
    }
}

impl Fabric {
    /// Work requests of a client; `None` for a malformed message.
    pub(crate) fn post_sends(
        &mut self,
        now: Instant,
        client: u32,
        reader: &mut Reader<'_>,
    ) -> Option<()> {
        let number = reader.number()?;
        let count = reader.number()?;
        self.own_pair(client, number)?;
        let mut list: Option<((Verb, u32), Vec<LiveRequest>)> = None;
        for _ in 0..count {
            let request = SendRequest::read(reader)?;
            let pair = self.pairs.get_mut(&number)?;
            let state = pair.attributes.state;
            let sends = matches!(state, IBV_QPS_RTS | IBV_QPS_SQE | IBV_QPS_ERR);
            let full = pair.work.len() >= pair.depth as usize;
            let known = is_known(pair.transport, request.opcode);
            let length = request.length();
            if !sends || full || !known || length > u64::from(MESSAGE_MAX) {
                return None;
            }
            let to = match pair.transport {
                Transport::Ud => crate::facts::host_at(&self.facts, &request.route),
                _ => pair.peer,
            };
            let fits = match request.opcode {
                IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => length == 8,
                _ => length <= self.longest(number),
            };
            let verb = verb(request.opcode).filter(|_| state == IBV_QPS_RTS && fits);
            let live = LiveRequest {
                bytes: length.max(u64::from(verb == Some(Verb::Read))),
                elements: request.elements.len() as u16,
                signalled: request.flags & IBV_SEND_SIGNALED != 0
                    || !matches!(verb, Some(Verb::Write | Verb::Send)),
                inline: request.inline.is_some(),
            };
            let region_bytes = self.region_bytes(&request);
            let pair = self.pairs.get_mut(&number)?;
            let sequence = pair.next;
            pair.next += 1;
            // What has nowhere to go waits for nothing: it fails, or takes effect, at once.
            let place = verb.zip(to);
            let work = Work {
                sequence,
                request,
                arrived: place.is_none(),
                acknowledged: place.is_none(),
                tries: 0,
            };
            self.enqueue(number, work);
            let Some(place) = place else { continue };
            let lane = self.lane(number, place, region_bytes)?;
            lane.under_way.push_back(sequence);
            lane.next = lane.next.wrapping_add(1);
            match &mut list {
                Some((at, requests)) if *at == place => requests.push(live),
                _ => {
                    self.ring(now, number, list.take());
                    list = Some((place, vec![live]));
                }
            }
        }
        self.ring(now, number, list);
        self.advance(now, number);
        Some(())
    }

    /// Posts a list in the model.
    fn ring(&mut self, now: Instant, number: u32, list: Option<((Verb, u32), Vec<LiveRequest>)>) {
        if let Some((place, requests)) = list {
            let pair = self.pairs[&number].lanes[&place].pair;
            self.nics.post(now, pair, &requests);
        }
    }

    /// What a pair is in the model for a verb and a destination; `None` when the model, or the client, may have no more.
    fn lane(
        &mut self,
        number: u32,
        (verb, to): (Verb, u32),
        region_bytes: u64,
    ) -> Option<&mut Lane> {
        let pair = &self.pairs[&number];
        if !pair.lanes.contains_key(&(verb, to)) {
            let client = pair.client;
            let connection = Connection {
                from: pair.host as u8,
                to: to as u8,
                verb,
                transport: pair.transport,
                mtu: pair.mtu(),
                // Pairs that are alike can follow one another in the model.
                depth: pair.depth.next_power_of_two(),
                read_atomic_max: pair.attributes.max_rd_atomic.clamp(1, READ_ATOMIC_MAX),
                region_bytes,
                core: self.client(client).core,
            };
            let limit = pair.limit;
            if self.held(client).lanes >= LANES_MAX {
                return None;
            }
            let (live, next) = match self.nics.reuse(&connection) {
                Some(again) => again,
                None if self.nics.pairs() >= self.live_max => return None,
                None => self.nics.connect(&connection),
            };
            self.held(client).lanes += 1;
            if limit.is_some() {
                self.nics.limit(live, limit);
            }
            self.owners.insert(live, number);
            let lane = Lane {
                connection,
                pair: live,
                next,
                under_way: VecDeque::new(),
                flying: VecDeque::new(),
            };
            let pair = self.pairs.get_mut(&number).expect("just found");
            pair.lanes.insert((verb, to), lane);
        }
        let pair = self.pairs.get_mut(&number).expect("just found");
        pair.lanes.get_mut(&(verb, to))
    }

    pub(crate) fn reported(&mut self, now: Instant, report: Report) {
        let (Report::Delivered { pair: live, .. } | Report::Completed { pair: live, .. }) = report;
        // A pair that was given back still reports.
        let Some(&number) = self.owners.get(&live) else {
            return;
        };
        let reliable = self.pairs[&number].transport == Transport::Rc;
        match (report, reliable) {
            (Report::Delivered { message, .. }, true) => self.arrived(number, live, message),
            (Report::Delivered { message, .. }, false) => self.landed(now, number, live, message),
            (Report::Completed { upto, .. }, true) => self.acknowledged(number, live, upto),
            (Report::Completed { upto, .. }, false) => self.left(now, number, live, upto),
        }
        self.advance(now, number);
    }

    fn lane_of(&mut self, number: u32, live: LivePair) -> Option<&mut Lane> {
        let pair = self.pairs.get_mut(&number)?;
        pair.lanes.values_mut().find(|lane| lane.pair == live)
    }

    /// The work request that is message `message`, unless its completion came before.
    fn sequence_of(&mut self, number: u32, live: LivePair, message: u32) -> Option<u64> {
        let lane = self.lane_of(number, live)?;
        let index = message.wrapping_sub(lane.first()) as usize;
        lane.under_way.get(index).copied()
    }

    /// The work requests of all messages below `upto`, which are no longer under way.
    fn finished(&mut self, number: u32, live: LivePair, upto: u32) -> Vec<(u32, u64)> {
        let mut finished = Vec::new();
        if let Some(lane) = self.lane_of(number, live) {
            while (upto.wrapping_sub(lane.first()) as i32) > 0 {
                let message = lane.first();
                let Some(sequence) = lane.under_way.pop_front() else {
                    break;
                };
                finished.push((message, sequence));
            }
        }
        finished
    }

    fn arrived(&mut self, number: u32, live: LivePair, message: u32) {
        let sequence = self.sequence_of(number, live, message);
        let pair = self
            .pairs
            .get_mut(&number)
            .expect("reports are of pairs that exist");
        if let Some(index) = sequence.and_then(|sequence| pair.index(sequence)) {
            pair.work[index].arrived = true;
        }
    }

    fn acknowledged(&mut self, number: u32, live: LivePair, upto: u32) {
        for (_, sequence) in self.finished(number, live, upto) {
            let pair = self
                .pairs
                .get_mut(&number)
                .expect("reports are of pairs that exist");
            if let Some(index) = pair.index(sequence) {
                let work = &mut pair.work[index];
                (work.arrived, work.acknowledged) = (true, true);
            }
        }
    }

    /// Messages of an unreliable pair have left: payload that has not arrived is kept, up to [`FLYING_BYTES_MAX`]. What is
    /// beyond arrives at once, before the model says so.
    fn left(&mut self, now: Instant, number: u32, live: LivePair, upto: u32) {
        for (message, sequence) in self.finished(number, live, upto) {
            let pair = &self.pairs[&number];
            let Some(index) = pair.index(sequence) else {
                continue;
            };
            let work = &pair.work[index];
            let (client, arrived, request) = (pair.client, work.arrived, work.request.clone());
            let payload = self.payload(number, &request);
            let pair = self.pairs.get_mut(&number).expect("just found");
            (pair.work[index].acknowledged, pair.work[index].arrived) = (true, true);
            // The queue learns of a wrong key in order, when its turn comes.
            let Some(payload) = payload.filter(|_| !arrived) else {
                continue;
            };
            if self.held(client).flying + payload.length() > FLYING_BYTES_MAX {
                self.deliver_unreliable(now, number, &request, &payload);
                continue;
            }
            if let Ok(bytes) = payload.read() {
                self.fly(number, live, (message, request, Payload::Bytes(bytes)));
            }
        }
    }

    /// Keeps a message until it arrives.
    fn fly(&mut self, number: u32, live: LivePair, message: (u32, SendRequest, Payload)) {
        let Some(lane) = self.lane_of(number, live) else {
            return;
        };
        let come = message.2.length();
        lane.flying.push_back(message);
        let over = (lane.flying.len() > FLYING_MAX).then(|| lane.flying.pop_front());
        let gone = over.flatten().map_or(0, |(.., payload)| payload.length());
        let held = self.held(self.pairs[&number].client);
        held.flying = held.flying + come - gone;
    }

    /// A message of an unreliable pair is at the other end.
    fn landed(&mut self, now: Instant, number: u32, live: LivePair, message: u32) {
        if let Some(sequence) = self.sequence_of(number, live, message) {
            let pair = self
                .pairs
                .get_mut(&number)
                .expect("reports are of pairs that exist");
            let Some(index) = pair.index(sequence) else {
                return;
            };
            pair.work[index].arrived = true;
            let request = pair.work[index].request.clone();
            if let Some(payload) = self.payload(number, &request) {
                self.deliver_unreliable(now, number, &request, &payload);
            }
            return;
        }
        // What was to arrive before it has been dropped. A report may also be of the pair that the lane's served before.
        while let Some((first, request, payload)) = self.landing(number, live, message) {
            self.held(self.pairs[&number].client).flying -= payload.length();
            if first == message {
                return self.deliver_unreliable(now, number, &request, &payload);
            }
        }
    }

    /// The oldest message on its way, if it left before `message` or is it.
    fn landing(
        &mut self,
        number: u32,
        live: LivePair,
        message: u32,
    ) -> Option<(u32, SendRequest, Payload)> {
        let lane = self.lane_of(number, live)?;
        let is_due = |first: u32| (message.wrapping_sub(first) as i32) >= 0;
        lane.flying.pop_front_if(|(first, ..)| is_due(*first))
    }

    /// Lets requests take effect, and completes what is over, in order.
    pub(crate) fn advance(&mut self, now: Instant, number: u32) {
        if self
            .pairs
            .get(&number)
            .is_some_and(|pair| pair.attributes.state == IBV_QPS_ERR)
        {
            return self.flush(number);
        }
        while let Some(pair) = self.pairs.get(&number) {
            let Some(work) = pair.work.get(pair.executed) else {
                break;
            };
            if !work.arrived || pair.waits {
                break;
            }
            let (request, tries) = (work.request.clone(), work.tries);
            let leaves = pair.transport == Transport::Rc && verb(request.opcode).is_some();
            if leaves && tries == 0 && self.faults.request_fails() {
                return self.fail_pair(number, Some(IBV_WC_RETRY_EXC_ERR));
            }
            match self.attempt(now, number, &request) {
                Outcome::Over(IBV_WC_SUCCESS) => {
                    let pair = self
                        .pairs
                        .get_mut(&number)
                        .expect("a success keeps the pair");
                    pair.executed += 1;
                }
                Outcome::Over(status) => return self.fail_pair(number, Some(status)),
                Outcome::NotReady => self.wait_for_receive(now, number, tries),
                Outcome::Silent => self.wait_for_answer(now, number),
            }
        }
        self.complete_in_order(now, number);
    }

    pub(crate) fn attempt(&mut self, now: Instant, number: u32, request: &SendRequest) -> Outcome {
        if self.pairs[&number].transport == Transport::Rc || verb(request.opcode).is_none() {
            let outcome = self.execute(now, number, request);
            if outcome == Outcome::Over(IBV_WC_SUCCESS) {
                self.count(request.length());
            }
            return outcome;
        }
        // Unreliable messages take effect when they land; only their own end can be wrong.
        Outcome::Over(match self.payload(number, request) {
            None => IBV_WC_LOC_PROT_ERR,
            Some(payload) if payload.length() > self.longest(number) => IBV_WC_LOC_LEN_ERR,
            Some(_) => IBV_WC_SUCCESS,
        })
    }

    /// The longest message of an unreliable pair: a datagram is one packet.
    fn longest(&self, number: u32) -> u64 {
        let pair = &self.pairs[&number];
        match pair.transport {
            Transport::Ud => 128 << self.facts[pair.host as usize].mtu,
            _ => u64::from(MESSAGE_MAX),
        }
    }

    /// Completes what is over from the front of the queue.
    fn complete_in_order(&mut self, now: Instant, number: u32) {
        while let Some(pair) = self.pairs.get(&number) {
            let Some(work) = pair.work.front() else {
                break;
            };
            let signalled = work.request.flags & IBV_SEND_SIGNALED != 0;
            if pair.executed == 0 || signalled && !work.acknowledged {
                break;
            }
            let work = self.dequeue(number).expect("just seen");
            let pair = self.pairs.get_mut(&number).expect("just seen");
            pair.executed -= 1;
            if signalled {
                let entry = sent(pair, number, &work, IBV_WC_SUCCESS, now);
                let handle = pair.send_completions;
                self.complete(handle, &entry, false);
            }
        }
        self.forget_lanes(number);
    }

    /// Numbers of requests that are over need not be kept in the lanes.
    fn forget_lanes(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        let first = pair.work.front().map_or(pair.next, |work| work.sequence);
        for lane in pair.lanes.values_mut() {
            while lane
                .under_way
                .front()
                .is_some_and(|&sequence| sequence < first)
            {
                lane.under_way.pop_front();
            }
        }
    }

    /// A pair is in error, because the current request failed with `status` or for another reason: all else is flushed.
    pub(crate) fn fail_pair(&mut self, number: u32, status: Option<ibv_wc_status>) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        pair.attributes.state = IBV_QPS_ERR;
        pair.waits = false;
        let executed = std::mem::take(&mut pair.executed);
        let handle = pair.send_completions;
        let now = self.nics.now();
        let mut over: Vec<(Work, ibv_wc_status)> = Vec::new();
        for _ in 0..executed {
            let work = self.dequeue(number).expect("it was executed");
            if work.request.flags & IBV_SEND_SIGNALED != 0 {
                over.push((work, IBV_WC_SUCCESS));
            }
        }
        if let Some(status) = status
            && let Some(work) = self.dequeue(number)
        {
            over.push((work, status));
        }
        for (work, status) in over {
            let entry = sent(&self.pairs[&number], number, &work, status, now);
            self.complete(handle, &entry, false);
        }
        self.give_lanes_back(number);
        self.flush(number);
        self.flush_receives(number);
    }

    /// Flushes the send queue of a pair in error.
    fn flush(&mut self, number: u32) {
        let now = self.nics.now();
        while let Some(work) = self.dequeue(number) {
            let pair = self.pairs.get_mut(&number).expect("just seen");
            pair.executed = 0;
            let handle = pair.send_completions;
            let entry = sent(pair, number, &work, IBV_WC_WR_FLUSH_ERR, now);
            self.complete(handle, &entry, false);
        }
    }

    /// Flushes the receive queue of a pair in error; a shared queue keeps its receives.
    pub(crate) fn flush_receives(&mut self, number: u32) {
        let now = self.nics.now();
        while let Some(pair) = self.pairs.get_mut(&number)
            && let Some(receive) = pair.receives.pop_front()
        {
            let entry = Entry {
                status: IBV_WC_WR_FLUSH_ERR,
                opcode: IBV_WC_RECV,
                ..Entry::default()
            };
            self.complete_receive(now, number, &receive, entry, 0);
        }
        let shared = self.pairs.get(&number).filter(|pair| pair.shared.is_some());
        if let Some(pair) = shared {
            self.tell(pair.client, IBV_EVENT_QP_LAST_WQE_REACHED, number);
        }
    }
}

/// The completion of a send work request.
fn sent(pair: &Pair, number: u32, work: &Work, status: ibv_wc_status, now: Instant) -> Entry {
    let length = match work.request.opcode {
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => 8,
        _ => work.request.length() as u32,
    };
    Entry {
        wr_id: work.request.wr_id,
        status,
        opcode: completion_opcode(work.request.opcode),
        byte_len: length,
        qp_num: number,
        sequence: work.sequence,
        sl: pair.attributes.route.sl,
        timestamp: now.as_ps() / 1000,
        ..Entry::default()
    }
}
