//! Reads a driver's offloads, interrupt moderation and channels through ethtool's netlink interface.
//!
//! Units: microseconds and frames, as drivers use them. Limits: a value that a driver does not report is `None`; a
//! kernel before 5.6 has no such interface, and all values are `None`. Source:
//! `Documentation/networking/ethtool-netlink.rst`.

use crate::error::NicError;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::generic::{Ask, Generic};
use isolane_common_linux::netlink::{Attributes, AttributesBuilder};
use serde::Serialize;
use std::collections::BTreeSet;

const FEATURES_GET: u8 = 11;
const CHANNELS_GET: u8 = 17;
const COALESCE_GET: u8 = 19;
/// The header is attribute 1 of every message; the interface index is the header's attribute 1.
const HEADER: u16 = 1;
const HEADER_DEVICE_INDEX: u16 = 1;
const FEATURES_HARDWARE: u16 = 2;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const COALESCE_TX_USECS: u16 = 6;
const COALESCE_TX_FRAMES: u16 = 7;
const COALESCE_ADAPTIVE_TX: u16 = 12;
const CHANNELS_TX_MAX: u16 = 3;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_TX: u16 = 7;
const CHANNELS_COMBINED: u16 = 9;

/// Moderation of a device's transmit interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Moderation {
    /// Delay of an interrupt after a packet, microseconds.
    pub tx_usecs: Option<u32>,
    /// Number of packets after which an interrupt is sent earlier.
    pub tx_frames: Option<u32>,
    /// Whether the driver adapts both.
    pub adaptive: Option<bool>,
}

/// Transmit queues in use and possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Channels {
    /// Queues in use.
    pub queues: u32,
    /// Largest possible number of queues.
    pub queues_max: u32,
    /// How many of them can also receive; `None` if queues are separate per direction.
    pub combined_max: u32,
}

/// What a driver reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Driver {
    /// Enabled offloads, by the kernel's names such as `tx-tcp-segmentation`.
    pub features: BTreeSet<String>,
    /// Offloads that can be enabled.
    #[serde(skip)]
    pub possible: BTreeSet<String>,
    /// Interrupt moderation; `None` if the driver reports none.
    pub moderation: Option<Moderation>,
    /// Channels; `None` if the driver reports none.
    pub channels: Option<Channels>,
}

/// Reads the driver's values of the device with that index. Fails with the kernel's error, except "not supported".
pub(crate) fn read(index: u32) -> Result<Driver, NicError> {
    let Some(mut family) = Generic::open("ethtool")? else {
        return Ok(Driver::default());
    };
    let header = AttributesBuilder::new().with_u32(HEADER_DEVICE_INDEX, index);
    let request = AttributesBuilder::new().with_nested(HEADER, &header);
    let mut driver = Driver::default();
    let mut ask = |what: &str, command: u8, each: &mut dyn FnMut(Attributes<'_>)| {
        let action = format!("read {what} of device {index}");
        match family.ask(&action, command, false, &request, each) {
            Ok(()) | Err(HostError::NotOffered { .. }) => Ok(()),
            Err(error) => Err(NicError::from(error)),
        }
    };
    ask("the offloads", FEATURES_GET, &mut |answer| {
        (driver.features, driver.possible) = features(&answer);
    })?;
    ask("the interrupt moderation", COALESCE_GET, &mut |answer| {
        driver.moderation = Some(moderation(&answer));
    })?;
    ask("the channels", CHANNELS_GET, &mut |answer| {
        driver.channels = Some(channels(&answer))
    })?;
    Ok(driver)
}

/// Enabled offloads, and offloads that can be enabled.
fn features(answer: &Attributes<'_>) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = |set| {
        let bits = answer.nested(set).nested(BITSET_BITS);
        bits.each_nested(BITS_BIT)
            .filter_map(|bit| bit.text(BIT_NAME))
            .collect()
    };
    (names(FEATURES_ACTIVE), names(FEATURES_HARDWARE))
}

fn moderation(answer: &Attributes<'_>) -> Moderation {
    Moderation {
        tx_usecs: answer.u32(COALESCE_TX_USECS),
        tx_frames: answer.u32(COALESCE_TX_FRAMES),
        adaptive: answer.u8(COALESCE_ADAPTIVE_TX).map(|on| on != 0),
    }
}

fn channels(answer: &Attributes<'_>) -> Channels {
    let number = |kind| answer.u32(kind).unwrap_or(0);
    Channels {
        combined_max: number(CHANNELS_COMBINED_MAX),
        queues: number(CHANNELS_TX).saturating_add(number(CHANNELS_COMBINED)),
        queues_max: number(CHANNELS_TX_MAX).saturating_add(number(CHANNELS_COMBINED_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_cuts_segments_itself() {
        let driver = read(1).unwrap();
        assert!(
            driver.features.contains("tx-generic-segmentation"),
            "{driver:?}"
        );
        assert_eq!(driver.moderation, None);
    }

    #[test]
    fn answers_are_read_by_attribute() {
        let bit = |name| AttributesBuilder::new().with_text(BIT_NAME, name);
        let bits = AttributesBuilder::new()
            .with_nested(BITS_BIT, &bit("tx-tcp-segmentation"))
            .with_nested(BITS_BIT, &bit("rx-gro"));
        let set = AttributesBuilder::new().with_nested(BITSET_BITS, &bits);
        let answer = AttributesBuilder::new().with_nested(FEATURES_ACTIVE, &set);
        let names: Vec<_> = features(&Attributes::new(answer.bytes()))
            .0
            .into_iter()
            .collect();
        assert_eq!(names, ["rx-gro", "tx-tcp-segmentation"]);
        let answer = AttributesBuilder::new()
            .with_u32(COALESCE_TX_USECS, 50)
            .with(COALESCE_ADAPTIVE_TX, &[1]);
        let read = moderation(&Attributes::new(answer.bytes()));
        assert_eq!(
            (read.tx_usecs, read.tx_frames, read.adaptive),
            (Some(50), None, Some(true))
        );
    }
}
