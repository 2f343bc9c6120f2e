//! Which groups may use the strict-priority queue, although any group can request it.
//!
//! Problem: a latency label lets a queue pair go before all others (palos IV-C). The paper limits the size of a
//! labelled message and trusts the label otherwise; a tenant that cuts bulk into small labelled messages, or sends very
//! many of them, would starve all others.
//!
//! Method: time is cut into windows. In each window the labelled messages of every group are added up, whether
//! they had priority or not, each with the link time that its headers and its processing cost. All labelled traffic
//! together has a budget, a share of the link.
//!
//! * A group within its own part of the budget (by weight, among groups that have labelled queue pairs) always has
//!   priority.
//! * Beyond its part a group has priority while the whole budget of the window is not used up.
//! * After a window in which all labels together exceeded the budget, every group that took more than the max-min
//!   fair part of it is treated as unlabelled, until a window in which it did not.
//!
//! So groups that stay within their part keep their priority under any load of the others; priority traffic is at most
//! twice the budget in any window. A mislabelling group has neither priority nor any other gain; it gets its label back
//! after one window within its part.
//!
//! Units: bytes of link time, picoseconds. Limits: the label is a group's to waste: one mislabelled queue pair costs
//! all of its group's pairs theirs.

use super::tables::Tables;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant, Ratio};

/// When a label is honoured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelOptions {
    /// Largest message with priority; none with zero.
    pub message_max: Bytes,
    /// Part of the link that all labelled messages may take.
    pub share_max: Ratio,
    /// The time over which shares are taken.
    pub window: Duration,
    /// Rate of the link.
    pub link: BitRate,
    /// What a message costs besides its payload, in bytes of link time: headers, or processing where that is more.
    pub message_overhead: Bytes,
}

impl LabelOptions {
    /// 1 KiB, a tenth of the link over 100 us, and 78 B of headers (RoCEv2 with its preamble and gap).
    pub fn for_link(link: BitRate) -> Self {
        Self {
            message_max: Bytes::from_kib(1),
            share_max: Ratio::new(1, 10),
            window: Duration::from_us(100),
            link,
            message_overhead: Bytes::new(78),
        }
    }

    /// Whether the options make sense. Fails for a share above one, and for a window of no time.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.share_max.numerator > self.share_max.denominator {
            let value = self.share_max.as_f64();
            return Err(OptionError::new("share_max", value, "choose a part of one"));
        }
        if self.window.is_zero() {
            return Err(OptionError::new(
                "window",
                self.window,
                "choose a longer one",
            ));
        }
        Ok(())
    }

    fn budget(&self) -> u64 {
        self.share_max.of(self.link.bytes_in(self.window).get())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Queue pairs with a label.
    labelled: u32,
    /// Labelled bytes of the window, with priority or not.
    taken: u64,
    /// Own part of the budget.
    part: u64,
    /// Treated as unlabelled in this window.
    demoted: bool,
}

/// Counts labelled traffic and decides whose label holds.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    options: LabelOptions,
    budget: u64,
    /// Number of the window.
    window: u64,
    /// Bytes that went with priority in it.
    honoured: u64,
    accounts: Vec<Account>,
    /// Scratch of [`Guard::settle`].
    order: Vec<u32>,
    demotions: u64,
}

impl Guard {
    pub(super) fn new(options: LabelOptions) -> Self {
        Self {
            options,
            budget: options.budget(),
            window: 0,
            honoured: 0,
            accounts: Vec::new(),
            order: Vec::new(),
            demotions: 0,
        }
    }

    pub(super) fn add_group(&mut self) {
        self.accounts.push(Account::default());
        self.order.reserve(self.accounts.len());
    }

    /// A queue pair of `group` was given a label, or lost it.
    pub(super) fn label(&mut self, group: u32, given: bool, tables: &Tables) {
        let account = &mut self.accounts[group as usize];
        if given {
            account.labelled += 1;
        } else {
            account.labelled -= 1;
        }
        self.divide(tables);
    }

    /// Parts of the budget by weight, among groups with labels. Called whenever weights or labels change.
    pub(super) fn divide(&mut self, tables: &Tables) {
        let mut weights = 0;
        for (group, account) in self.accounts.iter().enumerate() {
            if account.labelled > 0 {
                weights += u64::from(tables.group_weight(group as u32));
            }
        }
        for (group, account) in self.accounts.iter_mut().enumerate() {
            account.part = if account.labelled > 0 {
                let weight = u64::from(tables.group_weight(group as u32));
                Ratio::new(weight, weights).of(self.budget)
            } else {
                0
            };
        }
    }

