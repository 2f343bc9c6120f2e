//! Contexts take turns of chunks in a lane.

use super::{Member, Piece};
use crate::rnic::lanes::Served;
use crate::rnic::queue_pair::NONE;
use crate::rnic::world::World;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_rdma_policy::palos::{Label, QueuePairId, Rest};
use isolane_rdma_scenario::model::{Class, Verb};

impl<const RECORDS: bool> World<RECORDS> {
    /// Puts a context with work into a lane; returns as [`Lanes::push`] does.
    ///
    /// [`Lanes::push`]: crate::rnic::lanes::Lanes::push
    #[inline(always)]
    pub(crate) fn wait_in_lane(
        &mut self,
        now: u64,
        host: usize,
        lane: usize,
        context: u32,
    ) -> Option<usize> {
        let lanes = &mut self.nics[host].lanes;
        if lanes.lanes[lane].chunks.is_none() {
            lanes.push(lane, context)
        } else {
            self.wait_for_chunk(now, host, lane, context)
        }
    }

    #[inline(never)]
    fn wait_for_chunk(
        &mut self,
        now: u64,
        host: usize,
        lane: usize,
        context: u32,
    ) -> Option<usize> {
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
        lanes.count(lane)
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
    pub(crate) fn take_chunk_turn(&mut self, now: u64, host: usize, lane: usize) -> (u32, Piece) {
        let chunks = self.nics[host].lanes.lanes[lane].chunks.as_mut();
        let turn = chunks.expect("the lane schedules chunks").turn(now);
        self.nics[host].turn_ready = turn.ready;
        (turn.context, self.piece(turn.context))
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

/// Work requests of one pair on the NIC at most: 1,024 of 64 B are 64 KiB of its buffer.
const FETCH_DEPTH_MAX: u64 = 1_024;
