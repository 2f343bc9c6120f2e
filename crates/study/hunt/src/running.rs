//! Which known anomalies a running application may be in, by what the kernel shows of it.
//!
//! Method: the kernel's list of objects narrows the space of the device: transports, queue pairs, regions and their sizes.
//! [`crate::advise`] says which anomalies the rest can reach. An anomaly is reported if none of its conditions is broken and
//! at least one about a number holds, because a transport alone is in too many. Conditions about messages and queues
//! (their sizes, lists and depths) are not visible and stay open. Limits: the numbers are of one process and device; a
//! workload of the search has as many queue pairs in each direction. Source: ours.

use crate::advise::{Way, advise};
use crate::known::KnownSet;
use crate::monitor::Symptom;
use crate::region::condition;
use crate::space::{Allowed, Feature, Space, point::SERVICES};
use serde::Serialize;

/// What is seen of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Its transports: the parts of names of services before the dash.
    pub transports: Vec<&'static str>,
    /// Queue pairs that can send.
    pub queue_pairs: u64,
    /// Memory regions.
    pub regions: u64,
    /// Length of the smallest and of the largest region, bytes.
    pub region_bytes: [u64; 2],
}

/// An anomaly that an application may be in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Risk {
    /// Its name: a number in a hunt or in a paper.
    pub anomaly: String,
    /// What is seen when it shows.
    #[serde(skip)]
    pub symptom: Symptom,
    /// Conditions that hold.
    pub holds: Vec<String>,
    /// Conditions that are not visible from outside.
    pub open: Vec<String>,
    /// What else is known of it.
    pub note: Option<String>,
    /// The cheapest change that ends it.
    pub change: Option<Way>,
}

impl Seen {
    /// `device` with the values that were seen. `None` if the application sends nothing, or has a transport or numbers
    /// that no workload of the space has.
    fn space(&self, device: &Space) -> Option<Space> {
        let mut space = device.clone();
        let services = device.allowed(Feature::Service).grid().into_iter();
        let services = services.filter(|&service| {
            let name = SERVICES[service as usize];
            let transport = name.split('-').next().unwrap_or(name);
            self.transports.contains(&transport)
        });
        let range = |feature: Feature, [least, most]: [u64; 2]| {
            let all = device.allowed(feature);
            Allowed::Range(all.nearest(least), all.nearest(most))
        };
        let services: Vec<u64> = services.collect();
        if services.is_empty() || self.queue_pairs == 0 || self.regions == 0 {
            return None;
        }
        space.narrow(Feature::Service, Allowed::Set(services));
        for (feature, values) in [
            (Feature::QueuePairs, [self.queue_pairs; 2]),
            (Feature::Regions, [self.regions; 2]),
            (Feature::RegionBytes, self.region_bytes),
        ] {
            space.narrow(feature, range(feature, values));
        }
        Some(space)
    }
}

/// The anomalies of `set` that an application may be in on `device`, those with the most conditions that hold first.
pub fn risks(seen: &Seen, device: &Space, set: &KnownSet) -> Vec<Risk> {
    let Some(application) = seen.space(device) else {
        return Vec::new();
    };
    let mut risks: Vec<Risk> = advise(&application, device, set)
        .reached
        .into_iter()
        .filter_map(|reached| {
            let known = set.known.iter().find(|known| known.name == reached.name)?;
            let (holds, open): (Vec<_>, Vec<_>) =
                known.region.features.iter().partition(|(feature, inside)| {
                    let values = application.allowed(**feature).grid();
                    values.into_iter().all(|value| inside.has(value))
                });
            let is_number = |feature: &Feature| feature.names().is_none();
            holds.iter().find(|(feature, _)| is_number(feature))?;
            let words = |conditions: Vec<(&Feature, &Allowed)>| {
                let words = conditions.into_iter();
                words
                    .map(|(&feature, inside)| condition(feature, inside, device))
                    .collect()
            };
            Some(Risk {
                anomaly: reached.name,
                symptom: known.symptom,
                holds: words(holds),
                open: words(open),
                note: reached.note,
                // What is not visible, the application may keep already: only the effort counts.
                change: reached
                    .ways
                    .into_iter()
                    .min_by_key(|way| (way.opens.len(), way.effort)),
            })
        })
        .collect();
    risks.sort_by_key(|risk| (risk.open.len(), usize::MAX - risk.holds.len()));
    risks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    /// An anomaly of many queue pairs with small regions, as a hunt may find it.
    const PLANTED: &str = "profile = \"cx6-200g-roce\"\nsource = \"test\"\n[[anomaly]]\nname = \"many\"\n\
        symptom = \"pause-frames\"\n[anomaly.conditions]\nservice = \"rc-write\"\nqueue_pairs = [16, 20000]\n";

    fn named(seen: &Seen) -> Vec<Risk> {
        let device = Space::of(&profile("cx6-200g-roce"));
        let set = KnownSet::parse(PLANTED, "planted.toml", &device).unwrap();
        risks(seen, &device, &set)
    }

    fn seen(transport: &'static str, queue_pairs: u64) -> Seen {
        Seen {
            transports: vec![transport],
            queue_pairs,
            regions: 1,
            region_bytes: [4 << 20; 2],
        }
    }

    #[test]
    fn an_application_that_meets_what_is_visible_is_at_risk() {
        let risks = named(&seen("rc", 32));
        let [risk] = risks.as_slice() else {
            panic!("{risks:?}");
        };
        assert_eq!(risk.holds, ["queue_pairs >= 16"]);
        assert_eq!(risk.open, ["service = rc-write"]);
        let change = risk.change.as_ref().unwrap();
        assert_eq!(change.keep, "queue_pairs <= 8");
    }

    #[test]
    fn an_application_that_breaks_a_condition_is_not() {
        for sound in [seen("rc", 8), seen("ud", 32), seen("rc", 0), seen("dc", 32)] {
            assert_eq!(named(&sound), [], "{sound:?}");
        }
    }
}
