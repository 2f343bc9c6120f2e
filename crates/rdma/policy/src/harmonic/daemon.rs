//! The daemon: compares each tenant's usage with its allocation, and slows tenants above it.
//!
//! Problem: data requests bypass software, so nothing can hold them back before the NIC. Method: the NIC's own
//! congestion control can. The daemon polls the monitor's counters. For a tenant that uses more payload bandwidth,
//! requests or bus bandwidth than its allocation, the daemon sends a batch of congestion notifications to the senders
//! of its data, and another batch after T_i while the excess continues (equation 5.1):
//!
//! T_i = max(T_min, T_basic (1 - (R_current - R_target) / R_target))
//!
//! with R the resource it exceeds most. The other tenants do not matter: a tenant above its allocation is slowed even
//! when the rest of the NIC is idle, as the source states. A tenant below its allocation gets no notification, and the
//! NIC's rate limiters recover on their own.
//!
//! The caches have no allocation, because one tenant may cause the misses of another. While all tenants together miss
//! more often than `cache_misses_per_s`, their total usage is shared again: each may use its part, by dominant share,
//! of the sum of dominant usages, and of the tenants above their part those of the lowest priority are slowed.
//!
//! Rates are means since the tenant's last batch, over at least T_min and at most T_basic, so neither the dip after a
//! batch nor the recovery before the next one decides alone. A tenant that was within its allocation since the last poll gets
//! no batch: the daemon at the other end of its connections has just sent one. Every figure is taken in the direction or role where the
//! tenant uses more, since link, bus and processing units work both ways at once.
//!
//! The source gives batches as one to four notifications and leaves the choice open. A notification cuts a rate by half of
//! DCQCN's alpha, and the rate recovers to where it was before the last cut. So one notification answers a slight excess,
//! and each further one cuts what the rate recovers to, until that is at the target. Alpha is one for a sender without
//! earlier notifications and falls between batches; the daemon follows it with the device's own settings ([`Reaction`]).
//!
//! The variant with explicit rates (harmonic 5.7) sends a rate instead of notifications: the receiver of the data names the
//! most that its senders may send, as a receive window does. A tenant beyond its target first gets the line's rate, and every
//! message after that scales what it has by target / used. A tenant below its target gets more in the same way, at most
//! [`RAISE_MAX`] times as much, until it has the line's rate again and is free. A request rate is held in this way with any
//! number of senders, where notifications depend on how fast each sender recovers.
//!
//! Units: picoseconds, bits and thousandths of requests per second; excess is a fraction of [`EXCESS_ONE`], rounded
//! down, so less than that fraction too much is none. Source: harmonic 5.5.1. Limits: no allocation after
//! [`Harmonic::new`]; one instance per host, and daemons exchange no messages.

use super::allocation::{Allocation, Capacity, SHARE_ONE};
use super::statistics::TenantStatistics;
use super::usage::{BusFormat, RequestCosts, TenantUsage};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use std::collections::VecDeque;

/// An excess of one: twice the target.
pub const EXCESS_ONE: u64 = 1 << 32;
/// Excess that one notification answers while alpha is one: its dip costs about as much, 11 % over 500 us.
pub const SLIGHT: u64 = EXCESS_ONE / 8;
/// An explicit rate at most doubles from one message to the next.
pub const RAISE_MAX: u64 = 2;
/// An explicit rate is at least this: a sender with a lower rate could not answer.
const EXPLICIT_MIN: BitRate = BitRate::from_bps(1_000_000);
/// Bits of a byte times picoseconds of a second.
const BIT_SECONDS: u128 = 8_000_000_000_000;
/// Thousandths of a request, in picoseconds of a second.
const REQUEST_SECONDS: u128 = 1_000_000_000_000;

/// How the device's senders react to notifications: the settings of DCQCN's alpha, which a notification cuts rates by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// Alpha falls by this power of two of itself in each period, and rises as much with a notification.
    pub shift: u32,
    /// The period.
    pub period: Duration,
}

impl Reaction {
    /// DCQCN as published: g is 1/256, and alpha falls every 55 us.
    pub const PUBLISHED: Self = Self {
        shift: 8,
        period: Duration::from_us(55),
    };

    /// `alpha`, of [`EXCESS_ONE`], after `time` without a notification.
    fn after(&self, alpha: u64, time: Duration) -> u64 {
        let mut periods = time.as_ps() / self.period.as_ps().max(1);
        let multiply =
            |a: u64, b: u64| (u128::from(a) * u128::from(b) / u128::from(EXCESS_ONE)) as u64;
        let (mut kept, mut factor) = (alpha, EXCESS_ONE - (EXCESS_ONE >> self.shift));
        while periods > 0 && kept > 0 {
            if periods % 2 == 1 {
                kept = multiply(kept, factor);
            }
            factor = multiply(factor, factor);
            periods /= 2;
        }
        kept
    }

