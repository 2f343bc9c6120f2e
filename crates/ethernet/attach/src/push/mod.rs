//! Telling a device's scheduler the weight of each queue (DQWA), by whatever interface its driver has.
//!
//! * [`net_shaper`] - the kernel's interface for shapers of queues, Linux 6.13 and newer;
//! * [`devlink`] - rates of a device's scheduling nodes, where a node stands for a queue;
//! * [`Told::Nobody`] - neither: queues are served as the device pleases, in turn as a rule, and titan's figures for
//!   DQA alone are what to expect.
//!
//! Limits: no device at hand takes weights, so both encodings are compared with the kernel's specification byte by
//! byte, and driven against a stand-in of the kernel's side that refuses at any request; they were never seen to move a
//! real scheduler. Shapers that somebody else made are left alone.

pub mod devlink;
pub mod net_shaper;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::NicError;
use isolane_ethernet_policy::titan::weights::WeightOptions;

/// A way to tell a device weights.
pub trait Pusher {
    /// Its name, in journals and reports.
    fn name(&self) -> &'static str;

    /// The range it takes, and how often.
    fn options(&self) -> WeightOptions;

    /// Whether nobody else has told the device weights since it was opened. Asked once, before the first are told: what
    /// is there afterwards is ours.
    ///
    /// # Errors
    /// The kernel's.
    fn is_free(&mut self) -> Result<bool, NicError>;

    /// Tells the weight of each queue.
    ///
    /// # Errors
    /// The kernel's.
    fn push(&mut self, weights: &[u32]) -> Result<(), NicError>;

    /// Takes back what was told, for this many queues. Nothing to take back is no error.
    ///
    /// # Errors
    /// The kernel's.
    fn undo(&mut self, queues: u16) -> Result<(), NicError>;
}

/// Who is told weights.
pub enum Told {
    /// A pusher.
    By(Box<dyn Pusher>),
    /// Nobody, with the reason.
    Nobody(String),
}

impl Told {
    /// The pusher that the device takes.
    ///
    /// # Errors
    /// The kernel's, but for "not supported".
    pub fn choose(device: &Device) -> Result<Self, NicError> {
        let shaper = match net_shaper::NetShaper::open(device.index)? {
            Ok(shaper) => return Ok(Self::By(Box::new(shaper))),
            Err(reason) => reason,
        };
        Ok(
            match devlink::Devlink::open(device.index, device.managed_queues())? {
                Ok(devlink) => Self::By(Box::new(devlink)),
                Err(reason) => Self::Nobody(format!("{shaper}; {reason}")),
            },
        )
    }

    /// The pusher that a journal names; none if it is not there any more, and nothing can be left of it then.
    ///
    /// # Errors
    /// The kernel's.
    pub fn named(name: &str, index: u32, queues: u16) -> Result<Option<Box<dyn Pusher>>, NicError> {
        Ok(match name {
            net_shaper::NAME => net_shaper::NetShaper::reopen(index)?
                .map(|shaper| Box::new(shaper) as Box<dyn Pusher>),
            devlink::NAME => devlink::Devlink::reopen(index, queues)?
                .map(|devlink| Box::new(devlink) as Box<dyn Pusher>),
            _ => None,
        })
    }

    /// In words, for a report.
    pub fn text(&self) -> String {
        match self {
            Self::By(pusher) => pusher.name().to_owned(),
            Self::Nobody(reason) => format!("nobody ({reason})"),
        }
    }
}
