//! The tiers of an application's pages, and their access rates.
//!
//! Units: bytes; seconds. Method: pages are sorted by hotness into buckets of equal size; the hottest share `f` of the
//! pages gets the share `f^skew` of the visits, and pages of one bucket are alike. A bucket may be in several tiers at
//! once. A page is visited at random with its bucket's rate, so the share of pages not visited for a time `t` is
//! `exp(-rate t)`. Reclaim finds the oldest pages by this share, and a hint fault the hot ones. Limits: visits of
//! neighbouring pages are independent; a bucket's share of visits is the same in every tier.

use isolane_memory_policy::mercury::TIERS_MAX;

/// Buckets of an application whose pages are not alike.
const BUCKETS: usize = 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bucket {
    /// Share of the application's visits.
    pub(crate) visits: f64,
    /// Bytes in each tier.
    pub(crate) held: [f64; TIERS_MAX],
}

impl Bucket {
    pub(crate) fn bytes(&self) -> f64 {
        self.held.iter().sum()
    }
}

/// An application's pages, hottest bucket first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pages {
    pub(crate) buckets: Vec<Bucket>,
}

impl Pages {
    /// No pages yet, of an application whose visits follow `skew`.
    pub(crate) fn new(skew: f64) -> Self {
        let count = match skew < 0.999 {
            true => BUCKETS,
            false => 1,
        };
        let share = |index: usize| libm::pow(index as f64 / count as f64, skew);
        let buckets = (0..count).map(|index| Bucket {
            visits: share(index + 1) - share(index),
            held: [0.0; TIERS_MAX],
        });
        Self {
            buckets: buckets.collect(),
        }
    }

    /// Bytes in `tier`.
    pub(crate) fn held(&self, tier: usize) -> f64 {
        self.buckets.iter().map(|bucket| bucket.held[tier]).sum()
    }

    /// Bytes in all tiers.
    pub(crate) fn bytes(&self) -> f64 {
        self.buckets.iter().map(Bucket::bytes).sum()
    }

    /// Share of the visits that go to each tier.
    pub(crate) fn mix(&self) -> [f64; TIERS_MAX] {
        let mut mix = [0.0; TIERS_MAX];
        for bucket in &self.buckets {
            let bytes = bucket.bytes();
            if bytes > 0.0 {
                for (part, held) in mix.iter_mut().zip(&bucket.held) {
                    *part += bucket.visits * held / bytes;
                }
            }
        }
        mix
    }

    /// Adds `bytes` in `tier`, spread over all buckets: what is new is as hot as what is there.
    pub(crate) fn add(&mut self, tier: usize, bytes: f64) {
        let each = bytes / self.buckets.len() as f64;
        for bucket in &mut self.buckets {
            bucket.held[tier] += each;
        }
    }

    /// Gives back `bytes`, from all tiers and buckets alike.
    pub(crate) fn remove(&mut self, bytes: f64) {
        let all = self.bytes();
        if all <= 0.0 {
            return;
        }
        let kept = (1.0 - bytes / all).max(0.0);
        for bucket in &mut self.buckets {
            for held in &mut bucket.held {
                *held *= kept;
            }
        }
    }

    /// Visits of a page of `bucket` each second, when the application visits `visits` pages of `page` bytes each second.
    pub(crate) fn rate(&self, bucket: usize, visits: f64, page: f64) -> f64 {
        let bucket = &self.buckets[bucket];
        let bytes = bucket.bytes();
        match bytes > 0.0 {
            true => visits * bucket.visits / (bytes / page),
            false => 0.0,
        }
    }

    /// Moves the hottest pages of `from` to `to`, at most `bytes`; returns how many bytes moved.
    pub(crate) fn promote(&mut self, from: usize, to: usize, bytes: f64) -> f64 {
        let mut left = bytes;
        for bucket in &mut self.buckets {
            let moved = bucket.held[from].min(left).max(0.0);
            bucket.held[from] -= moved;
            bucket.held[to] += moved;
            left -= moved;
        }
        bytes - left
    }

    /// Moves the coldest pages of `from` to `to`, at most `bytes`; returns how many bytes moved.
    pub(crate) fn demote(&mut self, from: usize, to: usize, bytes: f64) -> f64 {
        self.buckets.reverse();
        let moved = self.promote(from, to, bytes);
        self.buckets.reverse();
        moved
    }
}

/// Share of pages that were not visited for `age` seconds when each is visited `rate` times a second.
pub(crate) fn older(rate: f64, age: f64) -> f64 {
    libm::exp(-rate * age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_half_gets_its_share_of_the_visits() {
        let mut pages = Pages::new(0.5);
        pages.add(0, 100.0);
        pages.demote(0, 1, 50.0);
        assert!((pages.mix()[0] - 0.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(pages.promote(1, 0, 80.0), 50.0);
        assert!((pages.mix()[0] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn bytes_are_conserved_by_moves_and_given_back_evenly() {
        let mut pages = Pages::new(0.7);
        pages.add(0, 60.0);
        pages.add(1, 40.0);
        pages.demote(0, 1, 25.0);
        assert!((pages.bytes() - 100.0).abs() < 1e-9);
        pages.remove(50.0);
        assert!((pages.held(0) - 17.5).abs() < 1e-9);
        pages.remove(500.0);
        assert_eq!(pages.bytes(), 0.0);
    }

    #[test]
    fn pages_that_are_all_alike_are_one_bucket() {
        assert_eq!(Pages::new(1.0).buckets.len(), 1);
        assert_eq!(Pages::new(1.0).rate(0, 5.0, 1.0), 0.0);
    }
}
