//! Sets queue weights through devlink's rate objects.
//!
//! Problem: devlink's leaves are ports, not queues. Some drivers show the nodes of their transmit scheduler, and an
//! operator may have named one per queue. Method: the nodes `queue_0`, `queue_1`, ... of the device's devlink instance
//! get `tx_weight`; this requires a node for every managed queue. Undo sets all of them to weight 1. Limits: weights
//! from 1 to 200, the range of the drivers that accept them (ice). The original weights are not known afterwards, so
//! nodes with unequal weights are rejected. Source: `linux/devlink.h`,
//! `Documentation/networking/devlink/devlink-port.rst`.

use super::Pusher;
use crate::error::NicError;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::generic::{Ask, Generic};
use isolane_common_linux::netlink::{Attributes, AttributesBuilder};
use isolane_common_quantities::units::Duration;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// Name of this interface in journals and reports.
pub(crate) const NAME: &str = "devlink";

pub(super) const PORT_GET: u8 = 5;
pub(super) const RATE_GET: u8 = 74;
pub(super) const RATE_SET: u8 = 75;
pub(super) const BUS: u16 = 1;
pub(super) const DEVICE: u16 = 2;
pub(super) const PORT_NETWORK_DEVICE: u16 = 6;
pub(super) const RATE_NODE: u16 = 168;
pub(super) const RATE_WEIGHT: u16 = 178;

/// Prefix of the node names.
const NODE_PREFIX: &str = "queue_";
/// Shortest interval of writes: each write goes to the device's firmware.
const INTERVAL: Duration = Duration::from_ms(100);
const WEIGHT_MAX: u32 = 200;

/// A device with queue nodes.
#[derive(Debug)]
pub(crate) struct Devlink {
    family: Box<dyn Ask>,
    bus: String,
    device: String,
    /// The original weight of each queue's node; `None` for a queue without a node.
    weights: Vec<Option<u32>>,
}

impl Devlink {
    /// Opens the devlink instance of the device with that index, or returns why it cannot be used. Fails with the
    /// kernel's error, except "not supported".
    pub(crate) fn open(index: u32, queues: u16) -> Result<Result<Self, String>, NicError> {
        match Generic::open(NAME)? {
            Some(family) => Self::over(Box::new(family), index, queues),
            None => Ok(Err("the kernel has no devlink".to_owned())),
        }
    }

    /// The same over an open family.
    pub(super) fn over(
        family: Box<dyn Ask>,
        index: u32,
        queues: u16,
    ) -> Result<Result<Self, String>, NicError> {
        Ok(Self::look(family, index, queues)?.and_then(|devlink| {
            check(&devlink.weights)?;
            Ok(devlink)
        }))
    }

    /// Opens it to undo weights, for any present weights of its nodes; `None` if no node is left. Fails with the
    /// kernel's error, except "not supported".
    pub(crate) fn reopen(index: u32, queues: u16) -> Result<Option<Self>, NicError> {
        let Some(family) = Generic::open(NAME)? else {
            return Ok(None);
        };
        let found = Self::look(Box::new(family), index, queues)?.ok();
        Ok(found.filter(|devlink| devlink.weights.iter().any(Option::is_some)))
    }

    /// Finds the device's devlink instance and its queues' nodes, or returns why there is none.
    fn look(
        mut family: Box<dyn Ask>,
        index: u32,
        queues: u16,
    ) -> Result<Result<Self, String>, NicError> {
        let none = AttributesBuilder::new();
        let mut instance = None;
        let ports = family.ask("list devlink ports", PORT_GET, true, &none, &mut |port| {
            if port.u32(PORT_NETWORK_DEVICE) == Some(index) {
                instance = instance_of(&port);
            }
        });
        let Some((bus, device)) = offered(ports)?.and(instance) else {
            return Ok(Err("it has no devlink port".to_owned()));
        };
        let mut weights = vec![None; usize::from(queues)];
        let rates = family.ask("list devlink rates", RATE_GET, true, &none, &mut |rate| {
            if instance_of(&rate).is_some_and(|of| of == (bus.clone(), device.clone()))
                && let Some(place) = queue_of(&rate).and_then(|queue| weights.get_mut(queue))
            {
                *place = Some(rate.u32(RATE_WEIGHT).unwrap_or(0));
            }
        });
        offered(rates)?;
        Ok(Ok(Self {
            family,
            bus,
            device,
            weights,
        }))
    }

