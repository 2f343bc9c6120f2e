//! Suites as JUnit XML, for CI.
//!
//! A suite per state of the device; a reproducer that shows is a failure, one that is unsteady or impossible is skipped. What
//! a suite ran on becomes its properties; with several suites only what differs between them. Equal results give equal files.

use super::{Case, Regression, Suite, Verdict};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use std::io;

type Xml = Writer<Vec<u8>>;

impl Regression {
    /// As JUnit XML.
    pub fn junit(&self) -> String {
        let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut xml)
            .expect("writing to memory does not fail");
        let mut bytes = xml.into_inner();
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("the writer was given text only")
    }

    fn write(&self, xml: &mut Xml) -> io::Result<()> {
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        xml.write_event(start("testsuites", &[("name", "isolane regress")]))?;
        let differs = |name: &String| {
            let values = || self.suites.iter().map(|suite| suite.environment.get(name));
            self.suites.len() == 1 || values().any(|value| Some(value) != values().next())
        };
        for suite in &self.suites {
            let all = suite.environment.iter();
            let shown: Vec<_> = all.filter(|(name, _)| differs(name)).collect();
            write_suite(xml, suite, &shown)?;
        }
        xml.write_event(end("testsuites"))
    }
}

fn write_suite(xml: &mut Xml, suite: &Suite, shown: &[(&String, &String)]) -> io::Result<()> {
    let count = |verdicts: &[Verdict]| {
        let cases = suite.cases.iter();
        let cases = cases.filter(|case| verdicts.contains(&case.verdict));
        cases.count().to_string()
    };
    let attributes = [
        ("name", suite.profile.as_str()),
        ("tests", &suite.cases.len().to_string()),
        ("failures", &count(&[Verdict::Shows])),
        ("skipped", &count(&[Verdict::Unsteady, Verdict::Impossible])),
        ("errors", "0"),
    ];
    xml.write_event(start("testsuite", &attributes))?;
    if !shown.is_empty() {
        xml.write_event(start("properties", &[]))?;
        for (name, value) in shown {
            let attributes = [("name", name.as_str()), ("value", value.as_str())];
            xml.write_event(Event::Empty(element("property", &attributes)))?;
        }
        xml.write_event(end("properties"))?;
    }
    for case in &suite.cases {
        write_case(xml, &suite.profile, case)?;
    }
    xml.write_event(end("testsuite"))
}

fn write_case(xml: &mut Xml, profile: &str, case: &Case) -> io::Result<()> {
    let class = format!("isolane.regress.{profile}");
    let attributes = [("classname", class.as_str()), ("name", case.name.as_str())];
    let message = match (case.verdict, &case.reason) {
        (Verdict::Sound, _) => {
            return xml.write_event(Event::Empty(element("testcase", &attributes)));
        }
        (Verdict::Impossible, Some(reason)) => reason.clone(),
        (Verdict::Shows, _) => format!("{} in every run", case.symptom.name()),
        _ => format!("{} in some runs only", case.symptom.name()),
    };
    let kind = match case.verdict {
        Verdict::Shows => "failure",
        _ => "skipped",
    };
    xml.write_event(start("testcase", &attributes))?;
    xml.write_event(start(kind, &[("message", &message)]))?;
    xml.write_event(Event::Text(BytesText::new(&message)))?;
    xml.write_event(end(kind))?;
    xml.write_event(end("testcase"))
}

fn start<'a>(name: &'a str, attributes: &[(&str, &str)]) -> Event<'a> {
    Event::Start(element(name, attributes))
}

fn end(name: &str) -> Event<'_> {
    Event::End(BytesEnd::new(name))
}

fn element<'a>(name: &'a str, attributes: &[(&str, &str)]) -> BytesStart<'a> {
    BytesStart::new(name).with_attributes(attributes.iter().copied())
}
