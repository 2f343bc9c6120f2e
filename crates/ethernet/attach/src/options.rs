//! The user's options of an attachment, as checked values.

use crate::error::NicError;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_policy::titan::WEIGHT_ONE;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Default segment size while queues are shared (titan 7.1), bytes.
pub const REDUCED_DEFAULT: u32 = 16 << 10;
/// The kernel rejects a limit that is not larger than its largest header, 320 bytes at most. Below a few packets
/// segmentation saves nothing.
pub(crate) const REDUCED_MIN: u32 = 4 << 10;
/// The largest segment that needs no jumbo payload header.
const REDUCED_MAX: u32 = 64 << 10;
/// Default weight of a cgroup (`Documentation/admin-guide/cgroup-v2.rst`).
pub const CGROUP_WEIGHT_DEFAULT: u32 = 100;
/// Largest weight of a cgroup.
const CGROUP_WEIGHT_MAX: u32 = 10_000;

/// Source of a flow's weight.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// Every flow has weight 1.
    #[default]
    Flow,
    /// The class selector of the flow's DSCP, 1 to 8.
    Dscp,
    /// The container's weight, divided among its flows.
    Cgroup,
}

/// Dynamic segment sizes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Segments {
    /// 16 KiB while queues are shared, otherwise the original size.
    #[default]
    Auto,
    /// The size is never changed.
    Off,
    /// This size in bytes while queues are shared.
    Bytes(u32),
}

impl Segments {
    /// Size while queues are shared; `None` if it is never changed.
    pub fn reduced(self) -> Option<Bytes> {
        match self {
            Self::Auto => Some(Bytes::new(REDUCED_DEFAULT.into())),
            Self::Off => None,
            Self::Bytes(bytes) => Some(Bytes::new(bytes.into())),
        }
    }
}

impl FromStr for Segments {
    type Err = NicError;

    /// `auto`, `off`, or a size such as `32K` or `16384`.
    fn from_str(text: &str) -> Result<Self, NicError> {
        let wrong = || NicError::Value {
            what: "segment size",
            value: text.to_owned(),
            expected: "must be auto, off, or a size from 4K to 64K".to_owned(),
        };
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let digits = text.trim_end_matches("iB").trim_end_matches(['k', 'K']);
        let unit = if digits.len() == text.len() {
            1
        } else {
            1 << 10
        };
        let number: u32 = digits.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(unit).ok_or_else(wrong)?;
        match (REDUCED_MIN..=REDUCED_MAX).contains(&bytes) {
            true => Ok(Self::Bytes(bytes)),
            false => Err(wrong()),
        }
    }
}

/// A container named by the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Named {
    /// Path of its cgroup below the version 2 hierarchy, with the leading `/`.
    pub path: String,
    /// Weight as in `cpu.weight`, from 1 to 10,000.
    pub weight: u32,
}

impl FromStr for Named {
    type Err = NicError;

    /// `PATH=WEIGHT`.
    fn from_str(text: &str) -> Result<Self, NicError> {
        let wrong = |expected: &str| NicError::Value {
            what: "container",
            value: text.to_owned(),
            expected: expected.to_owned(),
        };
        let (path, weight) = text
            .rsplit_once('=')
            .ok_or_else(|| wrong("must be written PATH=WEIGHT, like /tenants.slice/web=200"))?;
        let weight = weight
            .parse()
            .ok()
            .filter(|weight| (1..=CGROUP_WEIGHT_MAX).contains(weight));
        let weight =
            weight.ok_or_else(|| wrong("the weight must be from 1 to 10000; 100 is usual"))?;
        let path = path.trim_matches('/');
        match path.is_empty() || path.split('/').any(|part| part == "..") {
            true => Err(wrong("the path must be below the cgroup mount")),
            false => Ok(Self {
                path: format!("/{path}"),
                weight,
            }),
        }
    }
}

/// The user's options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Options {
    /// Source of the flows' weights.
    pub weights: Weights,
    /// Segment sizes while queues are shared.
    pub segments: Segments,
    /// Whether queues are assigned to processors.
    pub pools: bool,
    /// Whether one queue is reserved for small and marked packets.
    pub latency: bool,
    /// Containers named by the user.
    pub containers: Vec<Named>,
    /// A cgroup whose children are the containers, with their `cpu.weight`.
    pub slice: Option<String>,
    /// Whether to attach despite a driver that chooses queues itself.
    #[serde(default)]
    pub any_driver: bool,
}

