//! Names by pattern: `*` matches any text, `?` one character, commas separate alternatives.

/// True when `name` matches one of the comma-separated patterns of `globs`.
pub fn matches(globs: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    globs.split(',').any(|glob| {
        let glob: Vec<char> = glob.trim().chars().collect();
        one(&glob, &name)
    })
}

/// Greedy matching with one step back to the latest star: linear in practice, never exponential.
fn one(glob: &[char], name: &[char]) -> bool {
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    g = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_whole_names() {
        assert!(matches("small_*", "small_tput_ib_write_bw"));
        assert!(matches("*read*", "te_many_read_x"));
        assert!(matches("a?c, x", "abc"));
        assert!(matches("a?c, x", "x"));
        assert!(!matches("small", "small_tput"));
        assert!(!matches("", "a"));
    }

    /// The obvious recursive definition.
    fn model(glob: &[char], name: &[char]) -> bool {
        match (glob.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                model(&glob[1..], name) || (!name.is_empty() && model(glob, &name[1..]))
            }
            (Some('?'), Some(_)) => model(&glob[1..], &name[1..]),
            (Some(g), Some(n)) => g == n && model(&glob[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_equals_its_definition(glob in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let (g, n): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
            prop_assert_eq!(one(&g, &n), model(&g, &n));
        }
    }
}