    /// Alpha after one more notification.
    const fn notified(&self, alpha: u64) -> u64 {
        alpha - (alpha >> self.shift) + (EXCESS_ONE >> self.shift)
    }
}

/// Parameters of [`Harmonic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarmonicOptions {
    /// T_basic of equation 5.1.
    pub t_basic: Duration,
    /// T_min of equation 5.1.
    pub t_min: Duration,
    /// Time between two polls of the monitor.
    pub poll: Duration,
    /// Notifications to one sender in a batch at most.
    pub notifications_max: u32,
    /// Metadata reads per second, of all tenants together, from which on the caches are contended.
    pub cache_misses_per_s: u64,
    /// Whether senders get rates instead of notifications (harmonic 5.7).
    pub explicit_rate: bool,
    /// How senders react to notifications.
    pub reaction: Reaction,
    /// What requests cost.
    pub costs: RequestCosts,
    /// What the monitor's counts are made of.
    pub format: BusFormat,
}

impl HarmonicOptions {
    /// The published settings: T_basic 500 us, T_min 200 us, a poll every 100 us, batches of up to four.
    pub fn published(costs: RequestCosts, format: BusFormat, cache_misses_per_s: u64) -> Self {
        Self {
            t_basic: Duration::from_us(500),
            t_min: Duration::from_us(200),
            poll: Duration::from_us(100),
            notifications_max: 4,
            cache_misses_per_s,
            explicit_rate: false,
            reaction: Reaction::PUBLISHED,
            costs,
            format,
        }
    }

    /// Refuses options under which the daemon cannot work. The error names the first option that is wrong, and what it
    /// may be.
    pub fn check(&self) -> Result<(), OptionError> {
        let positive = [
            ("t_basic", self.t_basic.as_ps()),
            ("t_min", self.t_min.as_ps()),
            ("poll", self.poll.as_ps()),
            ("notifications_max", self.notifications_max.into()),
            ("costs.write", self.costs.write.into()),
            ("format.payload_max", self.format.payload_max),
            ("format.work_request", self.format.work_request),
            ("format.receive", self.format.receive),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((name, value)) => Err(OptionError::new(name, value, "give a positive value")),
            None if self.t_min > self.t_basic => Err(OptionError::new(
                "t_min",
                format!("{} us", self.t_min.as_us_f64()),
                format!("it may not exceed t_basic, {} us", self.t_basic.as_us_f64()),
            )),
            None => Ok(()),
        }
    }
}

/// Notifications for the senders of one tenant's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Whose, by its place in the allocations.
    pub tenant: usize,
    /// How many for each sender.
    pub notifications: u32,
    /// The explicit rate of all of the tenant's senders together, which replaces notifications; the line's rate frees them.
    pub rate: Option<BitRate>,
    /// What the tenant uses too much of.
    pub reason: Reason,
}

/// What a tenant exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Payload per second ("BPS").
    Rate,
    /// Normalised requests per second ("DRPS").
    DataRequests,
    /// PCIe bandwidth.
    Bus,
    /// Its part of what the NIC gets done with contended caches.
    Cache,
}

/// The policy of one host. See the module's comment.
///
/// ```
/// use isolane_rdma_policy::harmonic::statistics::{BusDirection, ObjectKind, TenantStatistics};
/// use isolane_rdma_policy::harmonic::*;
/// use isolane_common_quantities::units::{BitRate, Duration, Instant};
/// let nic = Capacity {
///     rate: BitRate::from_gbps(25),
///     data_requests_per_s: 30_000_000,
///     pcie_rate: BitRate::from_gbps(64),
/// };
/// let tenant = PerformanceProfile { weight: 1, ..PerformanceProfile::default() };
/// let allocations = allocate(&nic, &[tenant.clone(), tenant])?;
/// let format = BusFormat { payload_max: 128, header: 20, work_request: 64, receive: 16 };
/// let options = HarmonicOptions::published(RequestCosts::CONNECTX_6_DX, format, 1_000_000);
/// let mut daemon = Harmonic::new(options, nic, allocations)?;
/// // The first tenant sends 20 Gb/s, 500 kB in 200 us; it may send 12.5.
/// let mut busy = TenantStatistics::default();
/// busy.add(ObjectKind::PrivateMemory, BusDirection::ToNic, 1_000, 500_000);
/// daemon.poll(Instant::ZERO + Duration::from_us(200), &[busy, TenantStatistics::default()]);
/// // 60 % too much: T_i is T_min, 200 us, and two notifications halve what it recovers to.
/// let batch = daemon.poll_action().expect("it uses too much");
/// assert_eq!((batch.tenant, batch.notifications, batch.reason), (0, 2, Reason::Rate));
/// assert_eq!(daemon.poll_action(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Harmonic {
    options: HarmonicOptions,
    capacity: Capacity,
    tenants: Vec<Tenant>,
    actions: VecDeque<Batch>,
    polled: Instant,
}