    fn set(&mut self, queue: usize, weight: u32) -> Result<(), HostError> {
        let rate = rate(&self.bus, &self.device, queue, weight);
        let action = format!("set tx_weight of devlink node {NODE_PREFIX}{queue} to {weight}");
        self.family
            .ask(&action, RATE_SET, false, &rate, &mut |_| {})
    }
}

impl Pusher for Devlink {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> WeightOptions {
        WeightOptions {
            most: WEIGHT_MAX,
            interval: INTERVAL,
            ..WeightOptions::default()
        }
    }

    fn is_free(&mut self) -> Result<bool, NicError> {
        // The nodes belong to the operator; only their weights are ours.
        Ok(true)
    }

    fn push(&mut self, weights: &[u32]) -> Result<(), NicError> {
        for (queue, weight) in weights.iter().enumerate() {
            self.set(queue, *weight)?;
        }
        Ok(())
    }

    fn undo(&mut self, queues: u16) -> Result<(), NicError> {
        let has_node = |queue: &usize| self.weights.get(*queue).is_some_and(Option::is_some);
        let nodes: Vec<usize> = (0..usize::from(queues)).filter(has_node).collect();
        nodes
            .into_iter()
            .try_for_each(|queue| Ok(self.set(queue, 1)?))
    }
}

/// Checks that each queue has a node and that all nodes have the same weight.
fn check(weights: &[Option<u32>]) -> Result<(), String> {
    let first = weights.first().copied().flatten();
    if first.is_none() || weights.contains(&None) {
        return Err("no devlink node for each queue (queue_0, queue_1, ...)".to_owned());
    }
    match weights.iter().all(|weight| *weight == first) {
        true => Ok(()),
        false => Err("its devlink nodes already have different weights".to_owned()),
    }
}

/// `None` if the kernel does not support the request.
fn offered(asked: Result<(), HostError>) -> Result<Option<()>, NicError> {
    match asked {
        Ok(()) => Ok(Some(())),
        Err(HostError::NotOffered { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn instance_of(attributes: &Attributes<'_>) -> Option<(String, String)> {
    Some((attributes.text(BUS)?, attributes.text(DEVICE)?))
}

fn queue_of(rate: &Attributes<'_>) -> Option<usize> {
    rate.text(RATE_NODE)?
        .strip_prefix(NODE_PREFIX)?
        .parse()
        .ok()
}

fn rate(bus: &str, device: &str, queue: usize, weight: u32) -> AttributesBuilder {
    AttributesBuilder::new()
        .with_text(BUS, bus)
        .with_text(DEVICE, device)
        .with_text(RATE_NODE, &format!("{NODE_PREFIX}{queue}"))
        .with_u32(RATE_WEIGHT, weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_encoded_as_the_header_says() {
        let wanted = [
            &[8, 0, 1, 0, b'p', b'c', b'i', 0][..],
            &[7, 0, 2, 0, b'3', b'b', 0, 0],
            &[12, 0, 168, 0, b'q', b'u', b'e', b'u', b'e', b'_', b'5', 0],
            &[8, 0, 178, 0, 200, 0, 0, 0],
        ];
        assert_eq!(rate("pci", "3b", 5, 200).bytes(), wanted.concat());
    }

    #[test]
    fn nodes_are_queues_by_their_name() {
        let of = |name: &str| {
            let node = AttributesBuilder::new().with_text(RATE_NODE, name);
            queue_of(&Attributes::new(node.bytes()))
        };
        assert_eq!(
            [of("queue_3"), of("node_3"), of("queue_x")],
            [Some(3), None, None]
        );
    }

    #[test]
    fn unequal_weights_are_foreign_when_opened() {
        assert_eq!(check(&[Some(1), Some(1)]), Ok(()));
        let words = |weights: &[Option<u32>]| check(weights).unwrap_err();
        assert!(words(&[Some(1), Some(9)]).contains("already"));
        assert!(words(&[Some(1), None]).contains("no devlink node"));
        assert!(words(&[]).contains("no devlink node"));
        // Our weights are taken back regardless of their values; the loopback has nothing to reopen.
        assert!(Devlink::reopen(1, 1).unwrap().is_none());
    }

    #[test]
    fn loopback_has_no_devlink_and_reports_it() {
        match Devlink::open(1, 1).unwrap() {
            Ok(devlink) => panic!("{devlink:?}"),
            Err(reason) => assert!(reason.contains("devlink"), "{reason}"),
        }
    }
}