    /// Whether a message of `bytes` is short enough for a label to matter.
    #[inline]
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.options.message_max.get()
    }

    fn cost(&self, bytes: u64) -> u64 {
        bytes + self.options.message_overhead.get()
    }

    /// Whether a labelled message of `bytes` may go first now.
    pub(super) fn honours(
        &mut self,
        now: Instant,
        group: u32,
        bytes: u64,
        tables: &Tables,
    ) -> bool {
        if !self.fits(bytes) || self.options.message_max == Bytes::ZERO {
            return false;
        }
        self.advance(now, tables);
        let cost = self.cost(bytes);
        let account = &self.accounts[group as usize];
        !account.demoted
            && (account.taken + cost <= account.part || self.honoured + cost <= self.budget)
    }

    /// A labelled message of `bytes` starts, with priority or without.
    pub(super) fn count(
        &mut self,
        now: Instant,
        group: u32,
        (bytes, priority): (u64, bool),
        tables: &Tables,
    ) {
        self.advance(now, tables);
        let cost = self.cost(bytes);
        self.accounts[group as usize].taken += cost;
        if priority {
            self.honoured += cost;
        }
    }

    pub(super) fn demotions(&self) -> u64 {
        self.demotions
    }

    #[inline]
    fn advance(&mut self, now: Instant, tables: &Tables) {
        let window = now.as_ps() / self.options.window.as_ps();
        if window != self.window {
            self.settle(window > self.window + 1, tables);
            self.window = window;
        }
    }

    /// Ends a window; `idle` if at least one more has passed in which nothing was sent under a label.
    fn settle(&mut self, idle: bool, tables: &Tables) {
        self.honoured = 0;
        let total: u64 = self.accounts.iter().map(|account| account.taken).sum();
        self.order.clear();
        let accounts = &mut self.accounts;
        for (group, account) in accounts.iter_mut().enumerate() {
            account.demoted = false;
            if account.taken > 0 {
                self.order.push(group as u32);
            }
        }
        if total > self.budget && !idle {
            // Water filling: groups in order of what they took per weight; each gets its part of what is left.
            let weight = |group: u32| u128::from(tables.group_weight(group));
            self.order.sort_unstable_by(|&a, &b| {
                let taken = |group: u32| u128::from(accounts[group as usize].taken);
                (taken(a) * weight(b))
                    .cmp(&(taken(b) * weight(a)))
                    .then(a.cmp(&b))
            });
            let mut left = u128::from(self.budget);
            let mut weights: u128 = self.order.iter().map(|&group| weight(group)).sum();
            for &group in &self.order {
                let account = &mut accounts[group as usize];
                let taken = u128::from(account.taken);
                if taken * weights > left * weight(group) {
                    account.demoted = true;
                    self.demotions += 1;
                } else {
                    left -= taken;
                    weights -= weight(group);
                }
            }
        }
        for account in accounts {
            account.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Budget of 10,000 B per window of 1 us; messages cost their bytes.
    fn guard(weights: &[u32]) -> (Guard, Tables) {
        let mut tables = Tables::new(1_500);
        let mut guard = Guard::new(LabelOptions {
            message_max: Bytes::new(1_000),
            share_max: Ratio::new(1, 10),
            window: Duration::from_us(1),
            link: BitRate::from_gbps(800),
            message_overhead: Bytes::ZERO,
        });
        for &weight in weights {
            let group = tables.add_group(weight).unwrap();
            guard.add_group();
            guard.label(group, true, &tables);
        }
        (guard, tables)
    }

    fn take(guard: &mut Guard, tables: &Tables, us: u64, group: u32, bytes: u64) -> u64 {
        let now = Instant::ZERO + Duration::from_us(us);
        let mut honoured = 0;
        for _ in 0..bytes / 100 {
            let priority = guard.honours(now, group, 100, tables);
            guard.count(now, group, (100, priority), tables);
            honoured += if priority { 100 } else { 0 };
        }
        honoured
    }

    #[test]
    fn a_long_message_has_no_priority() {
        let (mut guard, tables) = guard(&[1]);
        assert!(guard.honours(Instant::ZERO, 0, 1_000, &tables));
        assert!(!guard.honours(Instant::ZERO, 0, 1_001, &tables));
    }

    #[test]
    fn a_group_beyond_its_part_borrows_while_there_is_budget() {
        let (mut guard, tables) = guard(&[1, 1]);
        assert_eq!(take(&mut guard, &tables, 0, 0, 9_000), 9_000);
        // The other one's part is its own in any case.
        assert_eq!(take(&mut guard, &tables, 0, 1, 8_000), 5_000);
        assert_eq!(take(&mut guard, &tables, 0, 0, 8_000), 0);
    }

    #[test]
    fn who_takes_more_than_the_fair_part_loses_the_label_until_a_window_without() {
        let (mut guard, tables) = guard(&[1, 1, 2]);
        take(&mut guard, &tables, 0, 0, 2_000);
        take(&mut guard, &tables, 0, 1, 9_000);
        take(&mut guard, &tables, 0, 2, 5_000);
        // Of 10,000: 2,000 for the first, the rest 1:2; the third needs less than its part.
        assert_eq!(take(&mut guard, &tables, 1, 0, 2_000), 2_000);
        assert_eq!(take(&mut guard, &tables, 1, 1, 9_000), 0);
        assert_eq!(take(&mut guard, &tables, 1, 2, 5_000), 5_000);
        assert!(guard.accounts[1].demoted);
        // It goes on: it stays unlabelled. It behaves for a window: it has its label back.
        assert_eq!(take(&mut guard, &tables, 2, 1, 100), 0);
        assert_eq!(take(&mut guard, &tables, 3, 1, 1_000), 1_000);
        assert_eq!(guard.demotions(), 2);
    }

    #[test]
    fn a_silent_window_ends_a_demotion() {
        let (mut guard, tables) = guard(&[1, 1]);
        take(&mut guard, &tables, 0, 0, 20_000);
        assert_eq!(take(&mut guard, &tables, 1, 0, 100), 0);
        assert_eq!(take(&mut guard, &tables, 5, 0, 100), 100);
    }

    /// The max-min fair level by bisection.
    fn fair_level(taken: &[u64], weights: &[u32], budget: f64) -> f64 {
        let used = |level: f64| -> f64 {
            let each = taken.iter().zip(weights);
            each.map(|(&taken, &weight)| (taken as f64).min(level * f64::from(weight)))
                .sum()
        };
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if used(middle) < budget {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    proptest! {
        #[test]
        fn demotion_follows_the_max_min_fair_level(
            groups in prop::collection::vec((0u64..200, 1u32..10), 1..12),
        ) {
            let weights: Vec<u32> = groups.iter().map(|group| group.1).collect();
            let (mut guard, tables) = guard(&weights);
            let taken: Vec<u64> = groups.iter().map(|group| group.0 * 100).collect();
            for (group, &bytes) in taken.iter().enumerate() {
                take(&mut guard, &tables, 0, group as u32, bytes);
            }
            take(&mut guard, &tables, 1, 0, 100);
            let over = taken.iter().sum::<u64>() > 10_000;
            let level = fair_level(&taken, &weights, 10_000.0);
            for (group, (&bytes, &weight)) in taken.iter().zip(&weights).enumerate() {
                let excess = bytes as f64 - level * f64::from(weight);
                // Bisection does not detect equality.
                if excess.abs() > 1e-3 || !over {
                    prop_assert_eq!(guard.accounts[group].demoted, over && excess > 0.0);
                }
            }
        }

        #[test]
        fn a_group_within_its_part_always_has_priority(
            order in prop::collection::vec((0u32..4, 1u64..1_000), 1..400),
        ) {
            let (mut guard, tables) = guard(&[1, 2, 3, 4]);
            let (mut honest, mut honoured) = (0, 0);
            for (step, &(group, bytes)) in order.iter().enumerate() {
                if step % 100 == 0 {
                    (honest, honoured) = (0, 0);
                }
                let now = Instant::ZERO + Duration::from_us(step as u64 / 100);
                if group == 0 && honest + bytes > 1_000 {
                    continue;
                }
                let priority = guard.honours(now, group, bytes, &tables);
                guard.count(now, group, (bytes, priority), &tables);
                if group == 0 {
                    honest += bytes;
                    prop_assert!(priority);
                }
                honoured += if priority { bytes } else { 0 };
                prop_assert!(honoured <= 20_000, "{} in one window", honoured);
            }
        }
    }
}
