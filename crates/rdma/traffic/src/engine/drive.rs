//! The loop of a data end: post, handle completions, poll memory, sleep when idle.
//!
//! One thread drives all queue pairs of an end, like one thread of an application. It polls. After some empty polls it
//! yields to other threads; with events it sleeps on the completion channel instead.

use super::arrive::marker;
use super::data::{DataEnd, is_target, requests, send_capacity};
use super::error::EndError;
use super::flow::Flow;
use super::meter::{Deliver, Meter};
use super::pace::Pace;
use super::shared::Shared;
use crate::worker::{Arrival, Job, Operation};
use isolane_common_quantities::rng::Stream;
use isolane_rdma_scenario::model::Message;
use isolane_rdma_verbs_sys::safe::{Element, ReceiveList, Request, SendList, Target};
use isolane_rdma_verbs_sys::{IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc};
use std::collections::VecDeque;
use std::time::Duration;

/// Completions per poll.
const BATCH: usize = 32;
/// Empty polls before the thread yields.
const EMPTY_POLLS: u32 = 32;
/// Longest sleep, and so the longest delay of a stop.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// Longer waits are slept, shorter ones polled, nanoseconds.
const SLEEP_MIN_NS: u64 = 100_000;
/// Position of the queue pair's index in an own request's identifier.
pub(super) const PAIR_SHIFT: u32 = 40;
pub(super) const SEQUENCE_MASK: u64 = (1 << PAIR_SHIFT) - 1;
/// Bit of the identifier of a request that reads written data back.
pub(super) const READ_BACK: u64 = 1 << 63;

/// The state of a running end.
pub(super) struct Drive<'a> {
    pub(super) end: &'a DataEnd,
    pub(super) shared: &'a Shared,
    pub(super) meter: Meter,
    pub(super) flows: Vec<Flow>,
    /// Queue pairs that may have something to post.
    pub(super) ready: VecDeque<usize>,
    pub(super) waiting: Vec<bool>,
    pub(super) pace: Option<Pace>,
    pub(super) list: SendList,
    pub(super) receives: ReceiveList,
    /// Receives to repost: time, queue pair, slot.
    pub(super) used: VecDeque<(u64, usize, u64)>,
    /// Receives to repost per queue pair, until there are enough for a batch.
    pub(super) back: Vec<Vec<u64>>,
    /// Messages received per queue pair (ping-pong and checking).
    pub(super) heard: Vec<u64>,
    pub(super) elements: Vec<Element>,
    pub(super) completions: Vec<ibv_wc>,
    pub(super) reported: (u64, u64),
    pub(super) broken: bool,
}

impl<'a> Drive<'a> {
    pub(super) fn new(end: &'a DataEnd, job: &Job, shared: &'a Shared) -> Self {
        let work = &end.work;
        let pairs = work.queue_pairs as usize;
        let flows = (0..pairs).map(|pair| {
            Flow::new(
                work.arrival,
                work.depth,
                send_capacity(work, end.check),
                work.post_list,
                work.iterations,
                Stream::indexed(job.seed, &format!("arrivals/{}", end.id), pair as u64),
            )
        });
        let mut regions = end.own.clone();
        regions.extend(end.read_back.clone());
        let mut meter = Meter::new(job.warmup, job.duration_ns, job.sample_interval_ns, pairs);
        meter.paced_by_device(end.paced_by_device);
        Self {
            meter,
            flows: flows.collect(),
            ready: (0..pairs).collect(),
            waiting: vec![true; pairs],
            pace: match work.arrival {
                Arrival::Paced { rate_bps } if !end.paced_by_device => Some(Pace::new(rate_bps)),
                _ => None,
            },
            list: SendList::new(regions),
            receives: ReceiveList::new(end.open.clone()),
            used: VecDeque::new(),
            back: vec![Vec::new(); pairs],
            heard: vec![0; pairs],
            elements: Vec::new(),
            completions: vec![ibv_wc::default(); BATCH],
            reported: (0, 0),
            broken: false,
            end,
            shared,
        }
    }

