//! Sets the weight of each queue in a device's scheduler (DQWA), through the interface of its driver.
//!
//! * [`net_shaper`] - the kernel's interface for shapers of queues, Linux 6.13 and newer;
//! * [`devlink`] - rates of a device's scheduling nodes, if each queue has a node.
//!
//! A device without either serves queues by its own rule, usually in turn.
//!
//! Limits: not tested on a NIC that accepts weights. Both encodings are compared with the kernel's specification
//! byte by byte, and tested against a substitute of the kernel's side that fails at any request. The lab's proof
//! `queue_weights` has net-shaper on a real kernel, with a device that stores shapers. Existing shapers of others are not touched.

pub(crate) mod devlink;
pub(crate) mod net_shaper;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::NicError;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// An interface that sets queue weights.
pub(crate) trait Pusher {
    /// Name in journals and reports.
    fn name(&self) -> &'static str;

    /// Range of weights and shortest interval.
    fn options(&self) -> WeightOptions;

    /// Whether no other program has set weights since it was opened. Called once before the first weights are set;
    /// later weights are ours.
    fn is_free(&mut self) -> Result<bool, NicError>;

    /// Sets the weight of each queue.
    fn push(&mut self, weights: &[u32]) -> Result<(), NicError>;

    /// Takes the weights of this many queues back. Repeating it is not an error.
    fn undo(&mut self, queues: u16) -> Result<(), NicError>;
}

/// The interface of the device, if it has one: else expect titan's figures for DQA alone. Fails with the kernel's error,
/// except "not supported".
pub(crate) fn choose(device: &Device) -> Result<Option<Box<dyn Pusher>>, NicError> {
    if let Ok(shaper) = net_shaper::NetShaper::open(device.index)? {
        return Ok(Some(Box::new(shaper)));
    }
    let devlink = devlink::Devlink::open(device.index, device.managed_queues())?;
    Ok(devlink
        .ok()
        .map(|devlink| Box::new(devlink) as Box<dyn Pusher>))
}

/// The interface that a journal names; `None` if it no longer exists, in which case nothing is left to undo.
pub(crate) fn named(
    name: &str,
    index: u32,
    queues: u16,
) -> Result<Option<Box<dyn Pusher>>, NicError> {
    Ok(match name {
        net_shaper::NAME => {
            net_shaper::NetShaper::reopen(index)?.map(|shaper| Box::new(shaper) as Box<dyn Pusher>)
        }
        devlink::NAME => devlink::Devlink::reopen(index, queues)?
            .map(|devlink| Box::new(devlink) as Box<dyn Pusher>),
        _ => None,
    })
}
