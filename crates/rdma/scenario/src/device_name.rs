//! What to say of a device profile that does not exist: the name that was meant, or the nearest device there is.
//!
//! Problem: names of devices look alike, so the nearest spelling of a device that is not there is another device: of
//! `cx7-400g` it would be `cx4-100g-ib`, seven years older. Method: the nearest spelling is what was meant only where it has
//! the same numbers, or begins with them. Otherwise the nearest device of the same family is named as such: first by
//! generation, then by rate.

use isolane_common_toml_input::error::nearest;

/// Where the documents say how to make a profile.
const GUIDE: &str = "docs/guides/adding-a-profile.md";

/// What follows on `profile NAME: unknown`, where `known` are the names that there are.
pub fn unknown_profile<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let wanted = numbers(name);
    let same_numbers = |other: &&str| !wanted.is_empty() && numbers(other).starts_with(&wanted);
    let candidates = known.clone().filter(same_numbers);
    let meant = match wanted.is_empty() {
        true => nearest(name, known.clone()),
        false => nearest(name, candidates),
    };
    if let Some(meant) = meant {
        return format!("; did you mean {meant}?");
    }
    let all = known.clone().collect::<Vec<_>>().join(", ");
    let kin = match kin(name, known) {
        Some(kin) => format!("; the nearest in generation and rate is {kin}"),
        None => String::new(),
    };
    format!(
        "{kin}; there are {all}; to add a device, write its profile ({GUIDE}) and give --profile FILE"
    )
}

/// The name of the same family whose generation, and then rate, is nearest; none where there is no such family.
fn kin<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let family = family(name);
    let (generation, rate) = generation_and_rate(name);
    let distance = |other: &str| {
        let (other_generation, other_rate) = generation_and_rate(other);
        let steps = generation.abs_diff(other_generation);
        // Rates are compared as ratios: twice as fast is as far as half as fast.
        let rates = match (rate, other_rate) {
            (0, _) | (_, 0) => 0.0,
            (one, other) => (f64::from(one) / f64::from(other)).ln().abs(),
        };
        (steps, rates)
    };
    let relatives = known.filter(|other| !family.is_empty() && self::family(other) == family);
    relatives.min_by(|one, other| {
        let (one, other) = (distance(one), distance(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    })
}

/// `cx` of `cx7-400g`.
fn family(name: &str) -> String {
    let letters = name.chars().take_while(char::is_ascii_alphabetic);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// 7 and 400 of `cx7-400g`; a rate that is not there is 0.
fn generation_and_rate(name: &str) -> (u32, u32) {
    let numbers = numbers(name);
    let of = |index: usize| numbers.get(index).copied().unwrap_or(0);
    (of(0), of(1))
}

/// The whole numbers in `name`, in its order.
fn numbers(name: &str) -> Vec<u32> {
    let words = name.split(|letter: char| !letter.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "cx3pro-56g-ib",
        "cx4-100g-ib",
        "cx5-100g-roce",
        "cx6-200g-roce",
        "cx6dx-25g-roce",
        "t62100-40g-iwarp",
    ];

    fn of(name: &str) -> String {
        unknown_profile(name, KNOWN.into_iter())
    }

    #[test]
    fn a_misspelt_device_is_named() {
        for (wrong, meant) in [
            ("cx5-100g-rose", "cx5-100g-roce"),
            ("cx5", "cx5-100g-roce"),
            ("CX6-200g", "cx6-200g-roce"),
            ("cx6dx", "cx6dx-25g-roce"),
            ("cx6-25g-ib", "cx6dx-25g-roce"),
        ] {
            assert_eq!(of(wrong), format!("; did you mean {meant}?"));
        }
    }

    #[test]
    fn a_device_that_is_not_there_gets_its_nearest_relative_and_the_way_to_add_it() {
        for (wrong, kin) in [("cx7-400g", "cx6-200g-roce"), ("cx4-200g", "cx4-100g-ib")] {
            let said = of(wrong);
            let start = format!("; the nearest in generation and rate is {kin}; there are cx3pro");
            assert!(said.starts_with(&start), "{said}");
            assert!(said.contains("adding-a-profile.md"), "{said}");
        }
        let said = of("e810-100g");
        assert!(said.starts_with("; there are cx3pro-56g-ib, "), "{said}");
    }
}
