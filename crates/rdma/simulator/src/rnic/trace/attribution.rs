//! Logs of what filled a timeline, and how a wait is cut into pieces by cause.

use super::Resource;
use std::collections::VecDeque;

/// Entries kept per timeline. Neighbours of one tenant are one entry; what is older has long been served.
const LOG_MAX: usize = 1 << 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) resource: Resource,
    pub(crate) tenant: u16,
    pub(crate) ps: u64,
}

/// The latest use of a timeline, ps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    /// When it was served.
    pub(crate) started: u64,
    /// When it was done.
    pub(crate) done: u64,
}

/// Work on a timeline.
#[derive(Clone, Copy, Debug)]
struct Entry {
    started: u64,
    end: u64,
    resource: Resource,
    tenant: u16,
}

/// What filled one timeline: ends in order, each with what kept it busy and for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    pub(crate) latest: Use,
}

impl Log {
    /// Adds work from `started` to `end`; an end before the last one's counts as the last one's.
    pub(crate) fn push(&mut self, started: u64, end: u64, resource: Resource, tenant: u16) {
        if let Some(last) = self.entries.back_mut()
            && (last.resource, last.tenant) == (resource, tenant)
            && started <= last.end
        {
            last.end = last.end.max(end);
            return;
        }
        if self.entries.len() == LOG_MAX {
            self.entries.pop_front();
        }
        let end = end.max(self.entries.back().map_or(0, |last| last.end));
        self.entries.push_back(Entry {
            started,
            end,
            resource,
            tenant,
        });
    }

    /// Cuts `from..to` where work began and ended. `each` takes the pieces that were filled with work, `gap` those kept
    /// free for work that was booked ahead, or behind all work: from, to, and the tenant, if there is one. The pieces
    /// add up to `to - from`.
    pub(crate) fn cut(
        &self,
        from: u64,
        to: u64,
        mut each: impl FnMut(Piece),
        mut gap: impl FnMut(u64, u64, Option<u16>),
    ) {
        let mut at = from;
        let first = self.entries.partition_point(|entry| entry.end <= from);
        for entry in self.entries.range(first..) {
            if at >= to {
                return;
            }
            let begins = entry.started.clamp(at, to);
            if begins > at {
                gap(at, begins, Some(entry.tenant));
            }
            let upto = entry.end.min(to).max(begins);
            if upto > begins {
                each(Piece {
                    resource: entry.resource,
                    tenant: entry.tenant,
                    ps: upto - begins,
                });
            }
            at = upto;
        }
        if at < to {
            gap(at, to, None);
        }
    }
}

/// Splits `ps` in proportion to `shares` (by tenant), rounding down; what is left goes to the largest share, the
/// first of equals. Without any share all of it goes to `otherwise`. The parts add up to `ps`.
pub(crate) fn split(ps: u64, shares: &[u64], otherwise: u16, mut each: impl FnMut(u16, u64)) {
    let total: u64 = shares.iter().sum();
    if total == 0 {
        return each(otherwise, ps);
    }
    let mut largest = 0;
    for (tenant, &share) in shares.iter().enumerate() {
        if share > shares[largest] {
            largest = tenant;
        }
    }
    let part = |share: u64| (u128::from(ps) * u128::from(share) / u128::from(total)) as u64;
    let rest = ps - shares.iter().map(|&share| part(share)).sum::<u64>();
    for (tenant, &share) in shares.iter().enumerate() {
        let part = part(share) + if tenant == largest { rest } else { 0 };
        if part > 0 {
            each(tenant as u16, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces by tenant; gaps as tenant 8 (booked) and 9 (idle).
    fn pieces(log: &Log, from: u64, to: u64) -> Vec<(u16, u64)> {
        let pieces = std::cell::RefCell::new(Vec::new());
        log.cut(
            from,
            to,
            |piece| pieces.borrow_mut().push((piece.tenant, piece.ps)),
            |from, to, booked| {
                let tenant = if booked.is_some() { 8 } else { 9 };
                pieces.borrow_mut().push((tenant, to - from));
            },
        );
        pieces.into_inner()
    }

    #[test]
    fn each_picosecond_is_attributed_to_the_work_that_fills_it() {
        let mut log = Log::default();
        for (started, end, tenant) in [(0, 10, 0), (20, 30, 1), (30, 35, 0), (35, 40, 0)] {
            log.push(started, end, Resource::Wire, tenant);
        }
        assert_eq!(pieces(&log, 5, 38), [(0, 5), (8, 10), (1, 10), (0, 8)]);
        assert_eq!(pieces(&log, 38, 50), [(0, 2), (9, 10)]);
        assert_eq!(pieces(&log, 20, 20), []);
    }

    #[test]
    fn a_remainder_goes_to_the_largest_share() {
        let mut parts = Vec::new();
        split(10, &[1, 2, 0], 7, |tenant, ps| parts.push((tenant, ps)));
        assert_eq!(parts, [(0, 3), (1, 7)]);
        split(10, &[0, 0], 7, |tenant, ps| parts.push((tenant, ps)));
        assert_eq!(parts[2], (7, 10));
    }

    proptest! {
        /// Against the obvious model: every picosecond looked up on its own.
        #[test]
        fn pieces_add_up_and_agree_with_single_picoseconds(
            work in prop::collection::vec((1u64..20, 0u64..5, 0u16..3), 0..30),
            from in 0u64..200, length in 0u64..200,
        ) {
            let (mut log, mut free) = (Log::default(), 0);
            let mut ends = Vec::new();
            for (cost, gap, tenant) in work {
                free += gap + cost;
                log.push(free - cost, free, Resource::Wire, tenant);
                ends.push((free - cost, free, tenant));
            }
            let mut expected = [0u64; 10];
            for at in from..from + length {
                let next = ends.iter().find(|end| end.1 > at);
                let tenant = next.map_or(9, |end| if end.0 <= at { usize::from(end.2) } else { 8 });
                expected[tenant] += 1;
            }
            let mut found = [0u64; 10];
            for (tenant, ps) in pieces(&log, from, from + length) {
                found[usize::from(tenant)] += ps;
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn splits_add_up(ps in 0u64..1_000_000_000_000, shares in prop::collection::vec(0u64..1_000_000, 1..6)) {
            let mut sum = 0;
            split(ps, &shares, 0, |_, part| sum += part);
            prop_assert_eq!(sum, ps);
        }
    }
}
