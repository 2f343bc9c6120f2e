//! Page movement by the kernel: limits of a tier, reclaim of the near tier, hint faults and promotion.
//!
//! Units: bytes, seconds. Method: in each step, in this order and within what its threads can move, an application
//! beyond its limit loses its coldest pages (mercury 5.5.1); reclaim frees a small part of the near tier from the pages
//! that were not visited for longest, for any owner (TPP); marked far pages that are soon touched are promoted (NUMA
//! balancing); and where an application has a limit, its hottest far pages fill it up, as our backends do. Moving costs
//! bandwidth of both tiers; a hint fault costs time of its application. Limits: no file cache, no huge pages, no shadow
//! copies. Source: Mercury 5.5.1; TPP; Linux `task_numa_work`.

use crate::host::{self, App};
use crate::pages::older;
use crate::settings::Machine;
use crate::tier::LINE;
use isolane_memory_policy::mercury::TIERS_MAX;

/// Moves pages for one step of `seconds`; returns the requests per nanosecond that this costs each tier.
pub(crate) fn step(machine: &Machine, apps: &mut [App<'_>], seconds: f64) -> [f64; TIERS_MAX] {
    let mut moves = Moves {
        machine,
        left: machine.kernel.migrate * seconds,
        moved: [0.0; TIERS_MAX],
        seconds,
    };
    moves.limit(apps);
    moves.reclaim(apps);
    moves.fault(apps);
    moves.fill(apps);
    moves.moved.map(|bytes| bytes / LINE / (seconds * 1e9))
}

struct Moves<'a> {
    machine: &'a Machine,
    /// Bytes that can still be moved in this step.
    left: f64,
    /// Bytes read from or written to each tier.
    moved: [f64; TIERS_MAX],
    seconds: f64,
}

