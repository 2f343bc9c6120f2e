//! The page around every report: escaping, embedded data, style, script, and the parts all pages share.
//!
//! Text from a user (names, rules, evidence) passes [`escape`] before markup and [`embed`] before a script element;
//! there is no other way into a page. The content security policy of the page forbids network access, so a mistake here
//! cannot send data.

use serde_json::Value;
use std::fmt::Write;

/// Text made safe for element content and for double-quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Controls (other than space) are not allowed in HTML or SVG text, not even escaped.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {
                out.push('\u{fffd}')
            }
            other => out.push(other),
        }
    }
    out
}

/// JSON for a script element: no `<`, `>` or `&`, so no end tag and no comment can begin in it.
pub(crate) fn embed(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// Appends formatted text to `out`, as `write!` does, which cannot fail for a string.
pub(crate) fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments)
        .expect("writing to a String succeeds");
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Page<'a> {
    pub title: &'a str,
    /// What the page is about, for search and previews, as text.
    pub description: &'a str,
    /// Markup of the body, without the bar at the top.
    pub body: &'a str,
    /// Data for the scripts, if any.
    pub data: Option<&'a Value>,
    /// Scripts after the shared one, in order.
    pub scripts: &'a [&'a str],
    /// The line at the bottom, as markup.
    pub footer: &'a str,
}

impl Page<'_> {
    /// A page without data and further scripts, made from `source` ("results in JSON form 1").
    pub(crate) fn plain(title: &str, description: &str, body: &str, source: &str) -> String {
        let footer = format!(
            "Made by Isolane from {source}. Everything is in this file; it needs no network."
        );
        Page {
            title,
            description,
            body,
            footer: &footer,
            ..Page::default()
        }
        .render()
    }

    /// The whole file.
    pub(crate) fn render(&self) -> String {
        let title = escape(self.title);
        let description = escape(self.description);
        let data = self.data.map_or(String::new(), |data| {
            format!(
                "<script type=\"application/json\" id=\"data\">{}</script>\n",
                embed(data)
            )
        });
        let scripts: String = [SHARED_SCRIPT]
            .iter()
            .chain(self.scripts)
            .map(|script| format!("<script>\n{script}</script>\n"))
            .collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"description\" content=\"{description}\">\n\
             <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the results</a>\n\
             <div class=\"bar\"><span class=\"mark\">{MARK}Isolane</span>\
             <span class=\"bar-buttons\"><button type=\"button\" id=\"theme\" class=\"quiet\">Theme</button>\
             <button type=\"button\" id=\"print\" class=\"quiet\">Print</button></span></div>\n\
             {body}\n<footer>{footer}</footer>\n{data}{scripts}</body>\n</html>\n",
            body = self.body,
            footer = self.footer,
        )
    }
}

/// How a page begins: what it is about, its verdict in one sentence, and one plot that shows the verdict. Details come
/// after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening<'a> {
    /// Above the title: device, testbed, seeds; as markup.
    pub kicker: &'a str,
    pub title: &'a str,
    /// Which tenant is hurt and by how much, or that none is: one sentence with units and a full stop; as text.
    pub verdict: &'a str,
    /// What was run, as text; may be empty.
    pub about: &'a str,
    /// The figure, as markup.
    pub plot: &'a str,
}

impl Opening<'_> {
    /// The markup.
    pub(crate) fn render(&self) -> String {
        let about = match self.about {
            "" => String::new(),
            about => format!("<p class=\"lede\">{}</p>", escape(about)),
        };
        format!(
            "<header>\n<p class=\"kicker\">{}</p>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n{about}</header>\n\
             <div class=\"opening\">{}</div>\n",
            self.kicker,
            escape(self.title),
            escape(self.verdict),
            self.plot
        )
    }
}

/// The page of a list of results that is empty.
pub(crate) fn nothing() -> String {
    Page {
        title: "No runs",
        description: "A report without runs",
        body: "<main id=\"main\"><header><h1>No runs</h1><p>There was nothing to report.</p></header></main>",
        ..Page::default()
    }
    .render()
}

