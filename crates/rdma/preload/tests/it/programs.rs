//! Random programs: the application sees the same with and without the shim.
//!
//! Goal: equal memory on both sides, and equal completions (identifier, status, opcode, bytes, immediate data, order)
//! of both ends. Method: the same program runs over the null provider twice. Between its posts the provider executes
//! some work requests, the application polls some completions, time passes, the pump runs, the lease changes, the
//! daemon ends. A post on a full queue waits until the application has polled. Sizes are scaled: chunks of 256 to 4,096
//! bytes represent kilobytes, messages have up to 64 KiB; a few programs use messages of up to 8 MiB.

use crate::null;
use crate::rig::{self, Calls, Rig, Shape, address, lease, pass_time, serial, sge};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{METER_ACTIVE, METER_RELEASED};
use isolane_rdma_verbs_sys::*;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

#[derive(Clone, Debug)]
struct Message {
    opcode: ibv_wr_opcode,
    pieces: Vec<u32>,
    flags: u32,
    at: f64,
    pair: usize,
}

#[derive(Clone, Debug)]
enum Action {
    Post(Vec<Message>),
    Execute(usize, usize),
    Poll(usize),
    Pump,
    Time(u64),
    Lease(u64, u64, u32),
    Release(bool),
    Class(u32),
    Death,
}

#[derive(Clone, Debug)]
struct Program {
    actions: Vec<Action>,
    depth: u32,
    pairs: usize,
    signal_all: bool,
    signal_every: u32,
    calls: Calls,
    siw: bool,
    rate: u64,
    chunk: u32,
    scale: u32,
    /// Message of pair 0 that hits forbidden memory, and the position in it.
    error: Option<(usize, f64)>,
}

const REMOTE: usize = 1 << 17;

fn message(pairs: usize, scale: u32) -> impl Strategy<Value = Message> {
    let opcodes = prop_oneof![
        4 => Just(IBV_WR_RDMA_WRITE),
        2 => Just(IBV_WR_RDMA_READ),
        1 => Just(IBV_WR_RDMA_WRITE_WITH_IMM),
        1 => Just(IBV_WR_SEND),
        1 => Just(IBV_WR_SEND_WITH_IMM),
        1 => Just(IBV_WR_ATOMIC_FETCH_AND_ADD),
    ];
    let sizes = prop_oneof![Just(0u32), 1..100u32, 1..3_000u32, 1..16_000u32];
    let pieces = proptest::collection::vec(sizes, 0..5);
    (opcodes, pieces, 0u32..8, 0f64..1.0, 0..pairs).prop_map(
        move |(opcode, mut pieces, bits, at, pair)| {
            let mut flags = 0;
            flags |= if bits & 1 != 0 { IBV_SEND_FENCE } else { 0 };
            flags |= if bits & 2 != 0 { IBV_SEND_SOLICITED } else { 0 };
            pieces.iter_mut().for_each(|piece| *piece *= scale);
            if opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
                pieces = vec![8];
            } else if bits & 4 != 0 && opcode != IBV_WR_RDMA_READ {
                pieces.iter_mut().for_each(|piece| *piece %= 16);
                flags |= IBV_SEND_INLINE;
            }
            Message {
                opcode,
                pieces,
                flags,
                at,
                pair,
            }
        },
    )
}

fn action(pairs: usize, scale: u32) -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => proptest::collection::vec(message(pairs, scale), 1..5).prop_map(Action::Post),
        4 => (0..pairs, 1..200usize).prop_map(|(pair, count)| Action::Execute(pair, count)),
        3 => (1..20usize).prop_map(Action::Poll),
        3 => Just(Action::Pump),
        3 => (0..30_000_000u64).prop_map(Action::Time),
        1 => (1..50_000_000u64, 1..20_000u64, 0..5_000u32)
            .prop_map(|(rate, burst, chunk)| Action::Lease(rate, burst, chunk)),
        1 => any::<bool>().prop_map(Action::Release),
        1 => (0u32..5).prop_map(Action::Class),
    ]
}

fn calls() -> impl Strategy<Value = Calls> {
    prop_oneof![Just(Calls::Plain), Just(Calls::Extended)]
}

