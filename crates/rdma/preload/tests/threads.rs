//! Several threads on one queue pair and one completion queue, together with the pump's thread.
//!
//! Goal: every message completes once and every byte arrives, for any thread that posts, executes or polls, also if
//! paced and unpaced requests share a completion queue. Real time; no time is asserted.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;
mod rig;

use isolane_rdma_verbs_sys::*;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::{Settings, Talk};
use rig::{Rig, Shape, address, lease, sge, work};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const POSTERS: usize = 3;
const EACH: usize = 150;
const SIZE: usize = 3_000;

struct Everywhere<T>(T);
unsafe impl<T> Sync for Everywhere<T> {}

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn nothing_is_lost_or_seen_twice_between_threads() {
    let settings = Settings {
        talk: Talk::Off,
        ..Settings::default()
    };
    let process = install(Process::new(null::originals(), settings, clock));
    let shape = Shape {
        pairs: 2,
        depth: 24,
        ..Shape::default()
    };
    // 30 MB/s: some messages find credit, most wait.
    let mut terms = lease(30_000_000, 20_000, 700);
    terms.rate_operations_per_s = 20_000;
    terms.burst_operations = 20;
    let rig = Everywhere(Rig::new(shape, &terms));
    assert!(process.start_pump());
    // The second queue pair is of the latency class.
    let latency = isolane_rdma_session::message::Class::Latency as u32;
    rig.0.region.slots[2]
        .class
        .store(latency, Ordering::Relaxed);
    let count = POSTERS * EACH * 2;
    let from: Vec<u8> = (0..count * SIZE)
        .map(|at| (at * 13 + at / 256) as u8)
        .collect();
    let to = vec![0u8; count * SIZE];
    let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (rig, from, to, seen, done, stop, next) =
            (&rig, &from, &to, &seen, &done, &stop, &next);
        for _ in 0..POSTERS {
            scope.spawn(move || {
                let rig = &{ rig }.0;
                for turn in 0..EACH * 2 {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let range = at * SIZE..(at + 1) * SIZE;
                    let mut list = [
                        sge(&from[range.start..range.start + 1_111]),
                        sge(&from[range.start + 1_111..range.end]),
                    ];
                    let remote = address(&to[range]);
                    let mut one = work(
                        at as u64,
                        IBV_WR_RDMA_WRITE,
                        &mut list,
                        remote,
                        IBV_SEND_SIGNALED,
                    );
                    let qp = rig.pairs[turn % 2].0;
                    while let Err((_, error)) = rig.post(qp, &mut one) {
                        assert_eq!(error, libc::ENOMEM);
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(move || {
            let rig = &{ rig }.0;
            while !stop.load(Ordering::Relaxed) {
                for (one, _) in &rig.pairs {
                    rig.step(*one, 7);
                }
                std::thread::yield_now();
            }
        });
        for batch in [1, 16] {
            scope.spawn(move || {
                let rig = &{ rig }.0;
                while done.load(Ordering::Relaxed) < count {
                    for wc in rig.poll(rig.send_cq, batch) {
                        assert_eq!(wc.status, IBV_WC_SUCCESS);
                        assert_eq!(wc.byte_len, SIZE as u32);
                        seen[wc.wr_id as usize].fetch_add(1, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    });
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1));
    assert!(from == to);
    let slots = &rig.0.region.slots;
    let completed: u64 = [0, 2]
        .iter()
        .map(|at| {
            slots[*at as usize]
                .completed_messages
                .load(Ordering::Relaxed)
        })
        .sum();
    assert_eq!(completed, count as u64);
    assert!(slots[0].chunks.load(Ordering::Relaxed) > 0);
    assert_eq!(
        slots[2].chunks.load(Ordering::Relaxed),
        0,
        "latency is never split"
    );
}
