//! Which known anomalies a running application may be in, by what the kernel shows of it.
//!
//! Method: the kernel's list of objects narrows the space of the device: transport, queue pairs, regions and their sizes.
//! An anomaly is reported if each of its conditions has a value in that space, and all values of the space meet at least
//! one condition about a number that is visible, because a transport alone is in too many. No workload is drawn: an
//! application may have more memory or work requests than the simulator takes. Conditions about messages and queues
//! (their sizes, lists and depths), and those that a part of the objects meets, stay open. Limits: the numbers are of one
//! process, device and transport; regions count for each transport of the process; a workload of the search has as many
//! queue pairs in each direction. Source: ours.

use crate::advise::{Way, intersection, ways};
use crate::known::{Known, KnownSet};
use crate::monitor::Symptom;
use crate::region::condition;
use crate::space::{Allowed, Feature, Space, point::SERVICES};
use serde::Serialize;

/// The numbers that are visible.
const NUMBERS: [Feature; 3] = [Feature::QueuePairs, Feature::Regions, Feature::RegionBytes];

/// What is seen of an application's traffic of one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The part of the names of its services before the dash.
    pub transport: &'static str,
    /// Queue pairs of this transport that can send.
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
    /// The transport of the traffic that meets the conditions.
    pub transport: &'static str,
    /// What is seen when it shows.
    #[serde(skip)]
    pub symptom: Symptom,
    /// Conditions that hold.
    pub holds: Vec<String>,
    /// Conditions that are not decided: not visible from outside, or met by a part of the objects.
    pub open: Vec<String>,
    /// What else is known of it.
    pub note: Option<String>,
    /// The change that ends it and opens the fewest other anomalies, of those the one with the least effort.
    pub change: Option<Way>,
}

impl Seen {
    /// `device` with the values that were seen; numbers beyond its limits count as the limits. `None` if the application
    /// has no queue pair that can send, no region, or a transport that no workload of the device has.
    fn space(&self, device: &Space) -> Option<Space> {
        let mut space = device.clone();
        let services = device.allowed(Feature::Service).grid().into_iter();
        let services = services.filter(|&service| {
            let name = SERVICES[service as usize];
            name.split('-').next() == Some(self.transport)
        });
        let services: Vec<u64> = services.collect();
        if services.is_empty() || self.queue_pairs == 0 || self.regions == 0 {
            return None;
        }
        space.narrow(Feature::Service, Allowed::Set(services));
        let seen = [[self.queue_pairs; 2], [self.regions; 2], self.region_bytes];
        for (feature, ends) in NUMBERS.into_iter().zip(seen) {
            let [least, most] = ends.map(|value| device.allowed(feature).nearest(value));
            space.narrow(feature, Allowed::Range(least, most));
        }
        Some(space)
    }
}

/// The anomalies of `set` that an application may be in on `device`: those with the fewest open conditions first, of these
/// those with the most that hold.
pub fn risks(seen: &Seen, device: &Space, set: &KnownSet) -> Vec<Risk> {
    let Some(application) = seen.space(device) else {
        return Vec::new();
    };
    let known = set.known.iter();
    let mut risks: Vec<Risk> = known
        .filter_map(|known| risk(known, seen, &application, device, set))
        .collect();
    risks.sort_by_key(|risk| (risk.open.len(), usize::MAX - risk.holds.len()));
    risks
}

