//! Sets the weight of each queue in a device's scheduler (DQWA), through the interface of its driver.
//!
//! * [`net_shaper`] - the kernel's interface for shapers of queues, Linux 6.13 and newer;
//! * [`devlink`] - rates of a device's scheduling nodes, if each queue has a node;
//! * [`WeightInterface::Absent`] - neither: the device serves queues by its own rule, usually in turn; expect titan's figures for
//!   DQA alone.
//!
//! Limits: not tested on a device that accepts weights. Both encodings are compared with the kernel's specification
//! byte by byte, and tested against a substitute of the kernel's side that fails at any request. Existing shapers of
//! others are not touched.

pub mod devlink;
pub mod net_shaper;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::NicError;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// An interface that sets queue weights.
pub trait Pusher {
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

/// The interface that receives weights.
pub enum WeightInterface {
    /// A pusher.
    By(Box<dyn Pusher>),
    /// None, with the reason.
    Absent(String),
}

impl WeightInterface {
    /// Chooses the interface that the device supports. Fails with the kernel's error, except "not supported".
    pub fn choose(device: &Device) -> Result<Self, NicError> {
        let shaper = match net_shaper::NetShaper::open(device.index)? {
            Ok(shaper) => return Ok(Self::By(Box::new(shaper))),
            Err(reason) => reason,
        };
        Ok(
            match devlink::Devlink::open(device.index, device.managed_queues())? {
                Ok(devlink) => Self::By(Box::new(devlink)),
                Err(reason) => Self::Absent(format!("{shaper}; {reason}")),
            },
        )
    }

    /// The interface that a journal names; `None` if it no longer exists, in which case nothing is left to undo.
    pub fn named(name: &str, index: u32, queues: u16) -> Result<Option<Box<dyn Pusher>>, NicError> {
        Ok(match name {
            net_shaper::NAME => net_shaper::NetShaper::reopen(index)?
                .map(|shaper| Box::new(shaper) as Box<dyn Pusher>),
            devlink::NAME => devlink::Devlink::reopen(index, queues)?
                .map(|devlink| Box::new(devlink) as Box<dyn Pusher>),
            _ => None,
        })
    }
}
