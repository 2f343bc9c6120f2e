//! What is measured: bytes, messages, latencies and time series per tenant.
//!
//! Nothing counts before the warm-up ends. Goodput counts payload as it arrives at its destination, so that a
//! 1 GB message shows its rate long before it completes. The 99th percentile of a sample is exact over at most
//! [`SAMPLES_PER_POINT`] latencies per point (later ones replace earlier ones in turn).

use super::queue_pair::QueuePair;
use isolane_common_quantities::stats::Histogram;

/// Latencies kept per point of the time series.
const SAMPLES_PER_POINT: usize = 2048;

/// One tenant's sums.
#[derive(Clone, Debug)]
pub(crate) struct TenantMeter {
    pub(crate) delivered: u64,
    pub(crate) sent: u64,
    pub(crate) offered: u64,
    pub(crate) messages: u64,
    pub(crate) controls: u64,
    pub(crate) operations: u64,
    pub(crate) pace: Pace,
    pub(crate) errors: u64,
    pub(crate) latencies: Option<Histogram>,
    point_bytes: u64,
    point: Vec<u64>,
    point_next: usize,
    pub(crate) goodput_series: Vec<u64>,
    pub(crate) p99_series: Vec<Option<u64>>,
}

/// When the operations of an application ended, ps. The time between ends gives their rate without the error of a
/// count, which in a short run is off by up to one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The last end before the measured time, or the first one in it.
    since: Option<u64>,
    last: u64,
    /// Ends after `since`.
    ended: u64,
}

impl Pace {
    fn ended(&mut self, now: u64, measuring: bool) {
        match self.since {
            Some(since) if measuring => {
                self.ended += 1;
                self.last = self.last.max(now).max(since);
            }
            since => self.since = since.max(Some(now)),
        }
    }

    /// The pace of a measured time that begins now.
    pub(crate) fn begun_again(self) -> Self {
        let since = (self.ended > 0).then_some(self.last).or(self.since);
        Self {
            since,
            ..Self::default()
        }
    }

    /// Operations per second until `end`: one that is under way for longer than those before took counts as if it
    /// ended then.
    pub(crate) fn per_s(self, end: u64) -> Option<f64> {
        let (Some(since), 1..) = (self.since, self.ended) else {
            return None;
        };
        let rate = |count: u64, until: u64| match until.saturating_sub(since) {
            0 => f64::INFINITY,
            time => count as f64 * 1e12 / time as f64,
        };
        let rate = rate(self.ended, self.last).min(rate(self.ended + 1, end));
        rate.is_finite().then_some(rate)
    }
}

/// All tenants' sums.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(crate) tenants: Vec<TenantMeter>,
    pub(crate) measuring: bool,
}

impl Meter {
    /// A meter for tenants that do, or do not, have latencies worth keeping.
    pub(crate) fn new(keeps_latency: &[bool]) -> Self {
        let tenant = |&keeps: &bool| TenantMeter {
            delivered: 0,
            sent: 0,
            offered: 0,
            messages: 0,
            controls: 0,
            operations: 0,
            pace: Pace::default(),
            errors: 0,
            latencies: keeps.then(Histogram::new),
            point_bytes: 0,
            point: Vec::with_capacity(if keeps { SAMPLES_PER_POINT } else { 0 }),
            point_next: 0,
            goodput_series: Vec::new(),
            p99_series: Vec::new(),
        };
        Self {
            tenants: keeps_latency.iter().map(tenant).collect(),
            measuring: false,
        }
    }

    /// Payload arrived.
    #[inline]
    pub(crate) fn delivered(&mut self, _now: u64, pair: &mut QueuePair, bytes: u64) {
        if self.measuring && !pair.reference {
            let tenant = &mut self.tenants[usize::from(pair.tenant)];
            tenant.delivered += bytes;
            tenant.point_bytes += bytes;
            pair.bytes_delivered += bytes;
        }
    }

