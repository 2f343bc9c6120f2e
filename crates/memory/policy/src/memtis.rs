//! Memtis: keeps the pages near that are sampled most often, as many as fit.
//!
//! Problem: hint faults show whether a page was touched soon after it was marked, not how often it is used, and a fixed
//! threshold of hotness fits no other machine or load. Method: the processor samples one in some requests
//! ([`period`]); each sample makes its page hotter. A histogram counts pages by hotness, in bins of powers of two. The
//! hot threshold is the lowest bin from which on all pages together fit near memory. Where much room is left, the bin
//! below is warm: its pages stay where they are. After [`COOLING`] samples every hotness is halved, so that old
//! requests count less. In the background hot pages go near, and cold ones go far as needed for them ([`Memtis::plan`]).
//!
//! Units: bytes; hotness, of which a sample gives a page 512 (in Memtis a sample of a huge page, which is 512 pages,
//! gives it 1 for each); samples. Limits: the paper splits huge pages whose parts differ in hotness; here there are no
//! huge pages, so that part is left out. All applications are in one control group with all near memory that others
//! leave. Thresholds
//! follow the histogram at once; the original lowers them by at most one bin per cooling. When an allocation finds near
//! memory full, the new page goes far and no hot page is demoted for it.
//!
//! Source: Lee et al., "MEMTIS: Efficient Memory Tiering with Dynamic Page Classification and Page Size Determination",
//! SOSP 2023; numbers from its authors' public kernel (`htmm_core.c`, `htmm_migrater.c`, `run_bench.sh`).

use isolane_common_quantities::units::{Bytes, Duration};

/// Bins of the histogram: bin `n` has the pages with a hotness of about `2^n` and more.
pub const BINS: usize = 16;
/// Hotness that a sample gives its page.
pub const SAMPLE: u64 = 512;
/// Time between two rounds of moving pages (`htmm_demotion_period_in_ms`, `htmm_promotion_period_in_ms`).
pub const PERIOD: Duration = Duration::from_ms(500);
/// Samples between two halvings (`htmm_cooling_period`).
pub const COOLING: f64 = 2_000_000.0;
/// Samples between two readings of the histogram (`htmm_adaptation_period`).
const ADAPTATION: f64 = 100_000.0;
/// Growth of memory that also halves hotness (`htmm_thres_cooling_alloc`), 10 GiB.
const GROWTH: u64 = 10 << 30;
/// The lowest hot bin (`htmm_thres_hot`).
const HOT_MIN: usize = 1;
/// Hot pages that fill less of near memory leave room for warm ones, percent.
const ROOMY: u64 = 75;
/// Requests for one sample, least and most (`pebs_period_list`).
const PERIODS: (f64, f64) = (199.0, 19_997.0);
/// Samples per second that sampling may take: 3 % of a processor (`ksampled_soft_cpu_quota`) at 1 us each, which is
/// ours: to read the record, find the page and count it.
const SAMPLES_PER_S: f64 = 30_000.0;

/// Bytes of pages by bin.
pub type Histogram = [Bytes; BINS];

/// The bin of a page with `hotness`.
pub fn bin(hotness: u64) -> usize {
    let log = hotness.saturating_add(1).ilog2() as usize;
    log.min(BINS - 1)
}

/// Requests for one sample, when there are `requests_per_s` in all.
pub fn period(requests_per_s: f64) -> f64 {
    (requests_per_s / SAMPLES_PER_S).clamp(PERIODS.0, PERIODS.1)
}

/// What to do with the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No period ends: hotness and thresholds stay as they are.
    Nothing,
    /// [`Memtis::adapt`].
    Adapt,
    /// Halve every hotness, then [`Memtis::adapt`].
    Cool,
}

/// What moves until the next round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Hot pages from far to near memory.
    pub promote: Bytes,
    /// Pages of the bins before [`Self::cold`] from near to far memory.
    pub demote: Bytes,
    /// The warm threshold of this round: [`Memtis::warm`] may already be that of the next one.
    pub cold: usize,
    /// Hot pages from near to far memory: under [`crate::colloid`] alone.
    pub demote_hot: Bytes,
}

