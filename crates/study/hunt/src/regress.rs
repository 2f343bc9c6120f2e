//! Known reproducers as a suite: does each anomaly still show, on one device or on several states of it?
//!
//! Problem: a new firmware, driver or setting may bring an anomaly back. Method: a corpus of minimal workloads, from
//! hunts or the published triggers, runs on every profile with a few seeds; each profile has bounds of its own. A
//! reproducer *shows* where every run shows its symptom, is *sound* where no run shows any, and is *unsteady* else. The
//! first profile is the baseline: a reproducer that shows on a later profile and not on the first is a regression.
//! Limits: a profile represents firmware, driver and settings; simulated devices only. Source: ours.

use crate::HuntError;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::hunt::HuntResult;
use crate::monitor::{Judgement, Symptom, judge};
use crate::space::{Point, Space};
use crate::triggers::triggers;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;

/// Raised when [`Regression`] changes its meaning.
pub const REGRESS_VERSION: u32 = 1;

/// A workload that showed an anomaly.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproducer {
    /// Its name.
    pub name: String,
    /// What was seen.
    pub symptom: Symptom,
    /// The workload.
    pub point: Point,
}

/// The reproducers of a hunt, named after `source`.
pub fn of_hunt(result: &HuntResult, source: &str) -> Vec<Reproducer> {
    let all = result.anomalies.iter().map(|anomaly| Reproducer {
        name: format!("{source}#{}", anomaly.number),
        symptom: anomaly.symptom,
        point: anomaly
            .set
            .as_ref()
            .map_or(&anomaly.point, |set| &set.witness)
            .clone(),
    });
    all.collect()
}

/// The published triggers of the device with this profile.
pub fn published(profile: &str) -> Vec<Reproducer> {
    let all = triggers().into_iter().filter(|one| one.profile == profile);
    let all = all.map(|one| Reproducer {
        name: format!("collie#{}", one.anomaly),
        symptom: one.symptom,
        point: one.point.point(),
    });
    all.collect()
}

/// What a reproducer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every run shows the symptom.
    Shows,
    /// No run shows any symptom.
    Sound,
    /// Runs differ, or show another symptom.
    Unsteady,
    /// The device cannot run the workload.
    Impossible,
}

impl Verdict {
    /// As tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shows => "shows",
            Self::Sound => "sound",
            Self::Unsteady => "unsteady",
            Self::Impossible => "impossible",
        }
    }
}

/// One reproducer on one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The reproducer.
    pub name: String,
    /// Its symptom.
    pub symptom: Symptom,
    /// What it did.
    pub verdict: Verdict,
    /// Each run.
    pub runs: Vec<Judgement>,
    /// Why the device cannot run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// All reproducers on one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// The profile.
    pub profile: String,
    /// In the order of the corpus.
    pub cases: Vec<Case>,
}

/// All suites, the baseline first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Regression {
    /// [`REGRESS_VERSION`].
    pub version: u32,
    /// By profile.
    pub suites: Vec<Suite>,
    /// Reproducers that show on a later profile and not on the first.
    pub regressions: Vec<String>,
}

/// Runs `corpus` on each of `profiles` with `seeds` runs each.
///
/// # Errors
/// Where a run fails.
pub fn regress(
    testbed: &dyn Testbed,
    profiles: &[(String, Profile)],
    corpus: &[Reproducer],
    seeds: u64,
) -> Result<Regression, HuntError> {
    let suites = profiles.iter().map(|(name, profile)| {
        let lab = Lab::simulated(testbed, profile);
        let bounds = Bounds::measure(&lab, profile, 1)?;
        let space = Space::of(profile);
        let cases = corpus
            .iter()
            .map(|one| case(&lab, &bounds, &space, one, seeds));
        Ok(Suite {
            profile: name.clone(),
            cases: cases.collect::<Result<_, HuntError>>()?,
        })
    });
    let suites: Vec<Suite> = suites.collect::<Result<_, HuntError>>()?;
    let shows = |suite: &Suite, index: usize| suite.cases[index].verdict == Verdict::Shows;
    let worse = (0..corpus.len()).filter(|&index| {
        let mut later = suites.iter().skip(1);
        !suites.first().is_none_or(|first| shows(first, index)) && later.any(|s| shows(s, index))
    });
    let regressions = worse.map(|index| corpus[index].name.clone()).collect();
    Ok(Regression {
        version: REGRESS_VERSION,
        suites,
        regressions,
    })
}

fn case(
    lab: &Lab<'_>,
    bounds: &Bounds,
    space: &Space,
    one: &Reproducer,
    seeds: u64,
) -> Result<Case, HuntError> {
    let mut runs = Vec::new();
    // Published triggers have shorter receive queues than a search proposes, so only the device's own limits count.
    let reason = space.limits(&one.point).err();
    if reason.is_none() {
        for seed in 1..=seeds {
            let measured = lab.measure(&one.point, seed)?;
            runs.push(judge(&one.point, &measured, bounds));
        }
    }
    let verdict = match () {
        () if reason.is_some() => Verdict::Impossible,
        () if runs.iter().all(|run| run.symptom == Some(one.symptom)) => Verdict::Shows,
        () if runs.iter().all(|run| run.symptom.is_none()) => Verdict::Sound,
        () => Verdict::Unsteady,
    };
    Ok(Case {
        name: one.name.clone(),
        symptom: one.symptom,
        verdict,
        runs,
        reason,
    })
}

