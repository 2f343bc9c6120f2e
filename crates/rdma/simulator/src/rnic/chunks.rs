//! Lanes that send chunks of data instead of turns of packets: Palos inside the NIC (stage 3; palos IV).
//!
//! Problem: plug the scheduler of `isolane_rdma_policy::palos` into a lane. Method: every context of the lane is one of
//! its queue pairs, a requester as well as a responder that answers READs; its group is its tenant. A normal and a
//! priority turn may be open at once, and the priority turn has the next packet. A step asks whose packet it is,
//! sends it, and says how the turn goes on.
//!
//! The scheduler sees the length of a work request, as its hardware does. A READ request or an atomic counts at the
//! requester with its frame, for it carries no data; the data counts at the responder that sends it.
//!
//! Its stages take cycles of a clock of their own and work as a pipeline: what a turn sends is ready no earlier than its
//! decision, and decisions follow each other at the pace of the slowest stage. Packets behind it are in order: a labelled
//! message overtakes what waits for a turn, not what has been read ahead of the wire.
//!
//! Units: bytes, picoseconds. Limits: a context becomes known to a lane with its first work there, so its first turn
//! may allocate.

use super::queue_pair::NONE;
use super::transmit::Served;
use super::world::World;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_rdma_policy::palos::{
    Clock, GroupId, Label, Message, Palos, PalosOptions, QueuePairId, Rest,
};
use isolane_rdma_scenario::model::{Class, Verb};

/// What a setup says of the chunks of all lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChunkSetup {
    /// Checked when the setup is made.
    pub(crate) options: PalosOptions,
    pub(crate) clock: Clock,
    /// Every queue pair is a group of its own.
    pub(crate) per_queue_pair: bool,
}

/// What a lane has to know of a context it has not seen before.
#[derive(Clone, Copy, Debug)]
struct Member {
    tenant: u32,
    tenant_weight: u32,
    weight: u32,
    label: Label,
}

/// What the next packet of a context is a part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Length that the work request names.
    length: u64,
    /// What the scheduler counts of it, and what of that has gone.
    size: u64,
    sent: u64,
    /// What it counts for the packet.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenTurn {
    context: u32,
    /// When the next packet's work request has been written, ps.
    ready: u64,
    messages: u32,
}

const CLOSED: OpenTurn = OpenTurn {
    context: NONE,
    ready: 0,
    messages: 0,
};
/// Work requests of one pair on the NIC at most: 1,024 of 64 B are 64 KiB of its buffer.
const FETCH_DEPTH_MAX: u64 = 1_024;
const PRIORITY: usize = 0;
const NORMAL: usize = 1;

/// The scheduler of one lane.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    palos: Palos,
    setup: ChunkSetup,
    /// The scheduler's number of a context, and the context of a number.
    numbers: Vec<u32>,
    contexts: Vec<u32>,
    /// By number: when its last doorbell was through.
    entered: Vec<u64>,
    group_of_tenant: Vec<u32>,
    open: [OpenTurn; 2],
    /// When the slowest stage can take the next decision, ps.
    free: u64,
}

impl Chunks {
    /// A lane without contexts.
    pub(crate) fn new(setup: ChunkSetup) -> Self {
        Self {
            palos: Palos::new(setup.options).expect("options are checked when the setup is made"),
            setup,
            numbers: Vec::new(),
            contexts: Vec::new(),
            entered: Vec::new(),
            group_of_tenant: Vec::new(),
            open: [CLOSED; 2],
            free: 0,
        }
    }

