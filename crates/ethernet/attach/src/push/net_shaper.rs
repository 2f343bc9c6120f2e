//! Sets queue weights through the net-shaper interface.
//!
//! Method: one GROUP request makes every queue a leaf of the device's own scheduler with its weight; the kernel applies
//! the whole request or nothing. The request also makes the device's own shaper. Weights are set only if there are no
//! shapers, so all shapers are ours afterwards. Undo deletes the queues' shapers and then the device's, after which
//! queues are served equally again. Limits: requires a driver that reports weights of queues and a device without
//! shapers. Units: weights are relative numbers of 32 bits; drivers keep at least 7 bits. Source:
//! `Documentation/netlink/specs/net_shaper.yaml` of Linux 6.13.

use super::Pusher;
use crate::error::NicError;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::AttributesBuilder;
use isolane_common_linux::netlink::generic::{Ask, Generic};
use isolane_common_quantities::units::Duration;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// Name of this interface in journals and reports.
pub(crate) const NAME: &str = "net-shaper";

pub(super) const GET: u8 = 1;
pub(super) const DELETE: u8 = 3;
pub(super) const GROUP: u8 = 4;
pub(super) const CAPABILITIES: u8 = 5;

pub(super) const HANDLE: u16 = 1;
pub(super) const WEIGHT: u16 = 7;
const DEVICE: u16 = 8;
pub(super) const LEAVES: u16 = 10;
pub(super) const HANDLE_SCOPE: u16 = 1;
pub(super) const HANDLE_ID: u16 = 2;
pub(super) const SCOPE_DEVICE: u32 = 1;
pub(super) const SCOPE_QUEUE: u32 = 2;
const CAPABILITIES_DEVICE: u16 = 1;
const CAPABILITIES_SCOPE: u16 = 2;
pub(super) const CAPABILITIES_WEIGHT: u16 = 10;

/// Shortest interval of writes: each write goes through the driver to the device, often through a mailbox.
const INTERVAL: Duration = Duration::from_ms(10);

/// A device that supports the interface.
#[derive(Debug)]
pub(crate) struct NetShaper {
    family: Box<dyn Ask>,
    index: u32,
}

impl NetShaper {
    /// Opens the interface of the device with that index, or returns why it cannot be used. Fails with the kernel's
    /// error, except "not supported".
    pub(crate) fn open(index: u32) -> Result<Result<Self, String>, NicError> {
        match Generic::open(NAME)? {
            Some(family) => Self::over(Box::new(family), index),
            None => Ok(Err(
                "the kernel has no net-shaper interface (Linux 6.13)".to_owned()
            )),
        }
    }

    /// The same over an open family.
    pub(super) fn over(
        mut family: Box<dyn Ask>,
        index: u32,
    ) -> Result<Result<Self, String>, NicError> {
        let mut takes_weights = false;
        let asked = family.ask(
            "list the device's shapers",
            CAPABILITIES,
            false,
            &capabilities(index),
            &mut |answer| takes_weights |= answer.bytes(CAPABILITIES_WEIGHT).is_some(),
        );
        match asked {
            Ok(()) if takes_weights => {}
            Ok(()) | Err(HostError::NotOffered { .. }) => {
                return Ok(Err(
                    "its driver does not support weights of queues".to_owned()
                ));
            }
            Err(error) => return Err(error.into()),
        }
        let mut opened = Self { family, index };
        Ok(match opened.shapers()? {
            0 => Ok(opened),
            count => Err(format!("it already has {count} shapers of another program")),
        })
    }

    /// Opens the interface to undo weights; `None` if the kernel does not have it.
    pub(crate) fn reopen(index: u32) -> Result<Option<Self>, NicError> {
        let family = Generic::open(NAME)?;
        Ok(family.map(|family| Self {
            family: Box::new(family),
            index,
        }))
    }

    /// Number of shapers of the device.
    fn shapers(&mut self) -> Result<u32, HostError> {
        let mut shapers = 0;
        let device = AttributesBuilder::new().with_u32(DEVICE, self.index);
        let action = "list the device's shapers";
        self.family
            .ask(action, GET, true, &device, &mut |_| shapers += 1)?;
        Ok(shapers)
    }
}

impl Pusher for NetShaper {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> WeightOptions {
        WeightOptions {
            interval: INTERVAL,
            ..WeightOptions::default()
        }
    }

    fn is_free(&mut self) -> Result<bool, NicError> {
        Ok(self.shapers()? == 0)
    }

    fn push(&mut self, weights: &[u32]) -> Result<(), NicError> {
        let group = group(self.index, weights);
        Ok(self.family.ask(
            "set the weights of queues",
            GROUP,
            false,
            &group,
            &mut |_| {},
        )?)
    }

