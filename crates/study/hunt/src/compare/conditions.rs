//! The conditions of a finding beside those of the published anomaly that the finding is.
//!
//! A finding counts as found by published conditions alone. Its own conditions are compared only if the finding has the same cause:
//! the mechanism of the model whose removal ends the symptom is that of the published trigger. Rows of a published anomaly that
//! differ in a letter are readings of one work queue (sends or receives); the one that agrees best is compared.

use super::{Agreement, is_row_of, number, row};
use crate::HuntError;
use crate::experiment::{Lab, Target};
use crate::hunt::Anomaly;
use crate::knockout::Knockout;
use crate::known::{Known, KnownSet};
use crate::mfs::FeatureSet;
use crate::region::Region;
use crate::space::Space;
use crate::triggers::triggers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One published anomaly that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The published row.
    pub anomaly: String,
    /// Its conditions, in words.
    pub published: String,
    /// Conditions after the search.
    pub rough: String,
    /// Conditions tested from the corner.
    pub tested: String,
    /// Runs of these tests.
    pub runs: u64,
    /// Conditions after the search against the published ones.
    pub before: Agreement,
    /// Tested conditions against the published ones.
    pub after: Agreement,
    /// Published conditions that the tested ones do not equal: `feature least`, and whether it is named.
    pub differ: Vec<String>,
}

/// Of `findings`, the first of each published anomaly with the cause of its trigger, and the published anomalies whose findings all have
/// another cause. `lab` is the device without a change. Fails if a run fails.
pub fn with_the_same_cause<'a>(
    findings: &'a [Anomaly],
    published: &KnownSet,
    (lab, knockout): (&Lab<'_>, &Knockout<'_>),
    seed: u64,
) -> Result<(BTreeMap<String, &'a Anomaly>, BTreeSet<String>), HuntError> {
    let (mut same, mut other) = (BTreeMap::new(), BTreeSet::new());
    let causes = |point: &_, symptom| -> Result<BTreeSet<&'static str>, HuntError> {
        let counters = lab.measure(point, seed)?.counters;
        let found = knockout.causes((point, symptom), seed, &BTreeSet::new(), &counters)?;
        Ok(found.into_iter().map(|one| one.name).collect())
    };
    let triggers = triggers();
    for anomaly in findings {
        let (Some(set), Some(row)) = (&anomaly.set, row(anomaly, published)) else {
            continue;
        };
        let name = number(row);
        let trigger = triggers.iter().find(|one| one.anomaly == name);
        let Some(trigger) = trigger.filter(|_| !same.contains_key(&name)) else {
            continue;
        };
        let of_trigger = causes(&trigger.point.point(), trigger.symptom)?;
        let of_finding = causes(&set.witness, set.symptom)?;
        match of_trigger.is_disjoint(&of_finding) {
            true => other.insert(name),
            false => same.insert(name, anomaly).is_none(),
        };
    }
    other.retain(|name| !same.contains_key(name));
    Ok((same, other))
}

/// The regions of the `findings` with the symptom of `anomaly`, without its own.
pub fn others<'a>(findings: &'a [Anomaly], anomaly: &Anomaly) -> Vec<&'a Region> {
    let same = findings.iter();
    let same = same.filter(|one| one.symptom == anomaly.symptom && one.number != anomaly.number);
    same.filter_map(|one| Some(&one.set.as_ref()?.region))
        .collect()
}

impl Compared {
    /// Of `anomaly`, which is the published `number`, with conditions that were `tested` in so many runs.
    pub fn of(
        (name, anomaly): (&str, &Anomaly),
        (tested, runs): (&FeatureSet, u64),
        published: &KnownSet,
        space: &Space,
    ) -> Option<Self> {
        let rough = &anomaly.set.as_ref()?.region;
        let against = |row: &Known| {
            let after = Agreement::of(&tested.region, &row.region, space);
            (after.equal, after.named)
        };
        let rows = published.known.iter();
        let rows = rows.filter(|row| number(row) == name && is_row_of(row, anomaly));
        let row = rows.max_by_key(|row| against(row))?;
        Some(Self {
            anomaly: row.name.clone(),
            published: row.region.text(space),
            rough: rough.text(space),
            tested: tested.region.text(space),
            runs,
            before: Agreement::of(rough, &row.region, space),
            after: Agreement::of(&tested.region, &row.region, space),
            differ: Agreement::differing(&tested.region, &row.region, space),
        })
    }

    /// For people: the conditions one below the other.
    pub(super) fn text(&self) -> String {
        let differ = match self.differ.is_empty() {
            true => "all".to_owned(),
            false => format!("all but {}", self.differ.join(", ")),
        };
        format!(
            "{}\n     published: {}\n     after the search: {}\n     tested in {} runs: {}\n     equal: {differ}\n",
            self.anomaly, self.published, self.rough, self.runs, self.tested
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Spent;
    use crate::bounds::Bounds;
    use crate::monitor::Symptom;
    use crate::space::Point;
    use crate::space::point::BIDIRECTIONAL;
    use crate::space::tests::profile;
    use isolane_study_testbed_simulator::SimTestbed;

    fn found(number: u32, point: Point, witness: Point) -> Anomaly {
        Anomaly {
            number,
            symptom: Symptom::PauseFrames,
            point,
            judgement: Default::default(),
            counters: BTreeMap::new(),
            found_at: Spent::default(),
            reduced_at: Spent::default(),
            set: Some(FeatureSet::of(Symptom::PauseFrames, witness)),
            times: 1,
            harm: None,
        }
    }

    /// Short messages of many queue pairs pause too, for lack of lists at hand; the published 9 waits for ordered writes.
    #[test]
    fn a_finding_whose_reduction_led_to_another_mechanism_is_not_compared() {
        let device = profile("cx6-200g-roce");
        let space = Space::of(&device);
        let published = KnownSet::published("cx6-200g-roce", &space)
            .unwrap()
            .unwrap();
        let trigger = |anomaly: &str| {
            let all = triggers();
            let one = all.into_iter().find(|one| one.anomaly == anomaly);
            one.expect("it was published").point.point()
        };
        let short = Point {
            direction: BIDIRECTIONAL,
            queue_pairs: 1_024,
            requests: vec![vec![64]],
            ..space.mild(4)[0].clone()
        };
        let findings = [
            found(1, trigger("9"), short),
            found(2, trigger("13"), trigger("13")),
        ];
        let bounds = Bounds {
            link_gbps: 200.0,
            packets_per_s: 1e9,
            services: Vec::new(),
        };
        let lab = Lab::simulated(&SimTestbed, &device);
        let knockout = Knockout::of(&SimTestbed, &device, &bounds);
        let (same, other) =
            with_the_same_cause(&findings, &published, (&lab, &knockout), 1).unwrap();
        assert_eq!(same.keys().collect::<Vec<_>>(), ["13"]);
        assert_eq!(other, BTreeSet::from(["9".to_owned()]));
    }
}
