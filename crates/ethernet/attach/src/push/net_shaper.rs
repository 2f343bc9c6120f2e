//! Queue weights by the net-shaper interface.
//!
//! Method: one GROUP request makes every queue a leaf of the device's own scheduler with its weight; the kernel applies
//! all of it or nothing. It makes the device's own shaper too. As nothing is told where there are shapers, all of them are
//! ours afterwards: undoing deletes the queues' and then the device's, after which queues are served equally again.
//! Limits: only where the driver says that queues take weights; not where anybody has shapers on the device already.
//! Units: weights are relative numbers of 32 bits. Drivers that take them keep 7 bits at least.
//! Source: `Documentation/netlink/specs/net_shaper.yaml` of Linux 6.13.

use super::Pusher;
use crate::error::NicError;
use crate::generic::{Ask, Generic};
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::AttributesBuilder;
use isolane_common_quantities::units::Duration;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// Its name.
pub const NAME: &str = "net-shaper";

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

/// A write goes through the driver to the device, often by a mailbox: not each millisecond.
const INTERVAL: Duration = Duration::from_ms(10);

/// A device that takes weights this way.
#[derive(Debug)]
pub struct NetShaper {
    family: Box<dyn Ask>,
    index: u32,
}

impl NetShaper {
    /// Opens the interface of device `index`, or says why it cannot be used.
    ///
    /// # Errors
    /// The kernel's, but for "not supported".
    pub fn open(index: u32) -> Result<Result<Self, String>, NicError> {
        match Generic::open(NAME)? {
            Some(family) => Self::over(Box::new(family), index),
            None => Ok(Err(
                "the kernel has no net-shaper interface (Linux 6.13)".to_owned()
            )),
        }
    }

    /// The same over a family that is open.
    pub(super) fn over(
        mut family: Box<dyn Ask>,
        index: u32,
    ) -> Result<Result<Self, String>, NicError> {
        let mut takes_weights = false;
        let asked = family.ask(
            "ask what shapers the device has",
            CAPABILITIES,
            false,
            &capabilities(index),
            &mut |answer| takes_weights |= answer.bytes(CAPABILITIES_WEIGHT).is_some(),
        );
        match asked {
            Ok(()) if takes_weights => {}
            Ok(()) | Err(HostError::NotOffered { .. }) => {
                return Ok(Err("its driver takes no weights of queues".to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
        let mut opened = Self { family, index };
        Ok(match opened.shapers()? {
            0 => Ok(opened),
            count => Err(format!("somebody has {count} shapers on it already")),
        })
    }

    /// Opens the interface to take back what was told; none where the kernel has none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reopen(index: u32) -> Result<Option<Self>, NicError> {
        let family = Generic::open(NAME)?;
        Ok(family.map(|family| Self {
            family: Box::new(family),
            index,
        }))
    }

    /// How many shapers the device has.
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
            "tell the weights of queues",
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

/// What a group made, in the order in which it is deleted, with what to say: leaves first.
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

/// Every queue a leaf of the device, with its weight.
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

    /// Written out by hand from the specification's numbers: lengths count the four bytes of the header, and bit 15 of
    /// a type marks what is nested.
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
