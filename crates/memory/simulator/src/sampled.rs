//! Page movement by policies that sample requests: Memtis, and Colloid above it.
//!
//! Units: bytes, seconds, nanoseconds. Method: once in [`memtis::PERIOD`] the pages' hotness grows by what was sampled,
//! the policy reads it and plans; in each step a part of the plan is carried out, within what the kernel's threads can
//! move. Pages of one bin move in no particular order, so a part of each bucket moves. Colloid reads occupancy and rate
//! of the tiers in each step, from the balance; the wait for a request slot is before its counters. Limits: sampling
//! takes no time of an application, and there are no hint faults. Applications whose pages are interleaved are not
//! sampled. Source: see the policies.

use crate::balance::Balance;
use crate::heat::Heat;
use crate::host::{self, App};
use crate::settings::Machine;
use crate::tier::LINE;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_memory_policy::colloid::{Colloid, HotPages, Load};
use isolane_memory_policy::memtis::{self, BINS, Due, Histogram, Memtis, Plan};
use isolane_memory_policy::mercury::TIERS_MAX;
use std::ops::Range;

/// The policy, what it has sampled, and what is left of its plan.
pub(crate) struct Sampled {
    memtis: Memtis,
    colloid: Option<Colloid>,
    /// Of each application.
    heat: Vec<Heat>,
    plan: Plan,
    since: Duration,
}