#[derive(Clone, Debug)]
struct Tenant {
    allocation: Allocation,
    /// Counters, and when: at the last batch or restart of the mean.
    start: TenantStatistics,
    started: Instant,
    /// At the last poll.
    previous: TenantStatistics,
    /// Usage since the last poll, and its dominant part, of [`SHARE_ONE`].
    latest: TenantUsage,
    used: u64,
    /// The explicit rate of its senders; none while they are free.
    explicit: Option<BitRate>,
    /// Alpha of its senders after the last batch, of [`EXCESS_ONE`], and when that was.
    alpha: u64,
    notified: Instant,
    batches: u64,
    notifications: u64,
}

impl Harmonic {
    /// A daemon for tenants with these allocations, whose counters begin at zero ([`Self::begin`] if they do not).
    /// Fails as [`HarmonicOptions::check`] does.
    pub fn new(
        options: HarmonicOptions,
        capacity: Capacity,
        allocations: Vec<Allocation>,
    ) -> Result<Self, OptionError> {
        options.check()?;
        let tenants: Vec<Tenant> = allocations
            .into_iter()
            .map(|allocation| Tenant {
                allocation,
                start: TenantStatistics::default(),
                started: Instant::ZERO,
                previous: TenantStatistics::default(),
                latest: TenantUsage::default(),
                used: 0,
                explicit: None,
                alpha: EXCESS_ONE,
                notified: Instant::ZERO,
                batches: 0,
                notifications: 0,
            })
            .collect();
        Ok(Self {
            actions: VecDeque::with_capacity(tenants.len()),
            options,
            capacity,
            tenants,
            polled: Instant::ZERO,
        })
    }

    /// The counters begin at these values at `now`, and with them the means. Panics if there are not as many as
    /// tenants.
    pub fn begin(&mut self, now: Instant, statistics: &[TenantStatistics]) {
        assert_eq!(
            statistics.len(),
            self.tenants.len(),
            "one set of counters for each tenant"
        );
        for (tenant, counts) in self.tenants.iter_mut().zip(statistics) {
            (tenant.start, tenant.started, tenant.previous) = (*counts, now, *counts);
        }
        self.polled = now;
    }

    /// When to poll next.
    pub fn poll_timeout(&self) -> Instant {
        self.polled.saturating_add(self.options.poll)
    }

    /// Takes every tenant's counters, read at `now`, in the order of the allocations. Panics if there are not as many
    /// as tenants.
    pub fn poll(&mut self, now: Instant, statistics: &[TenantStatistics]) {
        assert_eq!(
            statistics.len(),
            self.tenants.len(),
            "one set of counters for each tenant"
        );
        let since = now.saturating_since(self.polled);
        if since.is_zero() {
            return;
        }
        let cache = self.cache_step(since, statistics);
        self.polled = now;
        let options = &self.options;
        for (index, (tenant, counts)) in self.tenants.iter_mut().zip(statistics).enumerate() {
            let elapsed = now.saturating_since(tenant.started);
            if elapsed < options.t_min {
                continue;
            }
            let interval = counts.since(&tenant.start);
            let usage = TenantUsage::of(&interval, &options.format, &options.costs);
            let (mut excess, mut reason) = tenant.excess(&usage, elapsed);
            if let Some(step) = &cache {
                let over = step.excess(tenant);
                if over > excess {
                    (excess, reason) = (over, Reason::Cache);
                }
            }
            if options.explicit_rate {
                let ratio = Ratio::of(tenant, &usage, elapsed, cache.as_ref());
                let rate = tenant.scaled(ratio, self.capacity.rate);
                (tenant.start, tenant.started) = (*counts, now);
                if let Some(rate) = rate {
                    tenant.batches += 1;
                    tenant.notifications += 1;
                    self.actions.push_back(Batch {
                        tenant: index,
                        notifications: 1,
                        rate: Some(rate),
                        reason,
                    });
                }
                continue;
            }
            if excess == 0 {
                if elapsed >= options.t_basic {
                    (tenant.start, tenant.started) = (*counts, now);
                }
                continue;
            }
            let over_now = reason == Reason::Cache || tenant.excess(&tenant.latest, since).0 > 0;
            if elapsed < wait(options, excess) || !over_now {
                continue;
            }
            let notifications = tenant.notify(now, excess, options);
            (tenant.start, tenant.started) = (*counts, now);
            tenant.batches += 1;
            tenant.notifications += u64::from(notifications);
            self.actions.push_back(Batch {
                tenant: index,
                notifications,
                rate: None,
                reason,
            });
        }
    }

