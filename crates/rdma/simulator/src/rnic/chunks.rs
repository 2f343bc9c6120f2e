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

mod turns;

use super::queue_pair::NONE;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_rdma_policy::palos::{
    Clock, GroupId, Label, Message, Palos, PalosOptions, QueuePairId, Rest,
};

/// What a setup says of the chunks of all lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChunkSetup {
    /// Checked when the setup is made.
    pub(crate) options: PalosOptions,
    pub(crate) clock: Clock,
    /// Every queue pair is a group of its own.
    pub(crate) per_queue_pair: bool,
}

/// What a lane needs of a context that is new to it.
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