fn program(scale: u32, length: usize) -> impl Strategy<Value = Program> {
    (1usize..4).prop_flat_map(move |pairs| {
        let actions = proptest::collection::vec(action(pairs, scale), 1..length);
        let error = proptest::option::weighted(0.3, (0usize..20, 0f64..1.0));
        let death = proptest::option::weighted(0.2, any::<prop::sample::Index>());
        let numbers = (
            1u32..24,
            (any::<bool>(), 1u32..6, calls(), any::<bool>()),
            100_000u64..100_000_000,
            256u32..4_096,
        );
        (actions, error, death, numbers).prop_map(
            move |(
                mut actions,
                error,
                death,
                (depth, (signal_all, every, calls, siw), rate, chunk),
            )| {
                if let Some(death) = death {
                    actions.insert(death.index(actions.len()), Action::Death);
                }
                Program {
                    actions,
                    depth,
                    pairs,
                    signal_all,
                    signal_every: every.min(depth),
                    calls,
                    siw,
                    rate,
                    chunk: chunk * scale,
                    scale,
                    error,
                }
            },
        )
    })
}

type Line = (u64, ibv_wc_status, ibv_wc_opcode, u32, u32, u32);

#[derive(Debug, Default, PartialEq)]
struct Seen {
    sends: Vec<Vec<Line>>,
    receives: Vec<Vec<Line>>,
    local: Vec<Vec<u8>>,
    remote: Vec<Vec<u8>>,
    landed: Vec<Vec<u8>>,
}

struct Side {
    /// Memory that WRITEs and SENDs read, and inline data; never written.
    source: Vec<u8>,
    /// Memory that READs and atomics of the pair write.
    local: Vec<u8>,
    remote: Vec<u8>,
    /// Memory that SENDs write.
    landed: Vec<u8>,
    /// Receives in a row, each with its own place.
    next_local: usize,
}

struct Run<'a> {
    rig: Rig,
    program: &'a Program,
    sides: Vec<Side>,
    seen: Seen,
    count: u64,
    per_pair: Vec<u32>,
    excused: Option<(usize, usize)>,
}

fn line(wc: &ibv_wc) -> Line {
    match wc.status {
        IBV_WC_SUCCESS => (
            wc.wr_id,
            wc.status,
            wc.opcode,
            wc.byte_len,
            wc.imm_data,
            wc.wc_flags,
        ),
        status => (wc.wr_id, status, 0, 0, 0, 0),
    }
}

impl<'a> Run<'a> {
    fn new(program: &'a Program, shimmed: bool) -> Self {
        let shape = Shape {
            shimmed,
            depth: program.depth,
            pairs: program.pairs,
            signal_all: program.signal_all,
            extended: false,
            cqe: 2 * (program.depth * program.pairs as u32) as i32,
            events: true,
            kind: IBV_QPT_RC,
            calls: program.calls,
        };
        let lease = lease(program.rate, u64::from(program.chunk) * 3, program.chunk);
        let rig = Rig::new(shape, &lease);
        if program.siw {
            rig.pairs.iter().for_each(|(qp, _)| null::like_siw(*qp));
        }
        let messages: usize = program
            .actions
            .iter()
            .map(|action| match action {
                Action::Post(list) => list.len(),
                _ => 0,
            })
            .sum();
        let largest = 64_000 * program.scale as usize;
        let remote = REMOTE * program.scale as usize;
        let sides: Vec<Side> = (0..program.pairs)
            .map(|pair| Side {
                source: (0..largest)
                    .map(|at| (at * 31 + at / 255 + pair) as u8)
                    .collect(),
                local: vec![0; largest * 2],
                remote: (0..remote).map(|at| (at * 17 + pair) as u8).collect(),
                landed: vec![0; largest * 2],
                next_local: 0,
            })
            .collect();
        for (side, (_, two)) in sides.iter().zip(&rig.pairs) {
            for wr_id in 0..messages as u64 {
                let mut list = [sge(&side.landed)];
                let mut receive = ibv_recv_wr {
                    wr_id: 1_000_000 + wr_id,
                    sg_list: list.as_mut_ptr(),
                    num_sge: 1,
                    ..Default::default()
                };
                let mut bad = std::ptr::null_mut();
                assert_eq!(
                    unsafe { ibv_post_recv(*two, &raw mut receive, &raw mut bad) },
                    0
                );
            }
        }
        let pairs = program.pairs;
        Self {
            rig,
            program,
            sides,
            seen: Seen {
                sends: vec![Vec::new(); pairs],
                receives: vec![Vec::new(); pairs],
                ..Seen::default()
            },
            count: 0,
            per_pair: vec![0; pairs],
            excused: None,
        }
    }