/// One anomaly; `None` if the application breaks a condition, or no visible number meets one.
fn risk(
    known: &Known,
    seen: &Seen,
    application: &Space,
    device: &Space,
    set: &KnownSet,
) -> Option<Risk> {
    intersection(known, application)?;
    let conditions = known.region.features.iter();
    let (holds, open): (Vec<_>, Vec<_>) = conditions.partition(|(feature, inside)| {
        let values = application.allowed(**feature).grid();
        values.into_iter().all(|value| inside.has(value))
    });
    holds
        .iter()
        .find(|(feature, _)| NUMBERS.contains(feature))?;
    let words = |conditions: Vec<(&Feature, &Allowed)>| {
        let words = conditions.into_iter();
        words
            .map(|(&feature, inside)| condition(feature, inside, device))
            .collect()
    };
    let reachable = |space: &Space| -> Vec<&str> {
        let met = set.known.iter();
        met.filter(|one| intersection(one, space).is_some())
            .map(|one| one.name.as_str())
            .collect()
    };
    let ways = ways(known, application, device, &reachable).into_iter();
    Some(Risk {
        anomaly: known.name.clone(),
        transport: seen.transport,
        symptom: known.symptom,
        holds: words(holds),
        open: words(open),
        note: known.note.clone(),
        // What is not visible, the application may keep already: only the effort counts.
        change: ways
            .map(|(way, _)| way)
            .min_by_key(|way| (way.opens.len(), way.effort)),
    })
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
            transport,
            queue_pairs,
            regions: 1,
            region_bytes: [4 << 20; 2],
        }
    }

    /// The names of the published anomalies of a device.
    fn published(name: &str, seen: &Seen) -> Vec<(String, Vec<String>)> {
        let device = Space::of(&profile(name));
        let set = KnownSet::published(name, &device).unwrap().unwrap();
        let risks = risks(seen, &device, &set).into_iter();
        risks.map(|risk| (risk.anomaly, risk.holds)).collect()
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

    #[test]
    fn an_application_beyond_the_memory_of_the_simulator_is_at_risk() {
        let large = Seen {
            regions: 100,
            region_bytes: [1 << 30; 2],
            ..seen("rc", 600)
        };
        let names: Vec<String> = published("p2100-100g-roce", &large)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert!(names.iter().any(|name| name == "16"), "{names:?}");
        assert!(
            !names.iter().any(|name| name.starts_with("15")),
            "{names:?}"
        );
    }

    #[test]
    fn an_application_with_more_work_than_the_simulator_takes_is_at_risk() {
        let found = published("cx6-200g-roce", &seen("ud", 2_000));
        let (_, holds) = found.iter().find(|(name, _)| name == "2a").unwrap();
        assert!(holds.contains(&"queue_pairs >= 16".to_owned()), "{holds:?}");
    }

    /// Of each feature, the largest value is a condition beside one that is visible, and the application has it.
    #[test]
    fn each_condition_that_is_not_visible_is_open() {
        let device = Space::of(&profile("cx6-200g-roce"));
        let most = |feature: Feature| *device.allowed(feature).grid().last().unwrap();
        let application = Seen {
            transport: "ud",
            queue_pairs: most(Feature::QueuePairs),
            regions: most(Feature::Regions),
            region_bytes: [most(Feature::RegionBytes); 2],
        };
        let mut visible = Vec::new();
        for feature in Feature::ALL.into_iter().filter(|f| !f.is_of_second()) {
            if device.allowed(feature).grid().len() < 2 {
                continue;
            }
            let value = match feature.names() {
                Some(names) => format!("{:?}", names[most(feature) as usize]),
                None => most(feature).to_string(),
            };
            let other = match feature {
                Feature::QueuePairs => "regions = [16, 200000]",
                _ => "queue_pairs = [16, 20000]",
            };
            let text = format!(
                "profile = \"cx6-200g-roce\"\nsource = \"test\"\n[[anomaly]]\nname = \"one\"\nsymptom = \
                 \"pause-frames\"\n[anomaly.conditions]\n{other}\n{} = {value}\n",
                feature.name()
            );
            let set = KnownSet::parse(&text, "one.toml", &device).expect(&text);
            let risks = risks(&application, &device, &set);
            let [risk] = risks.as_slice() else {
                panic!("{text}{risks:?}");
            };
            match (risk.holds.len(), risk.open.as_slice()) {
                (2, []) => visible.push(feature),
                (1, [open]) => assert!(open.starts_with(feature.name()), "{text}{open}"),
                _ => panic!("{text}{risk:?}"),
            }
        }
        let expected = [
            Feature::Regions,
            Feature::RegionBytes,
            Feature::Service,
            Feature::QueuePairs,
        ];
        assert_eq!(
            visible, expected,
            "the service of a datagram is its transport"
        );
    }
}
