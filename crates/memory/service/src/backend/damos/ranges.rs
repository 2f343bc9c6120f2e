//! The physical addresses of an application's pages, so DAMON monitors nothing else.
//!
//! Problem: a scheme's quota is charged for every page of the regions that it tries, also for free pages and those of
//! others, so on a mostly foreign machine a limit would be reached slowly or overshot. Method: `/proc/PID/pagemap`
//! gives the frames of the application's processes; they are counted by chunks of [`CHUNK_BYTES`], neighbouring chunks
//! joined, and the smallest gaps filled until [`RUNS_MAX`] ranges are left. Address filters leave out the memory
//! between them.
//!
//! Units: bytes. Limits: file pages that no process maps are not seen; a picture a few seconds old misses what came since;
//! above [`PAGES_MAX`] pages there is no picture and the whole tier is watched. Needs CAP_SYS_ADMIN for frame numbers.
//! Source: the kernel's documentation of pagemap.

use crate::backend::move_pages::mappings;
use crate::host::MemoryHost;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The grain of the picture.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// Ranges of one application: each gap between them is a filter.
pub const RUNS_MAX: usize = 12;

/// Pages of address space that one picture looks at: 64 GiB.
pub const PAGES_MAX: u64 = 1 << 24;

const PAGE_BYTES: u64 = 4096;
const PRESENT: u64 = 1 << 63;
/// The frame number of a pagemap entry.
const FRAME: u64 = (1 << 55) - 1;
/// Entries per read.
const BATCH: u64 = 4096;

/// The ranges that hold pages of these processes, in order; none where that is not known.
pub fn runs(host: &MemoryHost, processes: &[u32]) -> Option<Vec<(u64, u64)>> {
    let mut chunks = BTreeSet::new();
    let mut left = PAGES_MAX;
    for process in processes {
        let Some(maps) = host.root.text(&format!("/proc/{process}/maps")) else {
            continue;
        };
        let Ok(pagemap) = File::open(host.root.path(&format!("/proc/{process}/pagemap"))) else {
            continue;
        };
        for (first, last) in mappings(&maps) {
            left = left.checked_sub((last - first) / PAGE_BYTES)?;
            let mut address = first;
            while address < last {
                let count = ((last - address) / PAGE_BYTES).clamp(1, BATCH);
                frames(&pagemap, address, count, &mut chunks);
                address += count * PAGE_BYTES;
            }
        }
    }
    // Without the capability every frame reads as zero.
    chunks.remove(&0);
    let mut found: Vec<(u64, u64)> = Vec::new();
    for chunk in chunks {
        let start = chunk * CHUNK_BYTES;
        match found.last_mut() {
            Some((_, end)) if *end == start => *end += CHUNK_BYTES,
            _ => found.push((start, start + CHUNK_BYTES)),
        }
    }
    (!found.is_empty()).then(|| joined(found))
}

fn frames(pagemap: &File, address: u64, count: u64, chunks: &mut BTreeSet<u64>) {
    let mut bytes = vec![0_u8; usize::try_from(count * 8).unwrap_or(0)];
    let read = pagemap
        .read_at(&mut bytes, address / PAGE_BYTES * 8)
        .unwrap_or(0);
    for entry in bytes[..read].chunks_exact(8) {
        let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
        if entry & PRESENT != 0 {
            chunks.insert((entry & FRAME) * PAGE_BYTES / CHUNK_BYTES);
        }
    }
}

/// Fills the smallest gaps until few enough ranges are left.
fn joined(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    if runs.len() <= RUNS_MAX {
        return runs;
    }
    let mut gaps: Vec<(u64, usize)> = runs
        .windows(2)
        .enumerate()
        .map(|(index, pair)| (pair[1].0 - pair[0].1, index))
        .collect();
    gaps.sort_unstable();
    let fill: BTreeSet<usize> = gaps[..runs.len() - RUNS_MAX]
        .iter()
        .map(|(_, index)| *index)
        .collect();
    let mut found: Vec<(u64, u64)> = Vec::with_capacity(RUNS_MAX);
    for (index, run) in runs.drain(..).enumerate() {
        match found.last_mut() {
            Some((_, end)) if index > 0 && fill.contains(&(index - 1)) => *end = run.1,
            _ => found.push(run),
        }
    }
    found
}

/// What to leave out so that only `keep` within `within` is left of `all`, in order. Each is a list of disjoint ranges in order.
pub fn left_out(
    keep: Option<&[(u64, u64)]>,
    within: &[(u64, u64)],
    all: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    let whole = [(0, u64::MAX)];
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for run in keep.unwrap_or(&whole) {
        for range in within {
            let both = (run.0.max(range.0), run.1.min(range.1));
            if both.0 < both.1 {
                kept.push(both);
            }
        }
    }
    kept.sort_unstable();
    let end = all.iter().map(|range| range.1).max().unwrap_or(0);
    let mut found = Vec::new();
    let mut from = all.iter().map(|range| range.0).min().unwrap_or(0);
    for (start, stop) in kept {
        if from < start {
            found.push((from, start));
        }
        from = from.max(stop);
    }
    if from < end {
        found.push((from, end));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn frames_become_ranges_of_chunks() {
        let tree = Tree::two_tiers();
        tree.write("/proc/7/maps", "00000000-00004000 rw-p 00000000 00:00 0\n");
        // Frames at 10 MiB, 10 MiB + 4 KiB and 40 MiB, and one page that is not there.
        let entries = [PRESENT | 2560, PRESENT | 2561, PRESENT | 10_240, 77];
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.to_ne_bytes())
            .collect();
        tree.write_bytes("/proc/7/pagemap", &bytes);
        let found = runs(&tree.host(), &[7, 8]).unwrap();
        assert_eq!(found, [(10 * MIB, 12 * MIB), (40 * MIB, 42 * MIB)]);
    }

    #[test]
    fn hidden_frames_give_no_picture() {
        let tree = Tree::two_tiers();
        tree.write("/proc/7/maps", "00000000-00001000 rw-p 00000000 00:00 0\n");
        tree.write_bytes("/proc/7/pagemap", &PRESENT.to_ne_bytes());
        assert_eq!(runs(&tree.host(), &[7]), None);
    }

    #[test]
    fn everything_but_the_kept_is_left_out() {
        let all = [(0, 100), (100, 300)];
        assert_eq!(left_out(None, &all[..1], &all), [(100, 300)]);
        assert_eq!(
            left_out(Some(&[(10, 20), (90, 120)]), &all[..1], &all),
            [(0, 10), (20, 90), (100, 300)]
        );
        assert_eq!(left_out(Some(&[(150, 160)]), &all[..1], &all), [(0, 300)]);
    }

    proptest! {
        /// Goal: joining keeps every chunk and leaves few ranges. Method: random chunks.
        #[test]
        fn joining_loses_nothing(chunks in prop::collection::btree_set(0_u64..500, 1..120)) {
            let runs: Vec<(u64, u64)> = chunks.iter().map(|chunk| (chunk * 10, chunk * 10 + 5)).collect();
            let found = joined(runs.clone());
            prop_assert!(found.len() <= RUNS_MAX.max(1));
            for run in &runs {
                prop_assert!(found.iter().any(|range| range.0 <= run.0 && run.1 <= range.1));
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