impl Regression {
    /// Whether some reproducer shows on the first profile.
    pub fn shows(&self) -> bool {
        let first = self.suites.first();
        first.is_some_and(|suite| suite.cases.iter().any(|c| c.verdict == Verdict::Shows))
    }

    /// For people: a row per reproducer, a column per profile.
    pub fn text(&self) -> String {
        let mut rows = vec![vec!["reproducer".to_owned(), "symptom".to_owned()]];
        rows[0].extend(self.suites.iter().map(|suite| suite.profile.clone()));
        let cases = self.suites.first().map_or(0, |suite| suite.cases.len());
        for index in 0..cases {
            let first = &self.suites[0].cases[index];
            let mut row = vec![first.name.clone(), first.symptom.name().to_owned()];
            let verdicts = self.suites.iter().map(|suite| &suite.cases[index]);
            row.extend(verdicts.map(|case| case.verdict.name().to_owned()));
            rows.push(row);
        }
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        if self.suites.len() > 1 {
            text.push_str(&match self.regressions.len() {
                0 => "no regressions\n".to_owned(),
                count => format!(
                    "{}: {}\n",
                    counted(count as u64, "regression"),
                    self.regressions.join(", ")
                ),
            });
        }
        text
    }

    /// As JUnit XML: a suite per profile; a reproducer that shows is a failure. Equal results give equal files.
    pub fn junit(&self) -> String {
        let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut xml)
            .expect("writing to memory does not fail");
        let mut bytes = xml.into_inner();
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("the writer was given text only")
    }

    fn write(&self, xml: &mut Writer<Vec<u8>>) -> io::Result<()> {
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        xml.write_event(start("testsuites", &[("name", "isolane regress")]))?;
        for suite in &self.suites {
            let count = |verdict: &[Verdict]| {
                let all = suite.cases.iter();
                all.filter(|c| verdict.contains(&c.verdict))
                    .count()
                    .to_string()
            };
            let attributes = [
                ("name", suite.profile.as_str()),
                ("tests", &suite.cases.len().to_string()),
                ("failures", &count(&[Verdict::Shows])),
                ("skipped", &count(&[Verdict::Unsteady, Verdict::Impossible])),
                ("errors", "0"),
            ];
            xml.write_event(start("testsuite", &attributes))?;
            for case in &suite.cases {
                write_case(xml, &suite.profile, case)?;
            }
            xml.write_event(Event::End(BytesEnd::new("testsuite")))?;
        }
        xml.write_event(Event::End(BytesEnd::new("testsuites")))
    }
}

fn write_case(xml: &mut Writer<Vec<u8>>, profile: &str, case: &Case) -> io::Result<()> {
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
    xml.write_event(Event::End(BytesEnd::new(kind)))?;
    xml.write_event(Event::End(BytesEnd::new("testcase")))
}

fn start<'a>(name: &'a str, attributes: &[(&str, &str)]) -> Event<'a> {
    Event::Start(element(name, attributes))
}

fn element<'a>(name: &'a str, attributes: &[(&str, &str)]) -> BytesStart<'a> {
    BytesStart::new(name).with_attributes(attributes.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;
    use expect_test::expect;
    use isolane_study_testbed_simulator::SimTestbed;

    #[test]
    fn a_wider_path_to_the_other_socket_ends_one_anomaly_and_the_way_back_is_a_regression() {
        let now = profile("cx6-200g-roce");
        let mut wider = now.clone();
        let parameter = wider
            .section_mut("microarchitecture")
            .and_then(|section| section.get_mut("remote_socket_gbps"));
        parameter.expect("the profile has it").value *= 10.0;
        let corpus: Vec<Reproducer> = published("cx6-200g-roce")
            .into_iter()
            .filter(|one| ["collie#3", "collie#11"].contains(&one.name.as_str()))
            .collect();
        let profiles = [("wider".to_owned(), wider), ("now".to_owned(), now)];
        let result = regress(&SimTestbed, &profiles, &corpus, 2).unwrap();
        expect![[r#"
            reproducer  symptom       wider  now
            collie#3    pause frames  shows  shows
            collie#11   pause frames  sound  shows
            1 regression: collie#11
        "#]]
        .assert_eq(&result.text());
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="isolane regress">
              <testsuite name="wider" tests="2" failures="1" skipped="0" errors="0">
                <testcase classname="isolane.regress.wider" name="collie#3">
                  <failure message="pause frames in every run">pause frames in every run</failure>
                </testcase>
                <testcase classname="isolane.regress.wider" name="collie#11"/>
              </testsuite>
              <testsuite name="now" tests="2" failures="2" skipped="0" errors="0">
                <testcase classname="isolane.regress.now" name="collie#3">
                  <failure message="pause frames in every run">pause frames in every run</failure>
                </testcase>
                <testcase classname="isolane.regress.now" name="collie#11">
                  <failure message="pause frames in every run">pause frames in every run</failure>
                </testcase>
              </testsuite>
            </testsuites>
        "#]]
        .assert_eq(&result.junit());
    }
}
