//! Published size distributions of calls, by name.
//!
//! Problem: results on a size distribution can be compared only when both runs drew from the same one.
//! Units: bytes; shares are parts of calls not larger, 0 to 1. YAPS counts in packets of 1,460 B.
//! Method: each is the list of points that its source publishes, linear between them; a share above 0 at the first
//! point is the part of calls of exactly that size.
//! Limits: long tables keep every n-th point and the last one, as said in `about`. What the sources give only as a
//! formula (the tail of one key-value distribution) or without a unit is not here. A size of 0 B counts as 1 B.
//! Source: the traffic generators of HPCC, YAPS and Homa.

use super::model::SizeDistribution;
use isolane_common_quantities::units::Bytes;

/// One published distribution.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// What a scenario calls it.
    pub name: &'static str,
    /// Its source.
    pub about: &'static str,
    /// Bytes of one unit of the first column.
    unit: u64,
    /// What the second column calls all.
    whole: f64,
    /// Points, `size share; ...`, as published.
    points: &'static str,
}

impl Published {
    /// The distribution that is called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        PUBLISHED.iter().find(|one| one.name == name)
    }

    /// Its points.
    pub fn distribution(&self) -> SizeDistribution {
        let points = self.points.split(';').map(|point| {
            let (size, share) = point
                .trim()
                .split_once(' ')
                .expect("the file has pairs only");
            let size: u64 = size.parse().expect("the file has whole sizes");
            let share: f64 = share.parse().expect("the file has decimal shares");
            (Bytes::new((size * self.unit).max(1)), share / self.whole)
        });
        SizeDistribution::Cumulative {
            name: self.name.to_owned(),
            points: points.collect(),
        }
    }
}

/// All of them.
pub const PUBLISHED: &[Published] = &[
    Published {
        name: "ali-storage-2019",
        about: "HPCC traffic generator, AliStorage2019 (9 points): block storage",
        unit: 1,
        whole: 100.0,
        points: include_str!("../data/sizes/ali-storage-2019.txt"),
    },
    Published {
        name: "facebook-hadoop",
        about: "HPCC traffic generator, FbHdp (20 points): Hadoop",
        unit: 1,
        whole: 100.0,
        points: include_str!("../data/sizes/facebook-hadoop.txt"),
    },
    Published {
        name: "google-rpc-2008",
        about: "HPCC traffic generator, GoogleRPC2008 (every 11th of 843 points): all RPCs",
        unit: 1,
        whole: 100.0,
        points: include_str!("../data/sizes/google-rpc-2008.txt"),
    },
    Published {
        name: "web-search",
        about: "HPCC traffic generator, WebSearch (12 points): web search, DCTCP",
        unit: 1,
        whole: 100.0,
        points: include_str!("../data/sizes/web-search.txt"),
    },
    Published {
        name: "yaps-aditya",
        about: "YAPS, CDF_aditya (12 points in packets of 1,460 B)",
        unit: 1460,
        whole: 1.0,
        points: include_str!("../data/sizes/yaps-aditya.txt"),
    },
    Published {
        name: "data-mining",
        about: "YAPS, CDF_datamining (9 points in packets of 1,460 B): data mining, VL2",
        unit: 1460,
        whole: 1.0,
        points: include_str!("../data/sizes/data-mining.txt"),
    },
    Published {
        name: "dctcp",
        about: "YAPS, CDF_dctcp (12 points in packets of 1,460 B): web search, DCTCP",
        unit: 1460,
        whole: 1.0,
        points: include_str!("../data/sizes/dctcp.txt"),
    },
    Published {
        name: "google-search-rpc",
        about: "Homa, Google_SearchRPC (every 4th of 156 points): search RPCs",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/google-search-rpc.txt"),
    },
    Published {
        name: "google-all-rpc",
        about: "Homa, Google_AllRPC (every 17th of 843 points): all RPCs",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/google-all-rpc.txt"),
    },
    Published {
        name: "facebook-key-value",
        about: "Homa, FacebookKeyValue_Sampled (every 7th of 316 points): memcached",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/facebook-key-value.txt"),
    },
    Published {
        name: "facebook-hadoop-all",
        about: "Homa, Facebook_HadoopDist_All (every 10th of 462 points): Hadoop",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/facebook-hadoop-all.txt"),
    },
    Published {
        name: "facebook-cache-follower",
        about: "Homa, Facebook_CacheFollowerDist_IntraCluster (every 7th of 332 points)",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/facebook-cache-follower.txt"),
    },
    Published {
        name: "facebook-web-server",
        about: "Homa, Facebook_WebServerDist_IntraCluster (every 9th of 442 points)",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/facebook-web-server.txt"),
    },
    Published {
        name: "heavy-middle",
        about: "Homa, Fabricated_Heavy_Middle (every 12th of 560 points): made up",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/heavy-middle.txt"),
    },
    Published {
        name: "heavy-head",
        about: "Homa, Fabricated_Heavy_Head (every 5th of 202 points): made up",
        unit: 1,
        whole: 1.0,
        points: include_str!("../data/sizes/heavy-head.txt"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_distribution_rises_from_zero_to_one() {
        for one in PUBLISHED {
            let SizeDistribution::Cumulative { name, points } = one.distribution() else {
                panic!("{} is a table", one.name);
            };
            assert!(
                points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1 && a != b),
                "{name}"
            );
            assert!(points[0].0 >= Bytes::new(1), "{name}");
            assert_eq!(points[points.len() - 1].1, 1.0, "{name}");
            assert_eq!(
                Published::find(&name).map(|found| found.about),
                Some(one.about)
            );
        }
    }

    #[test]
    fn units_are_those_of_the_source() {
        let last = |name: &str| match Published::find(name).map(Published::distribution) {
            Some(SizeDistribution::Cumulative { points, .. }) => points[points.len() - 1].0.get(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(last("web-search"), 30_000_000);
        assert_eq!(last("dctcp"), 20_000 * 1_460);
        assert_eq!(last("google-rpc-2008"), 15_158_197);
    }
}