    /// Posts the initial receives, before the peer may post.
    pub(super) fn post_first_receives(&mut self) -> Result<(), EndError> {
        if !self.expects_receives() || self.end.work.receive_batch == 0 {
            return Ok(());
        }
        for pair in 0..self.flows.len() {
            for slot in 0..u64::from(self.end.work.receive_depth) {
                self.push_receive(pair, slot)?;
            }
            self.receives.post(&self.end.queue_pairs[pair])?;
        }
        Ok(())
    }

    pub(super) fn expects_receives(&self) -> bool {
        self.end.work.operation.needs_receives() && is_target(&self.end.work)
    }

    /// Runs until stopped; `deliver` gets the figures once.
    pub(super) fn run(&mut self, deliver: Deliver<'_>) -> Result<(), EndError> {
        self.shared.await_start();
        let mut delivered = false;
        let answer = self.turns(deliver, &mut delivered);
        if let Err(error) = &answer {
            self.meter.error(&error.to_string());
        }
        if !delivered {
            let now = self.shared.now();
            let posted_window = if self.end.work.posts() {
                None
            } else {
                self.shared.posted_window()
            };
            deliver(self.meter.report(now, posted_window));
        }
        for pair in &self.end.queue_pairs {
            // Outstanding requests must end before the memory is freed. A failure means that the device is gone.
            let _ = pair.fail();
        }
        answer
    }

    fn turns(&mut self, deliver: Deliver<'_>, delivered: &mut bool) -> Result<(), EndError> {
        let posts = self.end.work.posts();
        let mut empty = 0;
        while !self.shared.stopped() {
            let now = self.shared.now();
            self.meter.tick(now);
            let over = posts && (now >= self.meter.end_ns() || self.finished());
            if !*delivered && (over || (!posts && self.shared.snapshot())) {
                *delivered = true;
                deliver(self.meter.report(now, None));
            }
            let may_post = posts
                && !*delivered
                && now >= self.end.begin_ns
                && self.end.end_ns.is_none_or(|end_ns| now < end_ns);
            if may_post {
                self.offer(now)?;
            }
            let did = self.take_sends()? + self.take_receives()? + self.look(now)?;
            self.post_back(now)?;
            self.tell();
            empty = if did > 0 { 0 } else { empty + 1 };
            if did == 0 {
                self.rest(now, empty, may_post)?;
            }
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        let counted = self.end.work.iterations.is_some();
        self.broken || (counted && self.flows.iter().all(Flow::finished))
    }

    fn tell(&mut self) {
        let now = self.meter.progress();
        let (messages, bytes) = (now.0 - self.reported.0, now.1 - self.reported.1);
        if messages > 0 {
            self.shared.add_progress(messages, bytes);
            self.reported = now;
        }
    }

    /// Posts what the queue pairs may post.
    fn offer(&mut self, now: u64) -> Result<(), EndError> {
        let timed = match self.end.work.arrival {
            Arrival::Open { .. } => true,
            Arrival::Closed { think_ns } => think_ns > 0,
            Arrival::PingPong | Arrival::Paced { .. } => false,
        };
        if timed {
            for pair in 0..self.flows.len() {
                self.post_lists(pair, now)?;
            }
            return Ok(());
        }
        while let Some(pair) = self.ready.pop_front() {
            if self.pace.as_ref().is_some_and(|pace| pace.next_ns() > now) {
                self.ready.push_front(pair);
                break;
            }
            if self.pace.is_none() {
                self.waiting[pair] = false;
                self.post_lists(pair, now)?;
                continue;
            }
            match self.flows[pair].offer(now) {
                Some((count, due)) => {
                    self.post(pair, count, due)?;
                    self.ready.push_back(pair);
                }
                None => self.waiting[pair] = false,
            }
        }
        Ok(())
    }

    fn post_lists(&mut self, pair: usize, now: u64) -> Result<(), EndError> {
        while let Some((count, due)) = self.flows[pair].offer(now) {
            self.post(pair, count, due)?;
        }
        Ok(())
    }

    /// Marks a queue pair that may have room again.
    pub(super) fn wake(&mut self, pair: usize) {
        if !self.waiting[pair] {
            self.waiting[pair] = true;
            self.ready.push_back(pair);
        }
    }

    /// Posts a list of `count` messages.
    pub(super) fn post(&mut self, pair: usize, count: u64, due: u64) -> Result<(), EndError> {
        let first = self.flows[pair].posted;
        let mut bytes = 0;
        for sequence in first..first + count {
            bytes += self.message(sequence).bytes().get();
            self.push(pair, sequence)?;
        }
        self.flows[pair].taken(count, due);
        if let Some(pace) = &mut self.pace {
            pace.took(self.shared.now(), bytes);
        }
        let posted = self.list.post(&self.end.queue_pairs[pair]);
        posted.map_err(|(error, _)| error.into())
    }

    pub(super) fn message(&self, sequence: u64) -> &'a Message {
        let pattern = &self.end.work.pattern;
        &pattern[(sequence % pattern.len() as u64) as usize]
    }

