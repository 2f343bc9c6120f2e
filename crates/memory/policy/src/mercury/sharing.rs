//! Divides an amount by weight; no share exceeds its demand.
//!
//! Problem: several want more memory than there is. Method: max-min fair shares by weight ("water filling"): who needs
//! less than its share gets its need, the rest divides what remains. Units: bytes. Rounding: down, and the bytes that
//! rounding leaves go one each to the first who still need some. Source: ours.

/// What one of several wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// How much it can use.
    pub need: u64,
    /// Its weight; zero counts as one.
    pub weight: u32,
}

/// The share of each, in the order of `wants`: sums to the smaller of `supply` and all needs.
pub fn water_fill(supply: u64, wants: &[Want]) -> Vec<u64> {
    let mut shares = vec![0; wants.len()];
    let mut order: Vec<usize> = (0..wants.len()).collect();
    let weight = |index: usize| u128::from(wants[index].weight.max(1));
    // Who is satisfied first: need / weight ascending, compared without division.
    order.sort_by(|&a, &b| {
        let left = u128::from(wants[a].need) * weight(b);
        let right = u128::from(wants[b].need) * weight(a);
        left.cmp(&right).then(a.cmp(&b))
    });
    let mut left = u128::from(supply);
    let mut weights: u128 = order.iter().map(|&index| weight(index)).sum();
    let mut open = order.len();
    for (place, &index) in order.iter().enumerate() {
        let need = u128::from(wants[index].need);
        if need * weights > left * weight(index) {
            open = place;
            break;
        }
        shares[index] = wants[index].need;
        left -= need;
        weights -= weight(index);
    }
    let rest = &mut order[open..];
    let mut spent = 0;
    for &index in rest.iter() {
        let share = left * weight(index) / weights;
        shares[index] = u64::try_from(share).expect("a share is at most the need, which fits");
        spent += share;
    }
    rest.sort_unstable();
    let mut over = left - spent;
    for &index in rest.iter() {
        if over > 0 && shares[index] < wants[index].need {
            shares[index] += 1;
            over -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn enough_for_all_gives_each_its_need() {
        let wants = [Want { need: 5, weight: 1 }, Want { need: 7, weight: 9 }];
        assert_eq!(water_fill(20, &wants), [5, 7]);
    }

    #[test]
    fn the_modest_get_their_need_and_the_rest_is_shared_by_weight() {
        let wants = [
            Want { need: 2, weight: 1 },
            Want {
                need: 100,
                weight: 1,
            },
            Want {
                need: 100,
                weight: 3,
            },
        ];
        assert_eq!(water_fill(42, &wants), [2, 10, 30]);
    }

    #[test]
    fn no_application_wants_anything() {
        assert_eq!(water_fill(42, &[]), Vec::<u64>::new());
    }

    /// Byte by byte: the next one goes to the application that has least per weight and still needs some.
    fn slow(supply: u64, wants: &[Want]) -> Vec<u64> {
        let mut shares = vec![0; wants.len()];
        for _ in 0..supply {
            let next = (0..wants.len())
                .filter(|&index| shares[index] < wants[index].need)
                .min_by(|&a, &b| {
                    let left = (shares[a] + 1) * u64::from(wants[b].weight);
                    let right = (shares[b] + 1) * u64::from(wants[a].weight);
                    left.cmp(&right).then(a.cmp(&b))
                });
            let Some(next) = next else { break };
            shares[next] += 1;
        }
        shares
    }

    proptest! {
        #[test]
        fn as_if_given_out_byte_by_byte(
            supply in 0u64..400,
            wants in prop::collection::vec((0u64..120, 1u32..10), 0..8),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(need, weight)| Want { need, weight }).collect();
            let fast = water_fill(supply, &wants);
            let model = slow(supply, &wants);
            prop_assert_eq!(fast.iter().sum::<u64>(), model.iter().sum::<u64>());
            for (index, want) in wants.iter().enumerate() {
                prop_assert!(fast[index] <= want.need);
                // Rounding moves at most one byte per application that is still open.
                prop_assert!(fast[index].abs_diff(model[index]) <= wants.len() as u64, "{:?} {:?}", fast, model);
            }
        }

        #[test]
        fn the_largest_numbers_do_not_overflow(
            supply in any::<u64>(),
            wants in prop::collection::vec((any::<u64>(), any::<u32>()), 0..8),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(need, weight)| Want { need, weight }).collect();
            let shares = water_fill(supply, &wants);
            let given: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            let needed: u128 = wants.iter().map(|want| u128::from(want.need)).sum();
            prop_assert_eq!(given, needed.min(u128::from(supply)));
        }
    }
}