    /// The next batch to send, until `None`.
    pub fn poll_action(&mut self) -> Option<Batch> {
        self.actions.pop_front()
    }

    /// What a tenant may use.
    pub fn allocation(&self, tenant: usize) -> &Allocation {
        &self.tenants[tenant].allocation
    }

    /// Batches decided for a tenant, and notifications per sender in all of them.
    pub fn counts(&self, tenant: usize) -> (u64, u64) {
        let tenant = &self.tenants[tenant];
        (tenant.batches, tenant.notifications)
    }

    /// Notes what each tenant used since the last poll; who may use how much of it if the caches are contended.
    fn cache_step(
        &mut self,
        since: Duration,
        statistics: &[TenantStatistics],
    ) -> Option<CacheStep> {
        let (mut misses, mut used, mut shares) = (0, 0, 0);
        for (tenant, counts) in self.tenants.iter_mut().zip(statistics) {
            let interval = counts.since(&tenant.previous);
            let usage = TenantUsage::of(&interval, &self.options.format, &self.options.costs);
            tenant.previous = *counts;
            tenant.used = dominant(&usage, since, &self.capacity);
            tenant.latest = usage;
            misses = usage.cache_misses.saturating_add(misses);
            used = tenant.used.saturating_add(used);
            shares += tenant.allocation.share;
        }
        let limit = u128::from(self.options.cache_misses_per_s) * u128::from(since.as_ps());
        if u128::from(misses) * REQUEST_SECONDS < limit || misses == 0 {
            return None;
        }
        let step = |priority| CacheStep {
            used,
            shares,
            priority,
        };
        self.tenants
            .iter()
            .filter(|tenant| step(tenant.allocation.priority).excess(tenant) > 0)
            .map(|tenant| tenant.allocation.priority)
            .max()
            .map(step)
    }
}

/// Sharing what contended caches let through.
struct CacheStep {
    /// Dominant usages of all tenants.
    used: u64,
    /// Dominant shares of all tenants.
    shares: u64,
    /// Who is slowed now.
    priority: u8,
}

impl CacheStep {
    /// How much more than its part the tenant uses, if it is its turn.
    fn excess(&self, tenant: &Tenant) -> u64 {
        if tenant.allocation.priority != self.priority {
            return 0;
        }
        excess(tenant.used.into(), self.part(tenant))
    }

    /// What the tenant may use of what contended caches let through.
    fn part(&self, tenant: &Tenant) -> u128 {
        let share = u128::from(tenant.allocation.share);
        (u128::from(self.used) * share / u128::from(self.shares)).max(1)
    }
}

/// How much of its target a tenant uses.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    used: u128,
    target: u128,
}

impl Ratio {
    /// Of the resource that `tenant` uses most, or of its part of contended caches.
    fn of(
        tenant: &Tenant,
        usage: &TenantUsage,
        elapsed: Duration,
        cache: Option<&CacheStep>,
    ) -> Self {
        let own = tenant
            .resources(usage, elapsed)
            .into_iter()
            .map(|(used, target, _)| Self { used, target });
        let cache = cache
            .filter(|step| step.priority == tenant.allocation.priority)
            .map(|step| Self {
                used: tenant.used.into(),
                target: step.part(tenant),
            });
        own.chain(cache)
            .max_by(|a, b| a.permille().cmp(&b.permille()))
            .expect("a tenant has three resources")
    }

    /// Used in thousandths of the target, which orders ratios without overflow.
    fn permille(self) -> u128 {
        self.used.saturating_mul(1000) / self.target.max(1)
    }
}

impl Tenant {
    /// The next rate of its senders, if it changes: their present rate, times target / used.
    fn scaled(&mut self, ratio: Ratio, line: BitRate) -> Option<BitRate> {
        let beyond = ratio.used > ratio.target;
        let before = match (self.explicit, beyond) {
            (None, false) => return None,
            (None, true) => line,
            (Some(explicit), _) => explicit,
        };
        let most = u128::from(before.as_bps()) * u128::from(RAISE_MAX);
        // In permille, so that the product stays small; an idle tenant gets the most.
        let next = match ratio.permille() {
            0 => most,
            permille => (u128::from(before.as_bps()) * 1000 / permille).min(most),
        };
        let next = BitRate::from_bps(u64::try_from(next).unwrap_or(u64::MAX)).min(line);
        let next = next.max(EXPLICIT_MIN);
        self.explicit = (next < line).then_some(next);
        Some(next)
    }