    fn poll(&mut self, batch: usize) {
        for (cq, sends) in [(self.rig.send_cq, true), (self.rig.recv_cq, false)] {
            for wc in self.rig.poll(cq, batch) {
                let number = |qp: *mut ibv_qp| unsafe { (*qp).qp_num };
                let pair =
                    self.rig.pairs.iter().position(|(one, two)| {
                        wc.qp_num == number(if sends { *one } else { *two })
                    });
                let pair = pair.expect("a completion of one of ours");
                let list = if sends {
                    &mut self.seen.sends
                } else {
                    &mut self.seen.receives
                };
                list[pair].push(line(&wc));
            }
        }
    }

    fn post(&mut self, messages: &[Message]) {
        let mut by_pair: Vec<Vec<&Message>> = vec![Vec::new(); self.program.pairs];
        for message in messages {
            by_pair[message.pair].push(message);
        }
        for (pair, messages) in by_pair.into_iter().enumerate() {
            if !messages.is_empty() {
                self.post_list(pair, &messages);
            }
        }
    }

    fn post_list(&mut self, pair: usize, messages: &[&Message]) {
        let qp = self.rig.pairs[pair].0;
        let mut lists: Vec<Vec<ibv_sge>> = Vec::new();
        let mut works: Vec<ibv_send_wr> = Vec::new();
        for message in messages {
            let side = &mut self.sides[pair];
            let total: usize = message.pieces.iter().map(|piece| *piece as usize).sum();
            let reads = matches!(
                message.opcode,
                IBV_WR_RDMA_READ | IBV_WR_ATOMIC_FETCH_AND_ADD
            );
            let memory = match reads {
                true => {
                    if side.next_local + total > side.local.len() {
                        side.next_local = 0;
                    }
                    side.next_local += total;
                    address(&side.local) + (side.next_local - total) as u64
                }
                false => address(&side.source) + (total % 13) as u64,
            };
            let memory = if memory + total as u64 > address(&side.source) + side.source.len() as u64
                && !reads
            {
                address(&side.source)
            } else {
                memory
            };
            let mut at = memory;
            let list = message
                .pieces
                .iter()
                .map(|piece| {
                    at += u64::from(*piece);
                    ibv_sge {
                        addr: at - u64::from(*piece),
                        length: *piece,
                        lkey: 1,
                    }
                })
                .collect();
            lists.push(list);
            let room = side.remote.len() - total.max(8);
            let offset = (room as f64 * message.at) as usize;
            let remote = address(&side.remote) + offset as u64;
            let index = self.per_pair[pair];
            self.per_pair[pair] += 1;
            self.count += 1;
            if let Some((which, part)) = self.program.error
                && pair == 0
                && index as usize == which
                && matches!(
                    message.opcode,
                    IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ | IBV_WR_RDMA_WRITE_WITH_IMM
                )
                && total > 0
                && self.excused.is_none()
            {
                // A separate key: only this message fails, even if others touch the same memory.
                let bad = (total as f64 * part) as u64;
                null::forbid_for(1_000_000 + u64::from(index) as u32, remote + bad, 1);
                self.excused = Some((offset, total));
            }
            let signalled = (index + 1).is_multiple_of(self.program.signal_every);
            let mut work = ibv_send_wr {
                wr_id: self.count,
                opcode: message.opcode,
                send_flags: message.flags | if signalled { IBV_SEND_SIGNALED } else { 0 },
                num_sge: message.pieces.len() as i32,
                imm_data: index,
                ..Default::default()
            };
            let rkey = 1_000_000 + index;
            match message.opcode {
                IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    work.wr.atomic = ibv_send_wr_atomic {
                        remote_addr: remote,
                        compare_add: self.count,
                        swap: 0,
                        rkey,
                    };
                }
                _ => {
                    work.wr.rdma = ibv_send_wr_rdma {
                        remote_addr: remote,
                        rkey,
                    }
                }
            }
            works.push(work);
        }
        for (work, list) in works.iter_mut().zip(&mut lists) {
            work.sg_list = list.as_mut_ptr();
        }
        let (mut first, mut end) = (0, works.len());
        while first < works.len() {
            for at in first..end {
                works[at].next = match at + 1 < end {
                    true => &raw mut works[at + 1],
                    false => std::ptr::null_mut(),
                };
            }
            match self.rig.post(qp, &mut works[first]) {
                Ok(()) => (first, end) = (end, works.len()),
                Err((bad, libc::ENOMEM)) => {
                    // A batch is posted whole or not at all, and may be longer than the queue.
                    if self.program.calls == Calls::Extended {
                        end = first + 1;
                    }
                    first = (bad - works.as_ptr().addr()) / size_of::<ibv_send_wr>();
                    pass_time(10_000_000);
                    self.rig.pump();
                    self.rig.step(qp, 1_000);
                    self.poll(4);
                }
                Err((_, error)) => panic!("errno {error}"),
            }
        }
    }

    fn run(mut self) -> Seen {
        let program = self.program;
        for action in &program.actions {
            match action {
                Action::Post(messages) => self.post(messages),
                Action::Execute(pair, count) => {
                    self.rig.step(self.rig.pairs[*pair].0, *count);
                }
                Action::Poll(batch) => self.poll(*batch),
                Action::Pump => {
                    self.rig.pump();
                }
                Action::Time(ns) => pass_time(*ns),
                Action::Lease(rate, burst, chunk) => {
                    for meter in &self.rig.region.meters[..2] {
                        meter.grant(&lease(*rate, *burst, *chunk * program.scale));
                    }
                }
                Action::Release(release) => {
                    let flag = if *release { METER_RELEASED } else { 0 };
                    for meter in &self.rig.region.meters[..2] {
                        meter.flags.store(METER_ACTIVE | flag, Ordering::Relaxed);
                    }
                }
                Action::Class(class) => {
                    let class = Class::from_number(*class).map_or(77, |class| class as u32);
                    for slot in &self.rig.region.slots[..8] {
                        slot.class.store(class, Ordering::Relaxed);
                    }
                }
                Action::Death if self.rig.shape.shimmed => rig::process().release("death"),
                Action::Death => {}
            }
        }
        loop {
            let executed = self.rig.settle();
            let before: usize = self.seen.sends.iter().map(Vec::len).sum();
            self.poll(7);
            let after: usize = self.seen.sends.iter().map(Vec::len).sum();
            if executed == 0 && before == after {
                break;
            }
        }
        let slot_messages: u64 = self.rig.region.slots[..8]
            .iter()
            .map(|slot| slot.posted_messages.load(Ordering::Relaxed))
            .sum();
        let died = program
            .actions
            .iter()
            .any(|action| matches!(action, Action::Death));
        if self.rig.shape.shimmed && !died {
            assert_eq!(slot_messages, self.count, "every message is counted once");
            assert_eq!(
                self.rig.region.meters[0]
                    .waiting_since_ns
                    .load(Ordering::Relaxed),
                0
            );
        }
        for (pair, mut side) in self.sides.into_iter().enumerate() {
            if pair == 0
                && let Some((offset, total)) = self.excused
            {
                side.remote[offset..offset + total].fill(0);
            }
            self.seen.local.push(side.local);
            self.seen.remote.push(side.remote);
            self.seen.landed.push(side.landed);
        }
        self.seen
    }
}

fn check(program: &Program) -> Result<(), TestCaseError> {
    let _serial = serial();
    let mut without = Run::new(program, false).run();
    null::allow_all();
    let mut with = Run::new(program, true).run();
    null::allow_all();
    if program.error.is_some() {
        // The failed READ may have written a part of its message.
        without.local[0].clear();
        with.local[0].clear();
    }
    for pair in 0..program.pairs {
        prop_assert_eq!(
            &without.sends[pair],
            &with.sends[pair],
            "sends of pair {}",
            pair
        );
        prop_assert_eq!(
            &without.receives[pair],
            &with.receives[pair],
            "receives of pair {}",
            pair
        );
        prop_assert!(
            without.local[pair] == with.local[pair],
            "local memory of pair {}",
            pair
        );
        prop_assert!(
            without.remote[pair] == with.remote[pair],
            "remote memory of pair {}",
            pair
        );
        prop_assert!(
            without.landed[pair] == with.landed[pair],
            "landed memory of pair {}",
            pair
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn the_application_sees_what_it_would_see_without_us(program in program(1, 60)) {
        check(&program)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn so_it_is_with_messages_of_megabytes(program in program(128, 14)) {
        check(&program)?;
    }
}
