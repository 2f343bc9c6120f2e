//! Weighted max-min with a most for each: how a rate is divided among those who want some of it.
//!
//! Method: progressive filling, twice. First up to each demand; the remainder then goes to all by weight, up to the
//! maximum of each. Units: bytes per second, rounded down. Source: the textbook's.

/// One receiver of a part of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Whose; breaks ties.
    pub id: u32,
    /// At least one.
    pub weight: u32,
    /// What it can use; [`EVERYTHING`] is more than there is. At most `most`.
    pub demand: u64,
    /// What it may have; [`EVERYTHING`] where nothing limits it.
    pub most: u64,
    /// What it gets: the answer.
    pub share: u64,
}

/// A demand without end, or no limit.
pub const EVERYTHING: u64 = u64::MAX;

/// Divides `rate` among `wants`, which it reorders. Rate without demand is added by weight; rate above all maxima is
/// left over.
pub fn fill(rate: u64, wants: &mut [Want]) {
    let left = pour(rate, wants, |want| want.demand);
    if left == 0 {
        return;
    }
    if wants.iter().all(|want| want.most == EVERYTHING) {
        let total: u64 = wants.iter().map(|want| u64::from(want.weight)).sum();
        for want in wants {
            want.share += part(left, u64::from(want.weight), total);
        }
        return;
    }
    let _nobody_may_have = pour(left, wants, |want| want.most.saturating_sub(want.share));
}

/// Adds to the shares: no share exceeds `need` before each one has either its need or its weight's part. Returns the
/// remainder when all needs are met.
fn pour(rate: u64, wants: &mut [Want], need: impl Fn(&Want) -> u64) -> u64 {
    wants.sort_unstable_by(|a, b| {
        let left = u128::from(need(a)) * u128::from(b.weight);
        let right = u128::from(need(b)) * u128::from(a.weight);
        left.cmp(&right).then(a.id.cmp(&b.id))
    });
    let mut weight: u64 = wants.iter().map(|want| u64::from(want.weight)).sum();
    let mut left = rate;
    for index in 0..wants.len() {
        let want = &mut wants[index];
        let (own, needed) = (u64::from(want.weight), need(want));
        if needed > part(left, own, weight) {
            // All that follow need more still: each of them gets its weight's part.
            for want in &mut wants[index..] {
                want.share += part(left, u64::from(want.weight), weight);
            }
            return 0;
        }
        want.share += needed;
        left -= needed;
        weight -= own;
    }
    left
}

/// `value * numerator / denominator`, rounded down.
pub(super) fn part(value: u64, numerator: u64, denominator: u64) -> u64 {
    let exact = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}
