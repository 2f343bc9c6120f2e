//! BI: bandwidth of reading on several cores at a settable part of the time.
//!
//! Method: each thread reads its own region from beginning to end, again and again, and counts bytes. A rate below the
//! whole is made by pauses: each piece of one MiB adds to a thread's pause, and the thread pauses once the sum is a
//! millisecond. Units: bytes, bytes per second, thousandths of the time. Limits: counts what programs read, not what
//! the memory bus carries (prefetches, translation). Threads are pinned to the processors that this process may use, in
//! order. Source: mercury 5.3.1 (streaming over 128 MB per core).

use super::{BandwidthSettings, region::Region};
use crate::error::MemError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    rate: AtomicU32,
    bytes: AtomicU64,
}

/// Threads that stream until this is dropped.
#[derive(Debug)]
pub struct Streams {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    far_percent: Option<f64>,
}

impl Streams {
    /// Makes the regions and starts the threads; `skip` processors are left free for others. Fails as [`Region::new`]
    /// does, and if a thread cannot be started.
    pub fn start(settings: &BandwidthSettings, skip: usize) -> Result<Self, MemError> {
        let shared = Arc::new(Shared::default());
        shared.rate.store(settings.rate, Ordering::Relaxed);
        let processors = processors();
        let mut regions = Vec::new();
        for _ in 0..settings.cores {
            let far = settings.far_percent;
            regions.push(Region::new(settings.region, &settings.nodes, far)?);
        }
        let found = regions
            .iter()
            .map(|region| region.far_percent(&settings.nodes));
        let found: Option<Vec<f64>> = found.collect();
        let far_percent = found.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64);
        let mut streams = Self {
            shared,
            threads: Vec::new(),
            far_percent,
        };
        for (place, region) in regions.into_iter().enumerate() {
            let shared = Arc::clone(&streams.shared);
            let processor = processors
                .get((place + skip) % processors.len().max(1))
                .copied();
            let thread = std::thread::Builder::new()
                .name(format!("stream-{place}"))
                .spawn(move || work(&region, &shared, processor))
                .map_err(|source| MemError::Kernel {
                    action: "start a thread that streams".to_owned(),
                    source,
                })?;
            streams.threads.push(thread);
        }
        Ok(streams)
    }

    /// Part of the time in which they read, in thousandths.
    pub fn set_rate(&self, rate: u32) {
        self.shared.rate.store(rate.min(1_000), Ordering::Relaxed);
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Part of the regions on far nodes when they were made, in percent.
    pub fn far_percent(&self) -> Option<f64> {
        self.far_percent
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message itself.
            let _ = thread.join();
        }
    }
}

fn work(region: &Region, shared: &Shared, processor: Option<usize>) {
    if let Some(processor) = processor {
        pin(processor);
    }
    let mut debt = Duration::ZERO;
    loop {
        for piece in region.words().chunks(PIECE_WORDS) {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let rate = shared.rate.load(Ordering::Relaxed).min(1_000);
            if rate == 0 {
                std::thread::sleep(PAUSE_LEAST);
                continue;
            }
            let start = Instant::now();
            std::hint::black_box(sum(piece));
            shared
                .bytes
                .fetch_add(piece.len() as u64 * 8, Ordering::Relaxed);
            debt += start.elapsed() * (1_000 - rate) / rate;
            if debt >= PAUSE_LEAST {
                let start = Instant::now();
                std::thread::sleep(debt);
                debt = debt.saturating_sub(start.elapsed());
            }
        }
    }
}

/// Eight sums side by side: the loads, not the additions, are what takes time.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 8];
    for line in words.chunks_exact(8) {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// The processors that this process may use.
pub fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Keeps the calling thread on one processor; one that is not allowed changes nothing.
pub fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // A thread that stays free measures as well, only less evenly.
    let _ = sched_setaffinity(None, &set);
}

const PIECE_WORDS: usize = (1 << 20) / 8;
/// Sleeping for less is mostly the kernel's slack.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_reads_every_word_of_whole_lines() {
        let words: Vec<u64> = (0..64).collect();
        assert_eq!(sum(&words), 63 * 64 / 2);
    }

    #[test]
    fn streams_count_and_stop() {
        let settings = BandwidthSettings {
            cores: 1,
            region: isolane_common_quantities::units::Bytes::from_mib(2),
            rate: 500,
            ..BandwidthSettings::default()
        };
        let streams = Streams::start(&settings, 0).unwrap();
        while streams.bytes() == 0 {
            std::thread::yield_now();
        }
        assert!(streams.bytes() > 0);
        drop(streams);
    }
}