/// The thresholds, and the samples since they changed.
///
/// ```
/// use isolane_common_quantities::units::Bytes;
/// use isolane_memory_policy::memtis::{BINS, Memtis};
/// let mut memtis = Memtis::new(Bytes::new(100_000_000_000));
/// let mut pages = [Bytes::ZERO; BINS];
/// pages[3] = Bytes::new(80_000_000_000);
/// pages[9] = Bytes::new(60_000_000_000);
/// memtis.adapt(&pages);
/// // 60 GB are hot. They fill less than three quarters, so the 80 GB below are warm: they stay where they are.
/// assert_eq!((memtis.hot(), memtis.warm()), (4, 3));
/// ```
#[derive(Clone, Debug)]
pub struct Memtis {
    /// Size of near memory, bytes.
    near: Bytes,
    hot: usize,
    warm: usize,
    /// Samples since the histogram was read.
    unread: f64,
    /// Samples since hotness was halved.
    uncooled: f64,
    /// Memory in use when it last grew by [`GROWTH`].
    used: Bytes,
}

impl Memtis {
    /// Thresholds for `near` bytes of near memory, before the first sample.
    pub fn new(near: Bytes) -> Self {
        Self {
            near,
            hot: HOT_MIN,
            warm: HOT_MIN,
            unread: 0.0,
            uncooled: 0.0,
            used: Bytes::ZERO,
        }
    }

    /// From now on near memory has `near` bytes, in force when the thresholds are set again.
    pub fn resize(&mut self, near: Bytes) {
        self.near = near;
    }

    /// The lowest hot bin.
    pub fn hot(&self) -> usize {
        self.hot
    }

    /// The lowest bin whose pages are not demoted.
    pub fn warm(&self) -> usize {
        self.warm
    }

    /// The bin of a page that was just allocated: hot, so that it is not demoted before it was sampled.
    pub fn fresh(&self) -> usize {
        (self.hot + 1).min(BINS - 1)
    }

    /// Counts `samples`, when applications use `used` bytes; says what is due.
    pub fn sampled(&mut self, samples: f64, used: Bytes) -> Due {
        self.unread += samples;
        self.uncooled += samples;
        let has_grown = used.get() >= self.used.get().saturating_add(GROWTH);
        if has_grown {
            self.used = used;
        }
        if has_grown || self.uncooled >= COOLING {
            (self.uncooled, self.unread) = (0.0, 0.0);
            return Due::Cool;
        }
        if self.unread >= ADAPTATION {
            self.unread = 0.0;
            return Due::Adapt;
        }
        Due::Nothing
    }

    /// Sets the thresholds for the `pages` of all tiers.
    pub fn adapt(&mut self, pages: &Histogram) {
        let room = self.near.saturating_sub(self.promotion_mark());
        let (mut hot, mut held) = (BINS, Bytes::ZERO);
        while hot > 0 && held + pages[hot - 1] <= room {
            hot -= 1;
            held += pages[hot];
        }
        self.hot = hot.clamp(HOT_MIN, BINS - 1);
        self.warm = match held.get() < room.get() / 100 * ROOMY {
            true => self.hot - 1,
            false => self.hot,
        };
    }

    /// What moves, given the pages of `near` and of `far` memory.
    pub fn plan(&mut self, near: &Histogram, far: &Histogram) -> Plan {
        let used = sum(near);
        let wanted = sum(&far[self.hot..]);
        let mark = self.promotion_mark();
        let room = self.near.saturating_sub(used + mark);
        let is_full = match wanted > Bytes::ZERO {
            true => wanted > room,
            false => used + self.demotion_mark() > self.near,
        };
        let excess = match is_full {
            true => (used + wanted + mark).saturating_sub(self.near),
            false => Bytes::ZERO,
        };
        let cold = self.warm;
        let demote = sum(&near[..cold]).min(excess);
        // Warm pages give way to hot ones from the next round on, until the thresholds are set again.
        if demote < wanted.min(excess) {
            self.warm = self.hot;
        }
        Plan {
            promote: wanted.min(room),
            demote,
            cold,
            demote_hot: Bytes::ZERO,
        }
    }