impl Options {
    /// Checks combinations of options. Fails with [`NicError::Value`].
    pub fn check(&self) -> Result<(), NicError> {
        let has_containers = !self.containers.is_empty() || self.slice.is_some();
        let expected = match (self.weights == Weights::Cgroup, has_containers) {
            (true, false) => {
                "cgroup needs --container PATH=WEIGHT or --slice PATH to know whose they are"
            }
            (false, true) => "--container and --slice need --weights cgroup",
            _ => return self.check_containers(),
        };
        Err(NicError::Value {
            what: "weights",
            value: format!("{:?}", self.weights).to_lowercase(),
            expected: expected.to_owned(),
        })
    }

    /// Whether every value is one that the command line accepts: a journal may have been changed.
    pub(crate) fn is_in_range(&self) -> bool {
        let has_size = match self.segments {
            Segments::Bytes(bytes) => (REDUCED_MIN..=REDUCED_MAX).contains(&bytes),
            Segments::Auto | Segments::Off => true,
        };
        let is_named = |named: &Named| {
            let parsed = format!("{}={}", named.path, named.weight).parse::<Named>();
            parsed.is_ok_and(|parsed| parsed == *named)
        };
        has_size && self.containers.iter().all(is_named) && self.check().is_ok()
    }

    fn check_containers(&self) -> Result<(), NicError> {
        let is_again = |(at, named): &(usize, &Named)| {
            let before = &self.containers[..*at];
            before.iter().any(|other| other.path == named.path)
        };
        match self.containers.iter().enumerate().find(is_again) {
            None => Ok(()),
            Some((_, named)) => Err(NicError::Value {
                what: "container",
                value: named.path.clone(),
                expected: "is named twice; give it one weight".to_owned(),
            }),
        }
    }
}

/// The weight of each code point: one for best effort, one more per class selector.
pub fn dscp_weights() -> [u32; 64] {
    std::array::from_fn(|code_point| WEIGHT_ONE * (code_point as u32 / 8 + 1))
}

/// A cgroup's weight in units of [`WEIGHT_ONE`], rounded to the nearest, at least one.
pub fn flow_weight(cgroup_weight: u32) -> u32 {
    let scaled = u64::from(cgroup_weight) * u64::from(WEIGHT_ONE) * 2;
    let usual = u64::from(CGROUP_WEIGHT_DEFAULT);
    u32::try_from((scaled + usual) / (2 * usual))
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!("16K".parse::<Segments>().unwrap(), Segments::Bytes(16_384));
        assert_eq!(
            "32KiB".parse::<Segments>().unwrap(),
            Segments::Bytes(32_768)
        );
        assert_eq!("9000".parse::<Segments>().unwrap(), Segments::Bytes(9_000));
        for wrong in ["", "1K", "65K", "x", "99999999999", "-1"] {
            let error = wrong.parse::<Segments>().unwrap_err().to_string();
            assert!(error.contains("from 4K to 64K"), "{error}");
        }
    }

    #[test]
    fn containers_are_paths_with_weights() {
        let named = |text: &str| text.parse::<Named>();
        let web = Named {
            path: "/tenants.slice/web".to_owned(),
            weight: 200,
        };
        assert_eq!(named("tenants.slice/web=200").unwrap(), web);
        for wrong in ["web", "web=0", "web=10001", "=5", "/=5", "a/../..=5"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn containers_and_their_weights_go_together() {
        let alone = Options {
            weights: Weights::Cgroup,
            ..Options::default()
        };
        assert!(alone.check().is_err());
        let slice = Options {
            slice: Some("/a".to_owned()),
            ..Options::default()
        };
        assert!(slice.check().is_err());
        assert!(
            Options {
                weights: Weights::Cgroup,
                ..slice
            }
            .check()
            .is_ok()
        );
        assert!(Options::default().check().is_ok());
    }

    #[test]
    fn the_usual_weight_is_one() {
        assert_eq!(
            [1, 100, 200, 10_000].map(flow_weight),
            [10, 1_024, 2_048, 102_400]
        );
        let weights = dscp_weights();
        assert_eq!((weights[0], weights[8], weights[46]), (1_024, 2_048, 6_144));
    }
}