    /// A message arrived in full.
    #[inline]
    pub(crate) fn message_delivered(&mut self, pair: &QueuePair) {
        if self.measuring && !pair.reference {
            self.tenants[usize::from(pair.tenant)].messages += 1;
        }
    }

    /// A frame left.
    #[inline]
    pub(crate) fn sent(&mut self, tenant: usize, bytes: u64) {
        if self.measuring
            && let Some(tenant) = self.tenants.get_mut(tenant)
        {
            tenant.sent += bytes;
        }
    }

    /// Payload was offered.
    pub(crate) fn offered(&mut self, tenant: usize, bytes: u64) {
        if self.measuring {
            self.tenants[tenant].offered += bytes;
        }
    }

    /// A message took this long, ps.
    #[inline]
    pub(crate) fn latency(&mut self, _now: u64, tenant: usize, latency: u64) {
        if !self.measuring {
            return;
        }
        let tenant = &mut self.tenants[tenant];
        if let Some(histogram) = &mut tenant.latencies {
            histogram.record(latency);
            if tenant.point.len() < SAMPLES_PER_POINT {
                tenant.point.push(latency);
            } else {
                tenant.point[tenant.point_next] = latency;
                tenant.point_next = (tenant.point_next + 1) % SAMPLES_PER_POINT;
            }
        }
    }

    /// An operation of an application ended after this long, ps.
    pub(crate) fn operation(&mut self, now: u64, tenant: usize, latency: u64) {
        let measuring = self.measuring;
        let of = &mut self.tenants[tenant];
        of.operations += u64::from(measuring);
        of.pace.ended(now, measuring);
        self.latency(now, tenant, latency);
    }

    /// A control verb completed.
    pub(crate) fn control(&mut self, tenant: usize) {
        self.tenants[tenant].controls += u64::from(self.measuring);
    }

    /// A completion with an error, a NAK or a lost arrival.
    pub(crate) fn error(&mut self, tenant: usize) {
        if self.measuring
            && let Some(tenant) = self.tenants.get_mut(tenant)
        {
            tenant.errors += 1;
        }
    }

    /// Ends one point of the time series.
    pub(crate) fn end_point(&mut self) {
        for tenant in &mut self.tenants {
            tenant.goodput_series.push(tenant.point_bytes);
            tenant.point_bytes = 0;
            if tenant.latencies.is_some() {
                let count = tenant.point.len();
                let p99 = (count > 0).then(|| {
                    let rank = (count * 99).div_ceil(100) - 1;
                    *tenant.point.select_nth_unstable(rank).1
                });
                tenant.p99_series.push(p99);
                tenant.point.clear();
                tenant.point_next = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends at these times, ps; measuring starts at 1000.
    fn pace(ends: &[u64], until: u64) -> Option<f64> {
        let mut pace = Pace::default();
        for &end in ends {
            pace.ended(end, end >= 1000);
        }
        Some(pace.per_s(until)? / 1e12)
    }

    #[test]
    fn a_pace_is_that_of_regular_ends_wherever_the_measured_time_begins() {
        for offset in [0, 1, 250, 299] {
            let ends: Vec<u64> = (0..20).map(|n| offset + 300 * n).collect();
            let pace = pace(&ends, 6000).unwrap();
            assert!((pace * 300.0 - 1.0).abs() < 1e-9, "{offset}");
        }
    }

    #[test]
    fn an_operation_that_does_not_end_slows_the_pace() {
        let steady = pace(&[900, 1200, 1500], 1700).unwrap();
        assert!((steady - 1.0 / 300.0).abs() < 1e-12);
        let slowed = pace(&[900, 1200, 1500], 3900).unwrap();
        assert!((slowed - 0.001).abs() < 1e-12);
    }

    #[test]
    fn without_two_ends_there_is_no_pace() {
        assert_eq!(pace(&[900], 3900), None);
        assert_eq!(pace(&[], 3900), None);
    }
}