impl Moves<'_> {
    fn count(&mut self, from: usize, to: usize, bytes: f64) {
        self.left -= bytes;
        self.moved[from] += bytes;
        self.moved[to] += bytes;
    }

    /// The next tier below `tier` with room for `app`, and how much.
    fn below(&self, apps: &[App<'_>], app: usize, tier: usize) -> Option<(usize, f64)> {
        let free = host::free(self.machine, apps);
        (tier + 1..self.machine.tiers.len())
            .map(|next| (next, free[next].min(apps[app].room(next))))
            .find(|(_, room)| *room > 0.0)
    }

    /// Applications beyond a limit lose their coldest pages there.
    fn limit(&mut self, apps: &mut [App<'_>]) {
        for index in 0..apps.len() {
            for tier in 0..self.machine.tiers.len() - 1 {
                let app = &apps[index];
                let Some(limit) = app.limits.tiers[tier].filter(|_| app.is_managed()) else {
                    continue;
                };
                let excess = app.pages.held(tier) - limit.get() as f64;
                let Some((next, room)) = self.below(apps, index, tier) else {
                    continue;
                };
                let bytes = excess.min(room).min(self.left);
                if bytes > 0.0 {
                    let app = &mut apps[index];
                    let moved = app.pages.demote(tier, next, bytes);
                    app.demoted += moved;
                    self.count(tier, next, moved);
                }
            }
        }
    }

    /// The near tier's oldest pages go farther until the part that is kept free is free.
    fn reclaim(&mut self, apps: &mut [App<'_>]) {
        let near = &self.machine.tiers[0];
        let free = host::free(self.machine, apps)[0];
        let need = (self.machine.kernel.free * near.capacity - free).min(self.left);
        if need <= 0.0 {
            return;
        }
        let mut pages = Vec::new();
        for (index, app) in apps.iter().enumerate().filter(|(_, app)| app.is_managed()) {
            for bucket in 0..app.pages.buckets.len() {
                let held = app.pages.buckets[bucket].held[0];
                if held > 0.0 {
                    let rate = app
                        .pages
                        .rate(bucket, app.visits(), self.machine.kernel.page);
                    pages.push((index, bucket, held, rate));
                }
            }
        }
        let old = |age: f64| -> f64 {
            let all = pages.iter();
            all.map(|(_, _, held, rate)| held * older(*rate, age)).sum()
        };
        let need = need.min(old(0.0));
        let (mut young, mut age) = (0.0, 1e-3);
        while old(age) > need && age < 1e9 {
            (young, age) = (age, age * 4.0);
        }
        for _ in 0..40 {
            let middle = f64::midpoint(young, age);
            match old(middle) > need {
                true => young = middle,
                false => age = middle,
            }
        }
        let all = old(young);
        if all <= 0.0 {
            return;
        }
        for (index, bucket, held, rate) in pages {
            let bytes = held * older(rate, young) * (need / all).min(1.0);
            let Some((next, room)) = self.below(apps, index, 0) else {
                continue;
            };
            let bytes = bytes.min(room);
            let app = &mut apps[index];
            app.pages.buckets[bucket].held[0] -= bytes;
            app.pages.buckets[bucket].held[next] += bytes;
            app.demoted += bytes;
            self.count(0, next, bytes);
        }
    }

    /// Hint faults on far pages, and promotion of the hot ones.
    fn fault(&mut self, apps: &mut [App<'_>]) {
        let kernel = &self.machine.kernel;
        let mut free = host::free(self.machine, apps)[0];
        for app in apps.iter_mut() {
            (app.faults, app.stalled) = (0.0, 0.0);
            let bytes = app.pages.bytes();
            if !app.is_running() || !app.access.hinted || bytes <= 0.0 {
                continue;
            }
            // A period of marking is one of the application's own processor time, and at least one of the clock.
            let cores = f64::from(app.spec.cores);
            let scan = kernel.scan * (cores * app.cpu_used()).min(1.0);
            if scan <= 0.0 {
                continue;
            }
            let round = (bytes / scan).max(1.0);
            let scanned = scan.min(bytes) * self.seconds;
            let visits = app.visits();
            let mut faults = 0.0;
            for bucket in 0..app.pages.buckets.len() {
                let rate = app.pages.rate(bucket, visits, kernel.page);
                for tier in 1..self.machine.tiers.len() {
                    let held = app.pages.buckets[bucket].held[tier];
                    if held <= 0.0 {
                        continue;
                    }
                    let marked = scanned * held / bytes;
                    faults += marked / kernel.page * (1.0 - older(rate, round));
                    if !app.is_managed() {
                        continue;
                    }
                    let hot = marked * (1.0 - older(rate, kernel.window));
                    let moved = hot.min(free).min(app.room(0)).min(self.left).min(held);
                    app.pages.buckets[bucket].held[tier] -= moved;
                    app.pages.buckets[bucket].held[0] += moved;
                    app.promoted += moved;
                    free -= moved;
                    self.left -= moved;
                    self.moved[tier] += moved;
                    self.moved[0] += moved;
                }
            }
            app.faults = faults / self.seconds;
            app.stalled = (app.faults * kernel.fault / cores).min(STALLED_MAX);
        }
    }

    /// Limits are filled with the hottest far pages, as far as the near tier has more free than reclaim keeps.
    fn fill(&mut self, apps: &mut [App<'_>]) {
        let near = &self.machine.tiers[0];
        let kept = self.machine.kernel.free * near.capacity;
        let mut free = host::free(self.machine, apps)[0] - kept;
        let mut order: Vec<usize> = (0..apps.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(apps[*index].spec.priority));
        for index in order {
            let app = &mut apps[index];
            if !app.is_running() || !app.is_managed() || app.limits.tiers[0].is_none() {
                continue;
            }
            for tier in 1..self.machine.tiers.len() {
                let bytes = app.room(0).min(free).min(self.left);
                if bytes > 0.0 {
                    let moved = app.pages.promote(tier, 0, bytes);
                    app.promoted += moved;
                    free -= moved;
                    self.count(tier, 0, moved);
                }
            }
        }
    }
}

/// An application spends at most this share of its time in hint faults: each fault waits for its own page only.
const STALLED_MAX: f64 = 0.5;
