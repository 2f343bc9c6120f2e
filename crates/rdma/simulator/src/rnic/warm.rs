//! Caches of addresses as seconds of traffic leave them.
//!
//! Problem: a run of some hundred microseconds that begins with empty caches sees the first access to each region and page as
//! a miss, which real experiments of 20 s do not. Method: where a profile says what a translation entry covers, a run
//! begins with the entries that its workloads use at random: all of them where they fit, otherwise as many draws of each kind as
//! fill the cache twice over, since accesses are uniform. Limits: workloads whose accesses are in turn use few pages and
//! begin cold; tenants that start later are as warm as the others.

use super::sizes::{PAGES_PER_REGION_MAX, REMOTE_END};
use super::world::World;
use isolane_common_quantities::rng::Stream;

/// What one end of a process uses at random.
struct Used {
    host: usize,
    owner: u16,
    /// First region in the key space.
    base: u64,
    /// The key space of this end.
    end: u64,
    regions: u64,
    /// Translation entries of one region.
    entries: u64,
}

impl<const RECORDS: bool> World<RECORDS> {
    /// See the module.
    pub(crate) fn warm(&mut self, seed: u64) {
        let shift = self.device.micro.translation_shift;
        if shift == 0 {
            return;
        }
        let mut stream = Stream::named(seed, "warm");
        let used = self.used_at_random(shift);
        for host in 0..self.nics.len() {
            let here: Vec<&Used> = used.iter().filter(|used| used.host == host).collect();
            let nic = &mut self.nics[host];
            let regions = |used: &Used| used.regions;
            fill(
                &here,
                self.device.protections,
                regions,
                &mut stream,
                |used, index| {
                    let key = used.base + index + used.end;
                    nic.protections.insert(key, used.owner);
                },
            );
            let entries = |used: &Used| used.regions * used.entries;
            fill(
                &here,
                self.device.translations,
                entries,
                &mut stream,
                |used, index| {
                    let (region, entry) = (index / used.entries, index % used.entries);
                    let first = (used.base + region) * PAGES_PER_REGION_MAX + used.end;
                    nic.translations
                        .insert((first >> shift) + entry, used.owner);
                },
            );
        }
    }

    /// What both ends of every process use, in order.
    fn used_at_random(&self, shift: u32) -> Vec<Used> {
        let mut used = Vec::new();
        let mut last = None;
        for pair in &self.pairs {
            let process = &self.processes[pair.process as usize];
            if !process.random_access || last == Some(pair.process) {
                continue;
            }
            last = Some(pair.process);
            for (host, end) in [(pair.host, 0), (pair.peer, REMOTE_END)] {
                used.push(Used {
                    host: usize::from(host),
                    owner: pair.tenant,
                    base: pair.region_base,
                    end,
                    regions: process.regions,
                    entries: process.pages_per_region.div_ceil(1 << shift),
                });
            }
        }
        used
    }
}

/// Calls `insert` with what `used` has, `count` of each: all of it where it is no more than `room`, random ones otherwise.
fn fill(
    used: &[&Used],
    room: usize,
    count: impl Fn(&Used) -> u64,
    stream: &mut Stream,
    mut insert: impl FnMut(&Used, u64),
) {
    let all: u64 = used.iter().map(|used| count(used)).sum();
    if all <= room as u64 {
        for used in used {
            (0..count(used)).for_each(|index| insert(used, index));
        }
        return;
    }
    for draw in 0..2 * room {
        let used = used[draw % used.len()];
        insert(used, stream.below(count(used)));
    }
}
