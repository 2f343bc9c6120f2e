//! A lane between ports in memory: what a flow sent arrives in order, also while it takes one queue after another.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Queues of frames in, writes out.
struct Memory {
    queues: RefCell<Vec<VecDeque<Vec<u8>>>>,
    written: RefCell<Vec<Vec<u8>>>,
}

impl Memory {
    fn new(queues: usize) -> Self {
        Self {
            queues: RefCell::new(vec![VecDeque::new(); queues]),
            written: RefCell::default(),
        }
    }
}

impl Port for Memory {
    fn queues(&self) -> usize {
        self.queues.borrow().len()
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn read(&self, queue: usize, into: &mut [u8]) -> Result<Option<usize>, SoftNicError> {
        let frame = self.queues.borrow_mut()[queue].pop_front();
        Ok(frame.map(|frame| {
            into[..frame.len()].copy_from_slice(&frame);
            frame.len()
        }))
    }

    fn write(&self, _: usize, parts: &[IoSlice<'_>]) -> bool {
        let whole = parts.iter().flat_map(|part| part.to_vec()).collect();
        self.written.borrow_mut().push(whole);
        true
    }
}

const SEGMENT: usize = 1_000;

/// A TCP frame of flow `port` with `packets` packets from `sequence` on.
fn frame(port: u16, sequence: u32, packets: usize) -> Vec<u8> {
    let payload = packets * SEGMENT;
    let note = Note {
        flags: 1,
        segmentation: u8::from(packets > 1),
        header_bytes: 40,
        segment_bytes: if packets > 1 { SEGMENT as u16 } else { 0 },
        checksum_start: 20,
        checksum_offset: 16,
    };
    let mut bytes = note.bytes().to_vec();
    bytes.extend_from_slice(&[0x45, 0]);
    bytes.extend_from_slice(&((40 + payload) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 9]);
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 7);
    bytes
}

fn lane(queues: usize, complete_checksums: bool) -> Lane {
    Lane::new(
        queues,
        LaneOptions {
            rate: BitRate::from_gbps(1),
            discipline: Discipline::Weighted,
            interrupt: Duration::from_us(100),
            complete_checksums,
        },
    )
}

/// Flow and sequence of each packet that was written, in order.
fn arrived(port: &Memory) -> Vec<(u16, u32)> {
    let mut packets = Vec::new();
    for write in port.written.borrow().iter() {
        let frame = parse(write).expect("a frame");
        for packet in 0..frame.packets() {
            packets.push((frame.key.ports[0], frame.sequence_at(packet)));
        }
    }
    packets
}

proptest! {
    /// Frames of three flows on queues of any choice, read as the wire allows: each flow arrives whole and in order.
    #[test]
    fn a_flow_that_changes_queues_never_overtakes_itself(
        frames in prop::collection::vec((0_u16..3, 0_usize..4, 1_usize..20, 0_u64..300), 1..40),
        complete_checksums: bool,
    ) {
        let (from, to) = (Memory::new(4), Memory::new(1));
        let mut lane = lane(4, complete_checksums);
        let mut next = [0_u32; 3];
        let mut last_queue = [None::<usize>; 3];
        let mut now = Instant::ZERO;
        for (flow, queue, packets, pause_us) in &frames {
            let index = usize::from(*flow);
            // The kernel lets a flow change queues when its last frame was read: not while one waits in a queue.
            let waits = last_queue[index].is_some_and(|last| !from.queues.borrow()[last].is_empty());
            let queue = if waits { last_queue[index].unwrap() } else { *queue };
            last_queue[index] = Some(queue);
            from.queues.borrow_mut()[queue].push_back(frame(*flow, next[index], *packets));
            next[index] += (*packets * SEGMENT) as u32;
            now += Duration::from_us(*pause_us);
            lane.step(&from, now, &mut |_| {}).unwrap();
            if lane.is_due(now) {
                lane.interrupt(&to, now, |_| 0);
            }
        }
        now += Duration::from_ms(15);
        lane.step(&from, now, &mut |_| {}).unwrap();
        lane.interrupt(&to, now, |_| 0);
        let got = arrived(&to);
        for flow in 0..3 {
            let of_flow: Vec<u32> = got.iter().filter(|(port, _)| *port == flow).map(|(_, at)| *at).collect();
            let want: Vec<u32> = (0..next[usize::from(flow)]).step_by(SEGMENT).collect();
            prop_assert_eq!(of_flow, want, "flow {}", flow);
        }
        prop_assert!(!lane.is_busy());
    }
}

#[test]
fn garbage_is_counted_and_dropped() {
    let (from, to) = (Memory::new(1), Memory::new(1));
    let mut lane = lane(1, false);
    from.queues.borrow_mut()[0].extend([vec![1; 5], vec![0xff; 300], frame(1, 0, 1)]);
    lane.step(&from, Instant::ZERO, &mut |_| {}).unwrap();
    lane.interrupt(&to, Instant::ZERO, |_| 0);
    assert_eq!(lane.count().malformed, 2);
    assert_eq!(arrived(&to), [(1, 0)]);
}

#[test]
fn an_interrupt_comes_at_once_after_a_pause_and_then_keeps_its_distance() {
    let (from, to) = (Memory::new(1), Memory::new(1));
    let mut lane = lane(1, false);
    let at = |us: u64| Instant::ZERO + Duration::from_us(us);
    let mut due = |us: u64, sequence: u32| {
        from.queues.borrow_mut()[0].push_back(frame(1, sequence, 1));
        lane.step(&from, at(us), &mut |_| {}).unwrap();
        let is_due = lane.is_due(at(us));
        if is_due {
            lane.interrupt(&to, at(us), |_| 0);
        }
        is_due
    };
    assert!(due(1_000, 0));
    assert!(!due(1_050, 1_000));
    assert!(due(1_100, 2_000));
}