/// Words in a row: `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A figure with a caption and buttons that save its plot as an SVG or a PNG file. `name` is the file's stem;
/// `caption` and `plot` are markup.
pub(crate) fn figure(name: &str, caption: &str, plot: &str) -> String {
    format!(
        "<figure data-name=\"{}\"><figcaption>{caption}</figcaption>{plot}\
         <div class=\"save\"><button type=\"button\" class=\"quiet\" data-save=\"svg\">SVG</button>\
         <button type=\"button\" class=\"quiet\" data-save=\"png\">PNG</button></div></figure>\n",
        escape(name)
    )
}

/// A table of `columns` (`texts` of text first, then numbers) with `rows`, as markup; cells are markup. `label` names it to
/// screen readers; it scrolls where it is too wide.
pub(crate) fn table(
    label: &str,
    columns: &[&str],
    texts: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let head: String = columns
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let class = if index < texts { "" } else { " class=\"n\"" };
            format!("<th scope=\"col\"{class}>{}</th>", escape(name))
        })
        .collect();
    let rows: String = rows
        .into_iter()
        .map(|cells| {
            let cells: String = cells
                .into_iter()
                .enumerate()
                .map(|(index, cell)| match index {
                    0 => format!("<th scope=\"row\">{cell}</th>"),
                    _ if index < texts => format!("<td>{cell}</td>"),
                    _ => format!("<td class=\"n\">{cell}</td>"),
                })
                .collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"scroller\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table class=\"plain\"><thead><tr>{head}</tr>\
         </thead><tbody>\n{rows}</tbody></table></div>",
        escape(label)
    )
}

/// Nothing is fetched: styles and scripts are the page's own, images are drawn by it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";

// The two files are in the Python package, because a wheel can hold only files of its package.
const STYLE: &str = include_str!("../../../../python/isolane/planner/assets/style.css");
const SHARED_SCRIPT: &str = include_str!("../../../../python/isolane/planner/assets/shared.js");

/// Three lanes, one of them narrower: the product's mark.
const MARK: &str = "<svg viewBox=\"0 0 20 20\" width=\"20\" height=\"20\" aria-hidden=\"true\">\
     <rect class=\"mark-a\" x=\"1\" y=\"2\" width=\"18\" height=\"4\" rx=\"2\"/>\
     <rect class=\"mark-b\" x=\"1\" y=\"8\" width=\"11\" height=\"4\" rx=\"2\"/>\
     <rect class=\"mark-a\" x=\"1\" y=\"14\" width=\"18\" height=\"4\" rx=\"2\"/></svg>";

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn markup_in_a_name_becomes_text() {
        let escaped = escape("<b onclick=\"x\">R&D's\u{7}</b>");
        expect!["&lt;b onclick=&quot;x&quot;&gt;R&amp;D&#39;s\u{fffd}&lt;/b&gt;"]
            .assert_eq(&escaped);
    }

    #[test]
    fn data_cannot_end_its_script() {
        let embedded = embed(&serde_json::json!({"a": "</script><!--<script>&\u{2028}"}));
        expect![[r#"{"a":"\u003c/script\u003e\u003c!--\u003cscript\u003e\u0026\u2028"}"#]]
            .assert_eq(&embedded);
    }

    proptest! {
        #[test]
        fn any_text_is_inert_and_comes_back(text in any::<String>(), key in any::<String>()) {
            let value = serde_json::json!({ key.clone(): text.clone() });
            let embedded = embed(&value);
            let inert = !embedded.contains(['<', '>', '&', '\u{2028}', '\u{2029}']);
            prop_assert!(inert);
            prop_assert_eq!(serde_json::from_str::<Value>(&embedded).expect("embedded JSON parses"), value);
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn a_page_has_no_script_but_its_own(text in ".*(</script>|<script>|<!--|<img onerror=x>).*") {
            let data = serde_json::json!([text]);
            let body = escape(&text);
            let page = Page { title: &text, description: &text, body: &body, data: Some(&data), scripts: &["1;\n"],
                footer: "" };
            let rendered = page.render();
            prop_assert_eq!(rendered.matches("<script").count(), 3);
            prop_assert_eq!(rendered.matches("</script").count(), 3);
            prop_assert_eq!(rendered.matches("<img").count(), 0);
        }
    }
}