    /// Notifications for each of its senders at `now`; after them their alpha is as the daemon expects it.
    fn notify(&mut self, now: Instant, excess: u64, options: &HarmonicOptions) -> u32 {
        // Before the first one, alpha is one however late that comes.
        let since = match self.batches {
            0 => Duration::ZERO,
            _ => now.saturating_since(self.notified),
        };
        let part =
            |of: u64, alpha: u64| u128::from(of) * u128::from(alpha) / u128::from(EXCESS_ONE);
        let mut alpha = options.reaction.after(self.alpha, since);
        // What the senders recover to, relative to the target: where they were before the last cut.
        let mut recovers = excess.saturating_add(EXCESS_ONE);
        let slight = u128::from(excess) <= part(SLIGHT, alpha);
        let mut notifications = 1;
        while !slight && recovers > EXCESS_ONE && notifications < options.notifications_max {
            recovers -= part(recovers, alpha / 2) as u64;
            alpha = options.reaction.notified(alpha);
            notifications += 1;
        }
        (self.alpha, self.notified) = (options.reaction.notified(alpha), now);
        notifications
    }

    /// How far it is beyond its allocation, and in what: the worst of its resources.
    fn excess(&self, usage: &TenantUsage, elapsed: Duration) -> (u64, Reason) {
        let mut worst = (0, Reason::Rate);
        for (used, target, reason) in self.resources(usage, elapsed) {
            let over = excess(used, target);
            if over > worst.0 {
                worst = (over, reason);
            }
        }
        worst
    }

    /// What it used of each resource in `elapsed`, and what it may, in the same unit.
    fn resources(&self, usage: &TenantUsage, elapsed: Duration) -> [(u128, u128, Reason); 3] {
        let allocation = &self.allocation;
        let time = u128::from(elapsed.as_ps());
        let payload = u128::from(usage.payload_out.max(usage.payload_in)) * BIT_SECONDS;
        let bus = u128::from(usage.bus_to_nic.max(usage.bus_to_host)) * BIT_SECONDS;
        let requests = u128::from(usage.issued.max(usage.served)) * REQUEST_SECONDS;
        let request_target =
            u128::from(allocation.data_requests_per_s) * u128::from(RequestCosts::UNIT);
        let rate = u128::from(allocation.rate.as_bps());
        let pcie_rate = u128::from(allocation.pcie_rate.as_bps());
        [
            (payload, rate * time, Reason::Rate),
            (requests, request_target * time, Reason::DataRequests),
            (bus, pcie_rate * time, Reason::Bus),
        ]
    }
}

/// (used - target) / target of [`EXCESS_ONE`]; zero at or below the target.
fn excess(used: u128, target: u128) -> u64 {
    let over = used
        .saturating_sub(target)
        .saturating_mul(u128::from(EXCESS_ONE))
        / target.max(1);
    u64::try_from(over).unwrap_or(u64::MAX)
}

/// The larger part of link or request capacity that was used, of [`SHARE_ONE`].
fn dominant(usage: &TenantUsage, time: Duration, capacity: &Capacity) -> u64 {
    let part = |used: u128, capacity: u128| {
        let time = u128::from(time.as_ps());
        let part = used.saturating_mul(u128::from(SHARE_ONE)) / (capacity * time).max(1);
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    let payload = u128::from(usage.payload_out.max(usage.payload_in)) * BIT_SECONDS;
    let requests = u128::from(usage.issued.max(usage.served)) * REQUEST_SECONDS;
    let request_capacity =
        u128::from(capacity.data_requests_per_s) * u128::from(RequestCosts::UNIT);
    part(payload, capacity.rate.as_bps().into()).max(part(requests, request_capacity))
}

/// Equation 5.1: the time between two batches to a tenant that uses `excess` (a fraction of [`EXCESS_ONE`]) more than
/// it may.
pub fn wait(options: &HarmonicOptions, excess: u64) -> Duration {
    let basic = options.t_basic.as_ps();
    let left = EXCESS_ONE.saturating_sub(excess);
    let interval = (u128::from(basic) * u128::from(left) / u128::from(EXCESS_ONE)) as u64;
    Duration::from_ps(interval).max(options.t_min)
}