    fn number(&mut self, context: u32, member: impl FnOnce() -> Member) -> u32 {
        let index = context as usize;
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, NONE);
        }
        if self.numbers[index] == NONE {
            self.numbers[index] = self.add(context, member());
        }
        self.numbers[index]
    }

    fn add(&mut self, context: u32, member: Member) -> u32 {
        let in_range = "scenarios keep weights and counts in range";
        let (group, weight) = if self.setup.per_queue_pair {
            let group = self.palos.create_group(member.weight).expect(in_range);
            (group, 1)
        } else {
            let tenant = member.tenant as usize;
            if self.group_of_tenant.len() <= tenant {
                self.group_of_tenant.resize(tenant + 1, NONE);
            }
            if self.group_of_tenant[tenant] == NONE {
                let group = self.palos.create_group(member.tenant_weight);
                self.group_of_tenant[tenant] = group.expect(in_range).0;
            }
            (GroupId(self.group_of_tenant[tenant]), member.weight)
        };
        let pair = self.palos.create_queue_pair(group, weight, member.label);
        self.contexts.push(context);
        self.entered.push(0);
        pair.expect(in_range).0
    }

    /// Whose packet is next. The lane has work.
    fn turn(&mut self, now: u64) -> OpenTurn {
        if self.open[PRIORITY].context != NONE {
            return self.open[PRIORITY];
        }
        let at = Instant::from_ps(now);
        let mut turn = None;
        if self.palos.has_priority_work() {
            turn = self.palos.next_priority(at);
        }
        if turn.is_none() {
            if self.open[NORMAL].context != NONE {
                return self.open[NORMAL];
            }
            turn = self.palos.next_normal();
        }
        let turn = turn.expect("a lane in a ring has a context with work");
        let number = turn.pair.0 as usize;
        let start = now.max(self.free);
        let clock = &self.setup.clock;
        self.free = start + clock.interval(turn.skipped).as_ps();
        let open = OpenTurn {
            context: self.contexts[number],
            ready: start.max(self.entered[number]) + clock.decision(turn.skipped).as_ps(),
            messages: 0,
        };
        self.open[usize::from(!turn.priority)] = open;
        open
    }

    fn slot(&self, context: u32) -> usize {
        usize::from(self.open[PRIORITY].context != context)
    }

    /// The context in turn has sent a packet.
    fn sent(&mut self, now: u64, context: u32, piece: Piece) {
        let pair = QueuePairId(self.numbers[context as usize]);
        let message = Message {
            size: Bytes::new(piece.size),
            sent: Bytes::new(piece.sent),
        };
        let bytes = Bytes::new(piece.bytes);
        self.palos
            .charge(Instant::from_ps(now), pair, message, bytes);
        if piece.sent + piece.bytes >= piece.size {
            let combine = self.setup.clock.combine().as_ps();
            let slot = self.slot(context);
            let open = &mut self.open[slot];
            open.messages += 1;
            // The next message's work request is written behind this one's, by the same stage.
            open.ready += combine;
            self.free += combine;
        }
    }

    fn allows(&self, context: u32) -> bool {
        self.palos
            .allows(QueuePairId(self.numbers[context as usize]))
    }

    fn finish(&mut self, now: u64, context: u32, rest: Rest) {
        let slot = self.slot(context);
        self.open[slot] = CLOSED;
        let pair = QueuePairId(self.numbers[context as usize]);
        self.palos.finish(Instant::from_ps(now), pair, rest);
    }
}

impl World {
    /// Puts a context with work into a lane.
    pub(crate) fn wait_in_lane(&mut self, now: u64, host: usize, lane: usize, context: u32) {
        if self.nics[host].lanes.lanes[lane].chunks.is_none() {
            self.nics[host].lanes.push(lane, context);
            return;
        }
        let length = self.piece(context).length;
        let queue_pair = &self.pairs[context as usize / 2];
        let tenant = queue_pair.tenant;
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        let tenants = &self.enforcer.tenants;
        let member = || {
            // What belongs to no tenant is the policy's own reference flow: it measures what labels get.
            let known = tenants.get(usize::from(tenant)).copied();
            let (tenant_weight, class) = known.unwrap_or((1, Class::Latency));
            Member {
                tenant: u32::from(tenant),
                tenant_weight,
                weight: plan.weight,
                label: if class == Class::Latency {
                    Label::Latency
                } else {
                    Label::None
                },
            }
        };
        let lanes = &mut self.nics[host].lanes;
        if let Some(chunks) = &mut lanes.lanes[lane].chunks {
            let number = chunks.number(context, member);
            chunks.entered[number as usize] = now + chunks.setup.clock.doorbell().as_ps();
            let at = Instant::from_ps(now);
            chunks
                .palos
                .activate(at, QueuePairId(number), Bytes::new(length));
        }
        lanes.count(lane);
    }