    /// Adds message `sequence` of `pair` to the list, and writes its content if it is checked.
    fn push(&mut self, pair: usize, sequence: u64) -> Result<(), EndError> {
        let work = &self.end.work;
        let ping_pong = work.arrival == Arrival::PingPong;
        let slot = if ping_pong { 0 } else { sequence };
        let place = self.end.own_places.of(pair as u64, slot);
        let message = self.message(sequence);
        let length = message.bytes().get();
        self.elements.clear();
        let mut before = 0;
        for (index, &element) in message.elements.iter().enumerate() {
            let region = self.end.element_region(place, index);
            let offset = place.offset + before;
            if self.end.check {
                self.prepare(pair, sequence, region, offset, before, element.into());
            }
            self.elements.push(Element {
                region,
                offset,
                length: element,
            });
            before += u64::from(element);
        }
        if ping_pong && work.operation == Operation::Write {
            // The last byte outside empty elements signals the complete message to the peer.
            let last = self
                .elements
                .iter()
                .rev()
                .find(|element| element.length > 0);
            if let Some(last) = last {
                let place = last.offset + u64::from(last.length) - 1;
                self.end.own[last.region].store(place, marker(sequence));
            }
        }
        let sends = !matches!(
            work.operation,
            Operation::Read | Operation::FetchAdd | Operation::CompareSwap
        );
        let last = work.iterations == Some(sequence + 1);
        let request = Request {
            id: (pair as u64) << PAIR_SHIFT | (sequence & SEQUENCE_MASK),
            target: self.target(pair, sequence, slot),
            signaled: (sequence + 1).is_multiple_of(work.completion_every.into()) || last,
            inline: sends && length > 0 && length <= u64::from(work.inline_bytes),
            wrong_key: false,
        };
        self.list.push(&request, &self.elements)?;
        Ok(())
    }

