//! What becomes of an anomalous workload of a hunt: a known anomaly again, or a new one with its conditions.

use super::{Anomaly, Run};
use crate::bench::{Bench, Stop};
use crate::mfs::reverts::{self, reverts};
use crate::mfs::triage::{Triage, triage, widened};
use crate::mfs::{FIRST_REPEAT, FeatureSet, Merged, merge, reduce, rough};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::rule::Rule;
use crate::search;
use crate::space::{Feature, Point};
use crate::victim::Harm;
use isolane_common_quantities::rng::Stream;

/// What a reduction gave: an anomaly that is new, or none; with a stop what is known of it then.
type Reduced = Result<Option<Anomaly>, Box<(Anomaly, Stop)>>;

impl Run<'_> {
    /// Whether `anomaly` is one that is known, which is then counted there.
    pub(super) fn is_known(&mut self, anomaly: &Anomaly) -> bool {
        let inside = |known: &&mut Anomaly| {
            let set = known.set.as_ref();
            known.symptom == anomaly.symptom
                && set.is_some_and(|set| set.region.has(&anomaly.point))
        };
        let known = self.result.anomalies.iter_mut().find(inside);
        known.map(|known| known.times += 1).is_some()
    }

    /// Reduces `anomaly` and adds it.
    pub(super) fn discover(&mut self, bench: &mut Bench<'_>, anomaly: Anomaly) -> Result<(), Stop> {
        if !self.reduces {
            self.result.anomalies.push(anomaly);
            self.remember(bench);
            return Ok(());
        }
        let sketched = match self.stages.reverts {
            true => self.taken_back(bench, anomaly),
            false => self.sketched(bench, anomaly),
        };
        let (new, ended) = match sketched {
            Ok(new) => (new, Ok(())),
            // Found is found, also where nothing is left to reduce it with.
            Err(cut) => (Some(cut.0), Err(cut.1)),
        };
        self.result.anomalies.extend(new);
        self.remember(bench);
        ended
    }

    /// As [`Self::sketched`], from what deviates: a known anomaly again takes one run or two, a new one about ten.
    fn taken_back(&mut self, bench: &mut Bench<'_>, mut anomaly: Anomaly) -> Reduced {
        if let Err(stop) = self.with_one_kind(bench, &mut anomaly) {
            return Err(Box::new((anomaly, stop)));
        }
        let mild = search::mild(self.space, self.regions.iter(), anomaly.point.service);
        let mild = match mild {
            Some(mild) if mild != anomaly.point => mild,
            // The mild workload itself shows the symptom: everything that it has may be a condition.
            _ => return self.sketched(bench, anomaly),
        };
        if self.stages.triage {
            let known: Vec<Option<&FeatureSet>> = self
                .result
                .anomalies
                .iter()
                .map(|one| one.set.as_ref())
                .collect();
            let found = (&anomaly.point, anomaly.symptom);
            let border = self.stages.border;
            let told = match triage(bench, self.space, found, &mild, (&known, border)) {
                Ok(told) => told,
                Err(stop) => return Err(Box::new((anomaly, stop))),
            };
            match told {
                Triage::Known(index, region) => {
                    self.met_at_border(index, region);
                    return Ok(None);
                }
                Triage::Behind(index, region, point, symptom) => {
                    self.met_at_border(index, region);
                    shown_by(bench, &mut anomaly, point, symptom);
                }
                Triage::Beside(point) => {
                    let symptom = anomaly.symptom;
                    shown_by(bench, &mut anomaly, point, symptom);
                }
                Triage::New => {}
            }
        }
        let same = self.result.anomalies.iter().filter_map(|known| {
            let set = known.set.as_ref()?;
            (known.symptom == anomaly.symptom).then_some(&set.region)
        });
        let known: Vec<&Region> = same.collect();
        let start = reverts::Start {
            point: &anomaly.point,
            symptom: anomaly.symptom,
            mild: &mild,
            known: &known,
        };
        let set = match reverts(bench, self.space, &start) {
            Ok(set) => set,
            Err(stop) => {
                anomaly.harm = self.harm(bench, &anomaly);
                return Err(Box::new((anomaly, stop)));
            }
        };
        if let Some(index) = self.same_conditions(bench, &set, &mild) {
            let old = self.result.anomalies[index].set.as_ref();
            let old = old.expect("only reduced ones have conditions");
            let region = widened(&old.region, &set.witness);
            self.met_at_border(index, region);
            return Ok(None);
        }
        anomaly.set = Some(set);
        anomaly.reduced_at = bench.spent();
        anomaly.harm = self.harm(bench, &anomaly);
        Ok(Some(anomaly))
    }

    /// Takes one of two kinds of traffic away where the other alone shows the symptom.
    fn with_one_kind(&self, bench: &mut Bench<'_>, anomaly: &mut Anomaly) -> Result<(), Stop> {
        for point in anomaly.point.single_kinds() {
            let point = self.space.repaired(point);
            if self.space.check(&point).is_err() {
                continue;
            }
            let measured = bench.measure(&[(point.clone(), FIRST_REPEAT)])?;
            let symptom = anomaly.symptom;
            if bench.judge(&point, &measured[0]).symptom == Some(symptom) {
                shown_by(bench, anomaly, point, symptom);
                break;
            }
        }
        Ok(())
    }

    /// The anomaly whose conditions are on the same features as those of `set`, on the same sides of the mild workload.
    fn same_conditions(&self, bench: &Bench<'_>, set: &FeatureSet, mild: &Point) -> Option<usize> {
        let mut all = self.result.anomalies.iter();
        all.position(|known| {
            let Some(old) = &known.set else {
                return false;
            };
            let keys = |set: &FeatureSet| set.region.features.keys().copied().collect::<Vec<_>>();
            let side = |point: &Point, feature: Feature| match feature.names() {
                Some(_) => feature.of(point) as i64,
                None => feature.of(point).cmp(&feature.of(mild)) as i64,
            };
            old.symptom == set.symptom
                && bench.same_resource(&old.witness, &set.witness)
                && keys(old) == keys(set)
                && keys(set).into_iter().all(|feature| {
                    feature == Feature::Service
                        || side(&old.witness, feature) == side(&set.witness, feature)
                })
        })
    }

    /// The anomaly at `index` was met again, at a place that widens its region.
    fn met_at_border(&mut self, index: usize, region: Region) {
        let known = &mut self.result.anomalies[index];
        known.times += 1;
        if let Some(set) = &mut known.set {
            set.region = region;
        }
    }

    /// `anomaly` with conditions that are good enough to look elsewhere; none where it is known or does not show again.
    fn sketched(&mut self, bench: &mut Bench<'_>, mut anomaly: Anomaly) -> Reduced {
        let mut stream = self.reduction();
        let same = self.result.anomalies.iter().filter_map(|known| {
            let set = known.set.as_ref()?;
            (known.symptom == anomaly.symptom).then_some(&set.region)
        });
        let known: Vec<&Region> = same.collect();
        let found = (&anomaly.point, anomaly.symptom);
        let set = rough(bench, self.space, found, &known, &mut stream);
        let Some(set) = self.repeated(bench, &mut anomaly, set)? else {
            return Ok(None);
        };
        anomaly.set = Some(set);
        anomaly.reduced_at = bench.spent();
        anomaly.harm = self.harm(bench, &anomaly);
        Ok(Some(anomaly))
    }

    /// `anomaly` with tested conditions, reduced from `point`; none where it is known or does not show again.
    pub(super) fn tested(
        &mut self,
        bench: &mut Bench<'_>,
        mut anomaly: Anomaly,
        point: &Point,
    ) -> Reduced {
        let mut stream = self.reduction();
        let reduced = reduce(bench, self.space, point, anomaly.symptom, &mut stream);
        let Some(set) = self.repeated(bench, &mut anomaly, reduced)? else {
            return Ok(None);
        };
        let known = self.result.anomalies.iter().filter_map(tested_set);
        let known: Vec<&FeatureSet> = known.collect();
        let merged = merge(bench, self.space, &known, &set, &mut stream);
        anomaly.reduced_at = bench.spent();
        match merged {
            Ok(Merged::Known(index)) => self.met_again(index, &anomaly, None),
            Ok(Merged::Joined(index, set)) => self.met_again(index, &anomaly, Some(*set)),
            Ok(Merged::New) => {
                anomaly.set = Some(set);
                anomaly.harm = self.harm(bench, &anomaly);
                return Ok(Some(anomaly));
            }
            Err(stop) => {
                anomaly.set = Some(set);
                anomaly.harm = self.harm(bench, &anomaly);
                return Err(Box::new((anomaly, stop)));
            }
        }
        Ok(None)
    }

    /// The conditions that a reduction found; counts one whose anomaly did not show again. With a stop, `anomaly` as far as it
    /// is known.
    fn repeated(
        &mut self,
        bench: &mut Bench<'_>,
        anomaly: &mut Anomaly,
        found: Result<Option<FeatureSet>, Stop>,
    ) -> Result<Option<FeatureSet>, Box<(Anomaly, Stop)>> {
        match found {
            Ok(set) => {
                self.result.not_repeated += u32::from(set.is_none());
                Ok(set)
            }
            Err(stop) => {
                anomaly.harm = self.harm(bench, anomaly);
                Err(Box::new((anomaly.clone(), stop)))
            }
        }
    }

    /// The random numbers of the next reduction.
    fn reduction(&mut self) -> Stream {
        self.reductions += 1;
        Stream::indexed(self.seed, "hunt/reduce", self.reductions - 1)
    }

    /// `again` is the `index`-th of the anomalies whose conditions were tested, perhaps as a larger `set`.
    fn met_again(&mut self, index: usize, again: &Anomaly, set: Option<FeatureSet>) {
        let mut tested = self.result.anomalies.iter_mut();
        let known = tested
            .by_ref()
            .filter(|known| tested_set(known).is_some())
            .nth(index)
            .expect("merge answers with an index of its argument");
        known.times += again.times;
        if again.found_at.experiments < known.found_at.experiments {
            known.found_at = again.found_at;
        }
        if set.is_some() {
            known.set = set;
        }
    }

    /// What the simplest known form of `anomaly` does to the victim, where there is one.
    fn harm(&self, bench: &Bench<'_>, anomaly: &Anomaly) -> Option<Harm> {
        let Rule::Victim(owed) = &bench.rule else {
            return None;
        };
        let point = anomaly
            .set
            .as_ref()
            .map_or(&anomaly.point, |set| &set.witness);
        Harm::of(owed, point, bench.recall(point)?)
    }
}

/// `anomaly` is shown by `point`, which was run, from now on.
fn shown_by(bench: &Bench<'_>, anomaly: &mut Anomaly, point: Point, symptom: Symptom) {
    if let Some(measured) = bench.recall(&point) {
        anomaly.judgement = bench.judge(&point, measured);
        anomaly.counters.clone_from(&measured.counters);
    }
    (anomaly.point, anomaly.symptom) = (point, symptom);
}

/// The conditions of `anomaly`, where they were tested.
fn tested_set(anomaly: &Anomaly) -> Option<&FeatureSet> {
    anomaly.set.as_ref().filter(|set| set.checks.is_some())
}