    /// Work requests that the NIC keeps fetched for a pair: the device's number, or with chunks what two turns need, so
    /// that small messages can be combined until they meet a chunk (palos IV-A: a batch of them is fetched).
    pub(crate) fn fetch_depth(&mut self, pair: u32) -> u64 {
        let depth = u64::from(self.device.wqe_prefetch);
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        let length = queue_pair.work_request(queue_pair.sent).bytes.max(1);
        let lanes = &mut self.nics[host].lanes;
        let lane = lanes.lane_of(queue_pair.queue, queue_pair.function);
        let Some(chunks) = &mut lanes.lanes[lane].chunks else {
            return depth;
        };
        let chunk = match chunks.numbers.get(pair as usize * 2) {
            Some(&number) if number != NONE => chunks.palos.chunk(QueuePairId(number)),
            _ => chunks.setup.options.quantum,
        };
        depth.max(FETCH_DEPTH_MAX.min(2 * chunk.get().div_ceil(length)))
    }

    /// Opens or continues a turn: the context, and the packet it sends next.
    pub(crate) fn take_chunk_turn(
        &mut self,
        now: u64,
        host: usize,
        lane: usize,
    ) -> Option<(u32, Piece)> {
        let chunks = self.nics[host].lanes.lanes[lane].chunks.as_mut()?;
        let turn = chunks.turn(now);
        self.nics[host].turn_ready = turn.ready;
        Some((turn.context, self.piece(turn.context)))
    }

    /// What the next packet of a context is a part of.
    fn piece(&self, context: u32) -> Piece {
        let queue_pair = &self.pairs[context as usize / 2];
        let (length, sent) = if context % 2 == 1 {
            let position = queue_pair.reads_to_answer.front();
            let position = *position.expect("a scheduled responder has a READ to answer");
            let length = queue_pair.work_request(position).bytes;
            (length, queue_pair.response_offset)
        } else {
            let length = queue_pair.work_request(queue_pair.sent).bytes;
            (length, queue_pair.offset)
        };
        let has_data =
            length > 0 && (context % 2 == 1 || matches!(queue_pair.verb, Verb::Write | Verb::Send));
        if !has_data {
            let frame = self.device.frame;
            return Piece {
                length,
                size: frame,
                sent: 0,
                bytes: frame,
            };
        }
        Piece {
            length,
            size: length,
            sent,
            bytes: (length - sent).min(u64::from(queue_pair.mtu)),
        }
    }

    /// A step of a chunk turn is over; whether its context has left the lane.
    pub(crate) fn after_chunk(
        &mut self,
        now: u64,
        (host, lane): (usize, usize),
        (context, piece): (u32, Piece),
        served: Served,
    ) -> bool {
        let pair = context / 2;
        let next = (served == Served::More).then(|| {
            let queue_pair = &self.pairs[pair as usize];
            let lanes = &self.nics[host].lanes;
            let lane = lanes.lane_of(queue_pair.queue, queue_pair.function);
            (lane, self.piece(context).length)
        });
        let queue_pair = &self.pairs[pair as usize];
        let stalled = if context % 2 == 1 {
            !queue_pair.reads_to_answer.is_empty()
        } else {
            queue_pair.sent < queue_pair.visible
        };
        let chunks = self.nics[host].lanes.lanes[lane].chunks.as_mut();
        let chunks = chunks.expect("the turn was taken from them");
        if served != Served::Aside {
            chunks.sent(now, context, piece);
        }
        match next {
            Some(_) if chunks.allows(context) => false,
            Some((same, length)) if same == lane => {
                chunks.finish(now, context, Rest::Ready(Bytes::new(length)));
                false
            }
            Some((other, _)) => {
                chunks.finish(now, context, Rest::Idle);
                self.wait_in_lane(now, host, other, context);
                true
            }
            None => {
                chunks.finish(
                    now,
                    context,
                    if stalled { Rest::Stalled } else { Rest::Idle },
                );
                let queue_pair = &mut self.pairs[pair as usize];
                if context % 2 == 1 {
                    queue_pair.response_scheduled = false;
                } else {
                    queue_pair.scheduled = false;
                }
                true
            }
        }
    }
}