    /// Near memory that promotion leaves free: 3 %, from 100 to 1,500 MiB.
    fn promotion_mark(&self) -> Bytes {
        Bytes::new((self.near.get() / 100 * 3).clamp(100 << 20, 1_500 << 20))
    }

    /// Near memory whose use makes room necessary: all but 2 %, from 50 to 1,000 MiB.
    fn demotion_mark(&self) -> Bytes {
        Bytes::new((self.near.get() / 100 * 2).clamp(50 << 20, 1_000 << 20))
    }
}

fn sum(bins: &[Bytes]) -> Bytes {
    bins.iter().copied().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GB: u64 = 1_000_000_000;

    /// Gigabytes in some bins.
    fn pages(bins: &[(usize, u64)]) -> Histogram {
        let mut all = [Bytes::ZERO; BINS];
        for (bin, gigabytes) in bins {
            all[*bin] = Bytes::new(gigabytes * GB);
        }
        all
    }

    fn gigabytes(plan: Plan) -> [u64; 3] {
        [plan.promote, plan.demote, plan.demote_hot].map(|bytes| bytes.get() / GB)
    }

    fn adapted(near: u64, bins: &[(usize, u64)]) -> Memtis {
        let mut memtis = Memtis::new(Bytes::new(near * GB));
        memtis.adapt(&pages(bins));
        memtis
    }

    #[test]
    fn bins_are_powers_of_two_and_a_half_is_one_bin_less() {
        assert_eq!([0, 1, 2, 3, 511, 1_023].map(bin), [0, 1, 1, 2, 9, 10]);
        assert_eq!((bin(SAMPLE), bin(SAMPLE / 2), bin(u64::MAX)), (9, 8, 15));
        for hotness in (2..14).map(|power| 3 << power) {
            assert_eq!(bin(hotness / 2) + 1, bin(hotness));
        }
    }

    #[test]
    fn the_period_keeps_sampling_cheap_within_the_processors_range() {
        assert_eq!(period(1e5), 199.0);
        assert_eq!(period(3e7), 1_000.0);
        assert_eq!(period(3e9), 19_997.0);
    }

    #[test]
    fn cooling_comes_by_samples_or_growth_and_thresholds_are_set_between() {
        let mut memtis = Memtis::new(Bytes::new(GB));
        let used = Bytes::new(GB);
        assert_eq!(memtis.sampled(60_000.0, used), Due::Nothing);
        assert_eq!(memtis.sampled(60_000.0, used), Due::Adapt);
        assert_eq!(memtis.sampled(60_000.0, used), Due::Nothing);
        assert_eq!(memtis.sampled(0.0, Bytes::new(12 * GB)), Due::Cool);
        assert_eq!(memtis.sampled(0.0, Bytes::new(13 * GB)), Due::Nothing);
        assert_eq!(memtis.sampled(COOLING, used), Due::Cool);
    }

    #[test]
    fn the_hot_pages_are_those_that_fit() {
        let memtis = adapted(100, &[(2, 50), (7, 40), (9, 40), (11, 16)]);
        assert_eq!((memtis.hot(), memtis.warm()), (3, 3));
        let memtis = adapted(100, &[(2, 50), (7, 60), (9, 40), (11, 16)]);
        assert_eq!((memtis.hot(), memtis.warm()), (8, 7));
        let memtis = adapted(100, &[(15, 200)]);
        assert_eq!((memtis.hot(), memtis.warm()), (15, 14));
        let memtis = adapted(100, &[(3, 50)]);
        assert_eq!((memtis.hot(), memtis.warm()), (1, 0));
    }

    #[test]
    fn hot_pages_displace_cold_ones_and_warm_ones_only_in_the_next_round() {
        let near = pages(&[(0, 5), (8, 60), (9, 34)]);
        let far = pages(&[(0, 50), (8, 10), (9, 20)]);
        let all: Vec<Bytes> = near.iter().zip(&far).map(|(a, b)| *a + *b).collect();
        let mut memtis = Memtis::new(Bytes::new(100 * GB));
        memtis.adapt(&all.try_into().expect("as many bins"));
        assert_eq!((memtis.hot(), memtis.warm()), (9, 8));
        // 99 GB used, 20 GB wanted, 1.6 GB kept free: 20.6 GB must go.
        assert_eq!(gigabytes(memtis.plan(&near, &far)), [0, 5, 0]);
        assert_eq!(memtis.warm(), 9);
        assert_eq!(gigabytes(memtis.plan(&near, &far)), [0, 20, 0]);
        let near = pages(&[(8, 45), (9, 34)]);
        assert_eq!(gigabytes(memtis.plan(&near, &far)), [19, 0, 0]);
    }

    #[test]
    fn without_hot_pages_far_only_the_mark_is_kept_free() {
        let mut memtis = adapted(20, &[(0, 25), (2, 16)]);
        assert_eq!((memtis.hot(), memtis.warm()), (1, 1));
        let plan = memtis.plan(&pages(&[(0, 4), (2, 16)]), &pages(&[(0, 21)]));
        let demote = Bytes::new(20 * GB / 100 * 3);
        assert_eq!(
            plan,
            Plan {
                demote,
                cold: 1,
                ..Plan::default()
            }
        );
        let plan = memtis.plan(&pages(&[(0, 3), (2, 16)]), &pages(&[(0, 22)]));
        assert_eq!(gigabytes(plan), [0, 0, 0]);
        assert_eq!((plan.promote, plan.demote), (Bytes::ZERO, Bytes::ZERO));
    }

    /// The slow, obvious way: each page for itself, and every threshold tried.
    fn by_page(pages: &[(usize, u64)], room: u64) -> (usize, usize) {
        let above = |threshold: usize| -> u64 {
            let hot = pages.iter().filter(|(bin, _)| *bin >= threshold);
            hot.map(|(_, bytes)| bytes).sum()
        };
        let fits = (0..BINS).find(|threshold| above(*threshold) <= room);
        let hot = fits.unwrap_or(BINS - 1).max(HOT_MIN);
        let held = fits.map_or(0, above);
        (hot, if held < room / 100 * 75 { hot - 1 } else { hot })
    }

    proptest! {
        #[test]
        fn thresholds_are_those_of_trying_each_on_every_page(
            near in 4u64..200, list in prop::collection::vec((0u64..70_000, 1u64..8), 0..60),
        ) {
            let mut all = [Bytes::ZERO; BINS];
            let list: Vec<(usize, u64)> = list.iter().map(|(hotness, gb)| (bin(*hotness), gb * GB)).collect();
            for (bin, bytes) in &list {
                all[*bin] += Bytes::new(*bytes);
            }
            let mut memtis = Memtis::new(Bytes::new(near * GB));
            memtis.adapt(&all);
            let mark = (near * GB / 100 * 3).clamp(100 << 20, 1_500 << 20);
            prop_assert_eq!((memtis.hot(), memtis.warm()), by_page(&list, near * GB - mark));
        }

        #[test]
        fn no_plan_fills_near_memory_or_moves_what_is_not_there(
            near in prop::array::uniform16(0u64..9), far in prop::array::uniform16(0u64..9), capacity in 4u64..150,
        ) {
            let bytes = |bins: [u64; BINS]| bins.map(|gb| Bytes::new(gb * GB));
            let (near, far) = (bytes(near), bytes(far));
            let mut memtis = Memtis::new(Bytes::new(capacity * GB));
            let mut all = near;
            for (sum, more) in all.iter_mut().zip(&far) {
                *sum += *more;
            }
            memtis.adapt(&all);
            let (hot, warm) = (memtis.hot(), memtis.warm());
            let plan = memtis.plan(&near, &far);
            let used = sum(&near);
            prop_assert!(plan.promote == Bytes::ZERO || used + plan.promote <= Bytes::new(capacity * GB));
            prop_assert!(plan.promote <= sum(&far[hot..]) && plan.demote <= sum(&near[..warm]));
            prop_assert_eq!((plan.demote_hot, plan.cold), (Bytes::ZERO, warm));
        }
    }
}
