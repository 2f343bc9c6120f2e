//! Queue pairs and receive queues: creation, states, posted receives.

use crate::answer::{Answered, known, words};
use crate::fabric::{FIRST_PAIR, Fabric, PAIRS_END};
use crate::facts::host_at;
use crate::held::Kind;
use crate::pair::{Pair, Receive, change};
use isolane_common_quantities::units::BitRate;
use isolane_rdma_emulated_verbs::attributes::{PairAttributes, SendRequest, read_elements};
use isolane_rdma_emulated_verbs::context::DEPTH_MAX;
use isolane_rdma_emulated_verbs::wire::Reader;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Memory whose pages the model translates for a pair, bytes: at most. A longer region costs the model memory.
const REGION_BYTES_MAX: u64 = 2 << 20;
/// A page.
const REGION_BYTES_MIN: u64 = 4 << 10;

/// Work requests and receives that the queues of one client may hold, together: they take memory here.
const PLACES_MAX: u64 = 1 << 19;

impl Fabric {
    /// A queue pair of a client's own.
    pub(crate) fn own_pair(&self, client: u32, number: u32) -> Option<&Pair> {
        self.pairs.get(&number).filter(|pair| pair.client == client)
    }

    /// `None` for a malformed message.
    pub(crate) fn create_pair(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<Answered> {
        let (domain, kind) = reader.halves()?;
        let (send_completions, receive_completions) = reader.halves()?;
        let (shared, _signal_all) = reader.halves()?;
        let (depth, receive_depth) = reader.halves()?;
        let shared = (shared != u32::MAX).then_some(shared);
        let transport = match kind {
            IBV_QPT_RC => Transport::Rc,
            IBV_QPT_UC => Transport::Uc,
            IBV_QPT_UD => Transport::Ud,
            _ => return Some(Err(libc::EOPNOTSUPP)),
        };
        let own = |handle: &u32| {
            let queue = self.completions.get(handle);
            queue.is_some_and(|queue| queue.client == client)
        };
        let has_shared = shared.is_none_or(|handle| {
            let queue = self.shared.get(&handle);
            queue.is_some_and(|queue| queue.client == client)
        });
        let complete = own(&send_completions) && own(&receive_completions) && has_shared;
        let small = depth <= DEPTH_MAX && receive_depth <= DEPTH_MAX;
        if self.own_domain(client, domain).is_err() || !complete || !small {
            return Some(Err(libc::EINVAL));
        }
        let places = u64::from(depth) + u64::from(receive_depth);
        let room = self.held(client).room(Kind::Pair);
        if let Err(errno) = room.and_then(|()| self.check_places(client, places)) {
            return Some(Err(errno));
        }
        let number = self.pair_number();
        let pair = Pair {
            client,
            host: self.client(client).host,
            domain,
            transport,
            send_completions,
            receive_completions,
            shared,
            depth,
            receive_depth,
            attributes: PairAttributes::default(),
            peer: None,
            work: VecDeque::new(),
            next: 0,
            executed: 0,
            receives: VecDeque::new(),
            next_receive: 0,
            lanes: BTreeMap::new(),
            limit: None,
            waits: false,
            windows: BTreeSet::new(),
        };
        for used in pair.uses() {
            self.begin_use(used);
        }
        self.pairs.insert(number, pair);
        self.held(client).add(Kind::Pair);
        self.held(client).places += places;
        Some(words(&[u64::from(number)]))
    }

    /// A number that no pair has. The number of a pair that was destroyed comes again after all others.
    fn pair_number(&mut self) -> u32 {
        loop {
            let number = self.next_pair;
            self.next_pair = match number + 1 {
                PAIRS_END => FIRST_PAIR,
                next => next,
            };
            if !self.pairs.contains_key(&number) {
                return number;
            }
        }
    }

    /// Whether a client may have queues for so many more work requests and receives.
    pub(crate) fn check_places(&mut self, client: u32, more: u64) -> Result<(), i32> {
        match self.held(client).places + more <= PLACES_MAX {
            true => Ok(()),
            false => Err(libc::ENOMEM),
        }
    }

    pub(crate) fn modify_pair(
        &mut self,
        client: u32,
        number: u32,
        (mask, current): (u32, u32),
        wanted: &PairAttributes,
    ) -> Answered {
        known(self.own_pair(client, number))?;
        let pair = self.pairs.get_mut(&number).expect("just found");
        if mask & IBV_QP_PATH_MTU != 0 && wanted.path_mtu > self.facts[pair.host as usize].mtu {
            return Err(libc::EINVAL);
        }
        change(pair, mask, current, wanted)?;
        if mask & IBV_QP_AV != 0 {
            pair.peer = host_at(&self.facts, &pair.attributes.route);
        }
        if mask & IBV_QP_STATE != 0 {
            match wanted.state {
                IBV_QPS_RESET => self.reset_pair(number),
                IBV_QPS_ERR => self.fail_pair(number, None),
                _ => {}
            }
        }
        words(&[])
    }

    /// Limits the rate of a pair, kbit/s of real time; 0 lifts the limit. Each destination of datagrams, and each verb, has the
    /// rate for itself.
    pub(crate) fn limit_pair(&mut self, client: u32, number: u32, kbps: u32) -> Answered {
        let pair = known(self.own_pair(client, number))?;
        let most = self.facts[pair.host as usize].pacing_kbps_max;
        let is_ready = matches!(pair.attributes.state, IBV_QPS_RTR | IBV_QPS_RTS);
        match (most, kbps <= most && is_ready) {
            (0, _) => return Err(libc::EOPNOTSUPP),
            (_, false) => return Err(libc::EINVAL),
            (_, true) => {}
        }
        const BPS_PER_KBPS: f64 = 1e3;
        let bps = f64::from(kbps) * BPS_PER_KBPS * self.dilation;
        let limit = (kbps > 0).then(|| BitRate::from_bps(bps as u64));
        let pair = self.pairs.get_mut(&number).expect("just found");
        pair.limit = limit;
        for lane in pair.lanes.values() {
            self.nics.limit(lane.pair, limit);
        }
        words(&[])
    }

    /// Forgets all that a pair had posted.
    pub(crate) fn reset_pair(&mut self, number: u32) {
        self.give_lanes_back(number);
        while self.dequeue(number).is_some() {}
        let pair = self.pairs.get_mut(&number).expect("the caller found it");
        pair.receives.clear();
        (pair.executed, pair.waits, pair.peer) = (0, false, None);
        pair.attributes = PairAttributes::default();
        pair.limit = None;
    }

    pub(crate) fn remove_pair(&mut self, number: u32) {
        self.give_lanes_back(number);
        while self.dequeue(number).is_some() {}
        let Some(pair) = self.pairs.remove(&number) else {
            return;
        };
        for &handle in &pair.windows {
            self.set_bound(handle, None);
        }
        for used in pair.uses() {
            self.end_use(used);
        }
        self.held(pair.client).remove(Kind::Pair);
        self.held(pair.client).places -= u64::from(pair.depth) + u64::from(pair.receive_depth);
    }

    /// Memory that the messages of a pair use, by its first request: a power of two, so that pairs of one program are alike.
    pub(crate) fn region_bytes(&self, request: &SendRequest) -> u64 {
        let local = request.elements.first().map(|element| element.lkey);
        let region = self.regions.get(&local.unwrap_or(request.rkey));
        let bytes = region.map_or(request.length(), |region| region.span.length);
        bytes
            .clamp(REGION_BYTES_MIN, REGION_BYTES_MAX)
            .next_power_of_two()
    }

    /// A pair no longer sends in the model.
    pub(crate) fn give_lanes_back(&mut self, number: u32) {
        let pair = self.pairs.get_mut(&number).expect("the caller found it");
        let client = pair.client;
        for lane in std::mem::take(&mut pair.lanes).into_values() {
            self.owners.remove(&lane.pair);
            self.nics.give_back(lane.pair, &lane.connection);
            let flying: u64 = lane
                .flying
                .iter()
                .map(|(.., payload)| payload.length())
                .sum();
            let held = self.held(client);
            held.lanes -= 1;
            held.flying -= flying;
        }
    }

    /// Receives of a pair; `None` for a malformed message.
    pub(crate) fn post_receives(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let number = reader.number()?;
        let count = reader.number()?;
        let pair = self
            .pairs
            .get_mut(&number)
            .filter(|pair| pair.client == client)?;
        for _ in 0..count {
            if pair.receives.len() >= pair.receive_depth as usize || pair.shared.is_some() {
                return None;
            }
            let receive = receive(reader, pair.next_receive)?;
            pair.next_receive += 1;
            pair.receives.push_back(receive);
        }
        if pair.attributes.state == IBV_QPS_ERR {
            self.flush_receives(number);
        }
        Some(())
    }

    /// Receives of a shared queue; `None` for a malformed message.
    pub(crate) fn post_shared(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let handle = reader.number()?;
        let count = reader.number()?;
        let queue = self
            .shared
            .get_mut(&handle)
            .filter(|queue| queue.client == client)?;
        for _ in 0..count {
            if queue.receives.len() >= queue.depth as usize {
                return None;
            }
            let receive = receive(reader, 0)?;
            queue.receives.push_back(receive);
        }
        Some(())
    }

    /// A receive that is there for what arrives at a pair.
    pub(crate) fn take_receive(&mut self, number: u32) -> Option<Receive> {
        let pair = self.pairs.get_mut(&number)?;
        let Some(handle) = pair.shared else {
            return pair.receives.pop_front();
        };
        let queue = self.shared.get_mut(&handle)?;
        let taken = queue.receives.pop_front();
        if queue.limit > 0 && queue.receives.len() < queue.limit as usize {
            queue.limit = 0;
            let client = queue.client;
            self.tell(client, IBV_EVENT_SRQ_LIMIT_REACHED, handle);
        }
        taken
    }

    /// Whether a receive is there for what arrives at a pair.
    pub(crate) fn has_receive(&self, pair: &Pair) -> bool {
        match pair.shared {
            None => !pair.receives.is_empty(),
            Some(handle) => self
                .shared
                .get(&handle)
                .is_some_and(|queue| !queue.receives.is_empty()),
        }
    }
}

fn receive(reader: &mut Reader<'_>, sequence: u64) -> Option<Receive> {
    let wr_id = reader.word()?;
    let count = reader.number()? as usize;
    Some(Receive {
        wr_id,
        sequence,
        elements: read_elements(count, reader)?,
    })
}
