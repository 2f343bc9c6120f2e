//! Patterns over names: `*` stands for any text, `?` for one character, everything else for itself.

/// True when `pattern` matches the whole of `name`.
///
/// Iterative with one backtrack point, so that no pattern costs more than pattern times name.
pub fn matches(pattern: &str, name: &str) -> bool {
    // Bytes suffice: names are ASCII, as scenario files and claim ids demand.
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at_name < name.len() {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                star = Some((at_pattern, at_name));
                at_pattern += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[at_name] => {
                at_pattern += 1;
                at_name += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    at_pattern = after + 1;
                    at_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("bulk*", "bulk-1", true),
            ("bulk*", "bul", false),
            ("*-1", "bulk-1-1", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("plain", "plain", true),
            ("bulk-?", "bulk-2", true),
            ("bulk-?", "bulk-12", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
