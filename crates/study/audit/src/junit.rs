//! The matrix as JUnit XML: one test suite per policy, one test case per cell.
//!
//! A violation is a failure with its sentence; a cell that does not apply or did not settle is skipped with its reason. No times
//! and no host name are written, so equal audits give equal files.

use crate::cell::{Cell, Verdict};
use crate::matrix::AuditResult;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use std::collections::BTreeMap;
use std::io;

/// The XML document, ending in a newline.
pub fn to_xml(result: &AuditResult) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    write(&mut writer, result).expect("writing to memory does not fail");
    let mut xml = writer.into_inner();
    xml.push(b'\n');
    String::from_utf8(xml).expect("the writer was given text only")
}

type Xml = Writer<Vec<u8>>;

fn write(xml: &mut Xml, result: &AuditResult) -> io::Result<()> {
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let category: BTreeMap<&str, &str> = result
        .attackers
        .iter()
        .map(|attacker| (attacker.name.as_str(), attacker.category.as_str()))
        .collect();
    let root = format!("isolane audit of {}", result.profile);
    xml.write_event(start("testsuites", &[("name", &root)]))?;
    for summary in &result.summaries {
        let skipped = summary.not_applicable + summary.not_settled;
        let tests = (summary.cells + skipped).to_string();
        xml.write_event(start(
            "testsuite",
            &[
                ("name", &summary.policy),
                ("tests", &tests),
                ("failures", &summary.violations.to_string()),
                ("skipped", &skipped.to_string()),
                ("errors", "0"),
            ],
        ))?;
        for cell in result.cells.iter().filter(|c| c.policy == summary.policy) {
            let category = category.get(cell.attacker.as_str()).unwrap_or(&"other");
            test_case(xml, cell, category)?;
        }
        xml.write_event(Event::End(BytesEnd::new("testsuite")))?;
    }
    xml.write_event(Event::End(BytesEnd::new("testsuites")))
}

fn test_case(xml: &mut Xml, cell: &Cell, category: &str) -> io::Result<()> {
    let name = format!("{} under {}", cell.victim, cell.attacker);
    let class = format!("isolane.audit.{}.{category}", cell.policy);
    let attributes = [("classname", class.as_str()), ("name", name.as_str())];
    let child = match cell.verdict {
        Verdict::Pass => {
            let Event::Start(element) = start("testcase", &attributes) else {
                unreachable!("start() makes start events")
            };
            return xml.write_event(Event::Empty(element));
        }
        Verdict::Violation => "failure",
        Verdict::NotApplicable | Verdict::NotSettled => "skipped",
    };
    xml.write_event(start("testcase", &attributes))?;
    xml.write_event(start(child, &[("message", &cell.why)]))?;
    if let Some(expected) = &cell.expected {
        let text = format!("owed: {}", expected.rule);
        xml.write_event(Event::Text(BytesText::new(&text)))?;
    }
    xml.write_event(Event::End(BytesEnd::new(child)))?;
    xml.write_event(Event::End(BytesEnd::new("testcase")))
}

fn start<'a>(name: &'a str, attributes: &[(&'a str, &'a str)]) -> Event<'a> {
    let element = BytesStart::new(name).with_attributes(attributes.iter().copied());
    Event::Start(element)
}
