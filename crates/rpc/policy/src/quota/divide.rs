//! Divides an amount among claims: guarantees first, the rest by weight, no claim more than its demand.
//!
//! Method: each claim gets the lesser of demand and guarantee. The rest is divided max-min by weight: a claim with a
//! demand below its weighted share gets its demand, and its unused share goes to the others. Units: those of the
//! amounts, whole numbers, rounded down for each claim.

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Amount that it would use.
    pub demand: u64,
    /// Amount that it gets first, up to its demand. The sum of all guarantees is at most the amount.
    pub guarantee: u64,
    /// Weight in the division of the rest, at least 1.
    pub weight: u32,
}

/// The amount of each claim. The sum is at most `amount`; if the demands are at least that, only rounding makes it
/// less.
pub fn divide(amount: u64, claims: &[Claim]) -> Vec<u64> {
    let mut parts = Vec::with_capacity(claims.len());
    let mut rest = amount;
    for claim in claims {
        let first = claim.demand.min(claim.guarantee).min(rest);
        rest -= first;
        parts.push(first);
    }
    let wants = |index: usize, parts: &[u64]| claims[index].demand - parts[index];
    let mut order: Vec<usize> = (0..claims.len())
        .filter(|&index| wants(index, &parts) > 0)
        .collect();
    // Smallest demand per weight first: a / v < b / w if a w < b v.
    order.sort_by(|&a, &b| {
        let left = u128::from(wants(a, &parts)) * u128::from(claims[b].weight);
        let right = u128::from(wants(b, &parts)) * u128::from(claims[a].weight);
        left.cmp(&right).then(a.cmp(&b))
    });
    let mut weights: u128 = order
        .iter()
        .map(|&index| u128::from(claims[index].weight))
        .sum();
    for index in order {
        let weight = u128::from(claims[index].weight);
        let fair = u128::from(rest) * weight / weights;
        // At most `rest`, so it fits.
        let part = u128::from(wants(index, &parts)).min(fair) as u64;
        parts[index] += part;
        rest -= part;
        weights -= weight;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference: one unit at a time, to the claim with the least per weight that is below its demand.
    fn one_by_one(amount: u64, claims: &[Claim]) -> Vec<u64> {
        let mut parts: Vec<u64> = claims
            .iter()
            .map(|claim| claim.demand.min(claim.guarantee))
            .collect();
        let first = parts.clone();
        let mut rest = amount - first.iter().sum::<u64>();
        while rest > 0 {
            let hungry = (0..claims.len()).filter(|&index| parts[index] < claims[index].demand);
            let extra = |index: usize| {
                (parts[index] - first[index] + 1) as f64 / f64::from(claims[index].weight)
            };
            let Some(next) = hungry.min_by(|&a, &b| extra(a).total_cmp(&extra(b))) else {
                break;
            };
            parts[next] += 1;
            rest -= 1;
        }
        parts
    }

    fn claims() -> impl Strategy<Value = (u64, Vec<Claim>)> {
        let claim = (0u64..300, 0u64..60, 1u32..9).prop_map(|(demand, guarantee, weight)| Claim {
            demand,
            guarantee,
            weight,
        });
        prop::collection::vec(claim, 0..8).prop_flat_map(|claims| {
            let least = claims.iter().map(|claim| claim.guarantee).sum::<u64>();
            (least..least + 400, Just(claims))
        })
    }

    proptest! {
        #[test]
        fn divides_as_one_unit_at_a_time_would((amount, claims) in claims()) {
            let parts = divide(amount, &claims);
            let slow = one_by_one(amount, &claims);
            for (part, slow) in parts.iter().zip(&slow) {
                // Both round; the last units may go to different claims.
                prop_assert!(part.abs_diff(*slow) <= 8, "{parts:?} {slow:?}");
            }
        }

        #[test]
        fn gives_all_that_is_there_or_wanted_and_keeps_guarantees((amount, claims) in claims()) {
            let parts = divide(amount, &claims);
            let wanted: u64 = claims.iter().map(|claim| claim.demand).sum();
            let sum: u64 = parts.iter().sum();
            prop_assert_eq!(sum, amount.min(wanted), "the last one gets the rest");
            for (part, claim) in parts.iter().zip(&claims) {
                prop_assert!(*part >= claim.demand.min(claim.guarantee));
                prop_assert!(*part <= claim.demand);
            }
        }
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let claim = Claim {
            demand: u64::MAX,
            guarantee: 0,
            weight: u32::MAX,
        };
        let parts = divide(u64::MAX, &[claim; 3]);
        assert_eq!(
            parts.iter().map(|&part| u128::from(part)).sum::<u128>(),
            u128::from(u64::MAX)
        );
    }
}