    /// Where message `sequence` of `pair` goes, with the operands of an atomic.
    fn target(&self, pair: usize, sequence: u64, slot: u64) -> Target<'a> {
        let work = &self.end.work;
        let remote = |slot: u64| {
            let place = self.end.own_places.of(pair as u64, slot);
            let memory = self.end.remote[place.region];
            (memory.address + place.offset, memory.remote_key)
        };
        match work.operation {
            Operation::Write | Operation::WriteImm => {
                let (address, key) = remote(slot);
                Target::Write {
                    address,
                    key,
                    immediate: (work.operation == Operation::WriteImm).then_some(sequence as u32),
                }
            }
            Operation::Read => {
                let (address, key) = remote(slot);
                Target::Read { address, key }
            }
            Operation::Send => Target::Send {
                immediate: self.end.check.then_some(sequence as u32),
                datagram: self.end.handles.get(pair),
            },
            Operation::FetchAdd => {
                let (address, key) = remote(0);
                Target::FetchAdd {
                    address,
                    key,
                    add: 1,
                }
            }
            Operation::CompareSwap => {
                let (address, key) = remote(0);
                Target::CompareSwap {
                    address,
                    key,
                    compare: sequence,
                    swap: sequence + 1,
                }
            }
        }
    }

    /// Handles completions of own requests.
    fn take_sends(&mut self) -> Result<usize, EndError> {
        if !requests(&self.end.work) {
            return Ok(0);
        }
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.end.sends.poll(&mut completions)?;
        let now = self.shared.now();
        for completion in &completions[..count] {
            self.sent(completion, now)?;
        }
        self.completions = completions;
        Ok(count)
    }

    fn sent(&mut self, completion: &ibv_wc, now: u64) -> Result<(), EndError> {
        let pair = ((completion.wr_id & !READ_BACK) >> PAIR_SHIFT) as usize;
        if completion.status != IBV_WC_SUCCESS {
            self.failed(pair, completion);
            return Ok(());
        }
        let ping_pong = self.end.work.arrival == Arrival::PingPong;
        let sequence = completion.wr_id & SEQUENCE_MASK;
        let read_back = completion.wr_id & READ_BACK != 0;
        if self.end.read_back.is_some() && !read_back {
            return self.read_back(pair, sequence);
        }
        if self.end.check && !ping_pong {
            self.verify_own(pair, sequence, read_back);
        }
        // One completion also covers the earlier unsignalled requests.
        while self.flows[pair].completed & SEQUENCE_MASK <= sequence
            && self.flows[pair].completed < self.flows[pair].posted
        {
            let (sequence, due) = self.flows[pair].retire(now);
            if !ping_pong {
                let bytes = self.message(sequence).bytes().get();
                self.meter.posted(now, pair, bytes, now.saturating_sub(due));
            }
        }
        self.wake(pair);
        Ok(())
    }

    pub(super) fn failed(&mut self, pair: usize, completion: &ibv_wc) {
        let first = !self.flows[pair].dead;
        self.flows[pair].dead = true;
        if first || completion.status != IBV_WC_WR_FLUSH_ERR {
            self.meter.error(status_name(completion.status));
        }
        self.broken = self.flows.iter().all(|flow| flow.dead);
    }

    /// Sleeps or yields when idle.
    fn rest(&mut self, now: u64, empty: u32, may_post: bool) -> Result<(), EndError> {
        let work = &self.end.work;
        let pace = self.pace.as_ref().filter(|_| !self.ready.is_empty());
        let due = self.flows.iter().filter_map(Flow::next_due_ns).min();
        let due = due.or(pace.map(Pace::next_ns)).filter(|_| may_post);
        let due = due
            .into_iter()
            .chain(self.used.front().map(|used| used.0))
            .min();
        let sleep = due.map_or(SLEEP_MAX, |due| {
            Duration::from_nanos(due.saturating_sub(now)).min(SLEEP_MAX)
        });
        let outstanding = self
            .flows
            .iter()
            .any(|flow| flow.posted > flow.completed && !flow.dead);
        let polls_memory = work.arrival == Arrival::PingPong && work.operation == Operation::Write;
        let expects = outstanding || self.expects_receives();
        if let Some(channel) = self
            .end
            .channel
            .as_ref()
            .filter(|_| !polls_memory && expects)
        {
            self.end.sends.request_event()?;
            self.end.receives.request_event()?;
            if self.take_sends()? + self.take_receives()? == 0 {
                channel.wait(sleep)?;
            }
            return Ok(());
        }
        if !expects && !polls_memory && sleep.as_nanos() >= u128::from(SLEEP_MIN_NS) {
            // The kernel wakes a sleeper some tens of microseconds late.
            std::thread::sleep(sleep - Duration::from_nanos(SLEEP_MIN_NS / 2));
        } else if empty.is_multiple_of(EMPTY_POLLS) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The name of a completion status in the manual, without `IBV_WC_`.
fn status_name(status: u32) -> &'static str {
    const NAMES: [&str; 24] = [
        "SUCCESS",
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR",
        "LOC_PROT_ERR",
        "WR_FLUSH_ERR",
        "MW_BIND_ERR",
        "BAD_RESP_ERR",
        "LOC_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
        "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR",
        "REM_ABORT_ERR",
        "INV_EECN_ERR",
        "INV_EEC_STATE_ERR",
        "FATAL_ERR",
        "RESP_TIMEOUT_ERR",
        "GENERAL_ERR",
        "TM_ERR",
        "TM_RNDV_INCOMPLETE",
    ];
    NAMES.get(status as usize).copied().unwrap_or("UNKNOWN")
}
