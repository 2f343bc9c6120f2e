//! New values in a profile's text: comments, order and sources stay as they are.

use crate::CalibrationError;
use isolane_rdma_scenario::profile::TokenSize;

/// Replaces the value of `name` in `[section]`. Fails if the text has no such parameter on a line of its own.
pub fn set_value(
    text: &str,
    section: &str,
    name: &str,
    value: f64,
) -> Result<String, CalibrationError> {
    let mut inside = false;
    let mut changed = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            inside = line.trim() == format!("[{section}]");
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        if inside && key == name && !changed {
            let (before, rest) = line.split_once("value").unwrap_or((line, ""));
            let after = rest.split_once(',').map(|(_, after)| after);
            let Some(after) = after else { break };
            lines.push(format!("{before}value = {value},{after}"));
            changed = true;
        } else {
            lines.push(line.to_owned());
        }
    }
    if !changed {
        return Err(CalibrationError::Line {
            section: section.to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(lines.join("\n") + "\n")
}

/// Replaces the value, kind and source of a parameter, `(section, name)`, that was measured. Fails if the text has no
/// such parameter on a line of its own.
pub fn set_measured(
    text: &str,
    (section, name): (&str, &str),
    value: f64,
    source: &str,
) -> Result<String, CalibrationError> {
    let text = set_value(text, section, name, value)?;
    let mut inside = false;
    let lines = text.lines().map(|line| {
        if line.trim_start().starts_with('[') {
            inside = line.trim() == format!("[{section}]");
        }
        match line.split_once('=') {
            Some((key, _)) if inside && key.trim() == name => {
                format!("{key}= {{ value = {value}, kind = \"calibrated\", source = {source:?} }}")
            }
            _ => line.to_owned(),
        }
    });
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}

/// Replaces the whole token dictionary, which is at the end of a profile.
pub fn set_dictionary(text: &str, entries: &[TokenSize]) -> String {
    let head = text
        .split("[[token_dictionary]]")
        .next()
        .unwrap_or_default()
        .trim_end();
    let mut text = head.to_owned() + "\n";
    for entry in entries {
        text += &format!(
            "\n[[token_dictionary]]\nrate_gbps = {}\ntoken_bytes = {}\n",
            entry.rate_gbps, entry.token_bytes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const TEXT: &str = "\
[link]
rate_gbps = { value = 100, kind = \"published\", source = \"a, b\" } # kept
[pcie]
rate_gbps = { value = 128, kind = \"published\", source = \"c\" }

[[token_dictionary]]
rate_gbps = 1
token_bytes = 2
";

    #[test]
    fn one_value_changes_and_nothing_else() {
        let text = set_value(TEXT, "pcie", "rate_gbps", 64.5).unwrap();
        let text = set_dictionary(
            &text,
            &[TokenSize {
                rate_gbps: 9.5,
                token_bytes: 512,
            }],
        );
        expect![[r#"
            [link]
            rate_gbps = { value = 100, kind = "published", source = "a, b" } # kept
            [pcie]
            rate_gbps = { value = 64.5, kind = "published", source = "c" }

            [[token_dictionary]]
            rate_gbps = 9.5
            token_bytes = 512
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_missing_parameter_is_an_error() {
        assert!(set_value(TEXT, "wqe", "bytes", 1.0).is_err());
    }
}