impl Sampled {
    /// Memtis for `machine`; Colloid above it if `balances`.
    pub(crate) fn new(machine: &Machine, apps: &[App<'_>], balances: bool) -> Self {
        let [near, far] =
            [0, 1].map(|tier: usize| Duration::from_ns_f64(machine.tiers[tier].latency));
        let colloid =
            balances.then(|| Colloid::new(near, far).expect("a tier's latency is at least 1 ns"));
        let heat = apps.iter().map(|app| Heat::new(app.pages.buckets.len()));
        Self {
            memtis: Memtis::new(Bytes::new(machine.tiers[0].capacity as u64)),
            colloid,
            heat: heat.collect(),
            plan: Plan::default(),
            since: Duration::ZERO,
        }
    }

    /// Moves pages for one step; returns the requests per nanosecond that this costs each tier.
    pub(crate) fn step(
        &mut self,
        machine: &Machine,
        apps: &mut [App<'_>],
        balance: &Balance,
        step: Duration,
    ) -> [f64; TIERS_MAX] {
        self.observe(balance, step);
        let fresh = self.memtis.fresh();
        for (heat, app) in self.heat.iter_mut().zip(apps.iter()) {
            heat.follow(&app.pages, fresh);
        }
        self.since += step;
        if self.since >= memtis::PERIOD {
            self.sample(machine, apps);
            self.plan(machine, apps);
            self.since = Duration::ZERO;
        }
        let seconds = step.as_secs_f64();
        let moved = self.carry_out(machine, apps, machine.kernel.migrate * seconds);
        moved.map(|bytes| bytes / LINE / (seconds * 1e9))
    }

    fn observe(&mut self, balance: &Balance, step: Duration) {
        let Some(colloid) = &mut self.colloid else {
            return;
        };
        let tiers = balance.rate.iter().zip(&balance.response);
        let mut loads = tiers.map(|(rate, response)| Load {
            occupancy: rate * response,
            rate: *rate,
        });
        let Some(near) = loads.next() else {
            return;
        };
        let far = loads.fold(Load::default(), |sum, one| Load {
            occupancy: sum.occupancy + one.occupancy,
            rate: sum.rate + one.rate,
        });
        colloid.observe(step, near, far);
    }

    /// Samples of the time since the last plan, at the rates of the last step.
    fn sample(&mut self, machine: &Machine, apps: &[App<'_>]) {
        let sampled = || apps.iter().enumerate().filter(|(_, app)| is_sampled(app));
        let requests: f64 = sampled().map(|(_, app)| app.rate * 1e9).sum();
        let part = self.since.as_secs_f64() / memtis::period(requests);
        let others = apps.iter().filter(|app| !is_sampled(app));
        let near = machine.tiers[0].capacity - others.map(|app| app.pages.held(0)).sum::<f64>();
        self.memtis.resize(Bytes::new(near as u64));
        for (index, app) in sampled() {
            for (place, bucket) in app.pages.buckets.iter().enumerate() {
                let pages = bucket.bytes() / machine.kernel.page;
                if pages > 0.0 {
                    let samples = app.rate * 1e9 * bucket.visits * part;
                    self.heat[index].sample(place, samples / pages);
                }
            }
        }
        let used: f64 = sampled().map(|(_, app)| app.pages.bytes()).sum();
        let due = self
            .memtis
            .sampled(requests * part, Bytes::new(used as u64));
        if due == Due::Cool {
            self.heat.iter_mut().for_each(Heat::cool);
        }
        if due != Due::Nothing {
            let all = self.histogram(apps, 0..machine.tiers.len());
            self.memtis.adapt(&all);
        }
    }

    fn plan(&mut self, machine: &Machine, apps: &[App<'_>]) {
        let far_tiers = 1..machine.tiers.len();
        let (near, far) = (
            self.histogram(apps, 0..1),
            self.histogram(apps, far_tiers.clone()),
        );
        let hot = self.memtis.hot();
        let plan = self.memtis.plan(&near, &far);
        let all = self.requests(apps, 0..machine.tiers.len(), 0);
        let hot_pages = |pages: &Histogram, tiers| HotPages {
            bytes: pages[hot..].iter().copied().sum(),
            share: self.requests(apps, tiers, hot) / all.max(f64::MIN_POSITIVE),
        };
        let (near, far) = (hot_pages(&near, 0..1), hot_pages(&far, far_tiers));
        self.plan = match &mut self.colloid {
            Some(colloid) => colloid.bound(plan, near, far, memtis::PERIOD),
            None => plan,
        };
    }

    /// Carries out what it can of the plan with `most` bytes of moves; returns the bytes moved from or to each tier.
    fn carry_out(
        &mut self,
        machine: &Machine,
        apps: &mut [App<'_>],
        most: f64,
    ) -> [f64; TIERS_MAX] {
        let mut moved = [0.0; TIERS_MAX];
        let (hot, cold) = (self.memtis.hot(), self.plan.cold);
        let mut left = most;
        let far = || 1..machine.tiers.len();
        for (down, bins) in [(true, 0..cold), (true, hot..BINS), (false, hot..BINS)] {
            for tier in far() {
                let (from, to) = if down { (0, tier) } else { (tier, 0) };
                let planned = match (down, bins.start == 0) {
                    (true, true) => &mut self.plan.demote,
                    (true, false) => &mut self.plan.demote_hot,
                    (false, _) => &mut self.plan.promote,
                };
                let room = host::free(machine, apps)[to];
                let bytes = (planned.get() as f64).min(left).min(room);
                let done = shift(&mut self.heat, apps, (from, to), &bins, bytes);
                *planned = planned.saturating_sub(Bytes::new(done as u64));
                left -= done;
                moved[from] += done;
                moved[to] += done;
            }
        }
        moved
    }

    /// Bytes of sampled pages in `tiers`, by bin.
    fn histogram(&self, apps: &[App<'_>], tiers: Range<usize>) -> Histogram {
        let mut bins = [0.0; BINS];
        for (heat, _) in self
            .heat
            .iter()
            .zip(apps)
            .filter(|(_, app)| is_sampled(app))
        {
            tiers.clone().for_each(|tier| heat.count(tier, &mut bins));
        }
        bins.map(|bytes| Bytes::new(bytes as u64))
    }

    fn requests(&self, apps: &[App<'_>], tiers: Range<usize>, from: usize) -> f64 {
        let sampled = self
            .heat
            .iter()
            .zip(apps)
            .filter(|(_, app)| is_sampled(app));
        let of = |heat: &Heat| -> f64 { tiers.clone().map(|tier| heat.requests(tier, from)).sum() };
        sampled.map(|(heat, _)| of(heat)).sum()
    }
}

fn is_sampled(app: &App<'_>) -> bool {
    app.is_running() && app.is_managed()
}

/// Moves `bytes` of the pages in `bins`, the same part of each application's; returns how many moved.
fn shift(
    heat: &mut [Heat],
    apps: &mut [App<'_>],
    (from, to): (usize, usize),
    bins: &Range<usize>,
    bytes: f64,
) -> f64 {
    if bytes < 1.0 || bins.is_empty() {
        return 0.0;
    }
    let both = heat.iter_mut().zip(apps);
    let mut both: Vec<_> = both.filter(|(_, app)| is_sampled(app)).collect();
    let all: f64 = both.iter().map(|(heat, _)| heat.held(from, bins)).sum();
    if all <= 0.0 {
        return 0.0;
    }
    let part = (bytes / all).min(1.0);
    let mut sum = 0.0;
    for (heat, app) in &mut both {
        let moved = heat.shift(&mut app.pages, (from, to), bins.clone(), part);
        match to {
            0 => app.promoted += moved,
            _ => app.demoted += moved,
        }
        sum += moved;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Phase;
    use isolane_memory_scenario::machine::MemMachine;
    use isolane_memory_scenario::parse::parse;

    const GB: f64 = 1e9;

    /// Near memory of 10 GB, full; 2 GB of hot pages are far, and 1 GB of the near pages is cold.
    #[test]
    fn warm_pages_stay_in_the_round_that_is_short_of_room_and_go_in_the_next() {
        let text = "duration = \"1s\"\n[memory]\nmachine = \"xeon-8362\"\nlocal = \"10GB\"\n\
                    [[app]]\nname = \"a\"\nkind = \"bandwidth\"\nworking_set = \"15GB\"\n";
        let scenario = parse(text, "x.toml").expect("valid");
        let profile = MemMachine::named(&scenario.machine).expect("compiled in");
        let machine = Machine::new(&profile, &scenario.capacity);
        let mut apps = vec![App::new(&scenario.apps[0])];
        apps[0].phase = Phase::Running;
        let mut sampled = Sampled::new(&machine, &apps, false);
        for (tier, bin, gigabytes) in [
            (0, 0, 1.0),
            (0, 8, 6.0),
            (0, 9, 3.0),
            (1, 8, 3.0),
            (1, 9, 2.0),
        ] {
            apps[0].pages.add(tier, gigabytes * GB);
            sampled.heat[0].follow(&apps[0].pages, bin);
        }
        let all = sampled.histogram(&apps, 0..2);
        sampled.memtis.adapt(&all);
        assert_eq!((sampled.memtis.hot(), sampled.memtis.warm()), (9, 8));
        let mut round = || {
            sampled.plan(&machine, &apps);
            sampled.carry_out(&machine, &mut apps, f64::INFINITY);
            [0..1, 8..9, 9..BINS].map(|bins| (sampled.heat[0].held(0, &bins) / GB * 10.0).round())
        };
        assert_eq!(round(), [0.0, 60.0, 30.0]);
        let [_, warm, hot] = round();
        assert!(warm < 60.0 && hot > 30.0, "{warm} {hot}");
    }
}