    fn undo(&mut self, queues: u16) -> Result<(), NicError> {
        for (action, shaper) in ours(self.index, queues) {
            match self
                .family
                .ask(&action, DELETE, false, &shaper, &mut |_| {})
            {
                Ok(()) | Err(HostError::NotOffered { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The objects of a group in the order of their deletion, leaves first, with texts for errors.
fn ours(index: u32, queues: u16) -> Vec<(String, AttributesBuilder)> {
    let shaper = |handle: AttributesBuilder| {
        AttributesBuilder::new()
            .with_u32(DEVICE, index)
            .with_nested(HANDLE, &handle)
    };
    let leaf = |queue: u16| {
        let action = format!("delete the shaper of queue {queue}");
        (action, shaper(handle(SCOPE_QUEUE, Some(u32::from(queue)))))
    };
    let device = shaper(handle(SCOPE_DEVICE, None));
    let device = ("delete the device's shaper".to_owned(), device);
    (0..queues).map(leaf).chain([device]).collect()
}

fn capabilities(index: u32) -> AttributesBuilder {
    AttributesBuilder::new()
        .with_u32(CAPABILITIES_DEVICE, index)
        .with_u32(CAPABILITIES_SCOPE, SCOPE_QUEUE)
}

fn handle(scope: u32, id: Option<u32>) -> AttributesBuilder {
    let handle = AttributesBuilder::new().with_u32(HANDLE_SCOPE, scope);
    match id {
        Some(id) => handle.with_u32(HANDLE_ID, id),
        None => handle,
    }
}

/// Makes every queue a leaf of the device with its weight.
fn group(index: u32, weights: &[u32]) -> AttributesBuilder {
    let group = AttributesBuilder::new()
        .with_u32(DEVICE, index)
        .with_nested(HANDLE, &handle(SCOPE_DEVICE, None));
    let leaf = |queue: usize, weight: u32| {
        let queue = u32::try_from(queue).expect("a device has few queues");
        AttributesBuilder::new()
            .with_nested(HANDLE, &handle(SCOPE_QUEUE, Some(queue)))
            .with_u32(WEIGHT, weight)
    };
    let queues = weights.iter().enumerate();
    queues.fold(group, |group, (queue, weight)| {
        group.with_nested(LEAVES, &leaf(queue, *weight))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand from the specification's numbers: lengths include the four bytes of the header, and bit 15 of a
    /// type marks nested attributes.
    #[test]
    fn a_group_is_encoded_as_the_specification_says() {
        let leaf = |queue: u8, weight: u8| {
            let handle = [
                20, 0, 1, 0x80, 8, 0, 1, 0, 2, 0, 0, 0, 8, 0, 2, 0, queue, 0, 0, 0,
            ];
            let weight = [8, 0, 7, 0, weight, 0, 0, 0];
            [&[32, 0, 10, 0x80][..], &handle, &weight].concat()
        };
        let wanted = [
            &[8, 0, 8, 0, 3, 0, 0, 0][..],
            &[12, 0, 1, 0x80, 8, 0, 1, 0, 1, 0, 0, 0],
            &leaf(0, 127),
            &leaf(1, 64),
        ];
        assert_eq!(group(3, &[127, 64]).bytes(), wanted.concat());
    }

    #[test]
    fn leaves_are_deleted_before_the_devices_own_shaper() {
        let shapers = ours(3, 1);
        let leaf = [
            20, 0, 1, 0x80, 8, 0, 1, 0, 2, 0, 0, 0, 8, 0, 2, 0, 0, 0, 0, 0,
        ];
        let device = [12, 0, 1, 0x80, 8, 0, 1, 0, 1, 0, 0, 0];
        let index = [8, 0, 8, 0, 3, 0, 0, 0];
        assert_eq!(shapers.len(), 2);
        assert_eq!(shapers[0].1.bytes(), [&index[..], &leaf].concat());
        assert_eq!(shapers[1].1.bytes(), [&index[..], &device].concat());
    }

    #[test]
    fn capabilities_are_asked_of_queues() {
        let wanted = [8, 0, 1, 0, 3, 0, 0, 0, 8, 0, 2, 0, 2, 0, 0, 0];
        assert_eq!(capabilities(3).bytes(), wanted);
    }

    #[test]
    fn loopback_takes_no_weights_and_says_why() {
        match NetShaper::open(1).unwrap() {
            Ok(shaper) => panic!("{shaper:?}"),
            Err(reason) => assert!(
                reason.contains("weights") || reason.contains("6.13"),
                "{reason}"
            ),
        }
    }
}
