//! A fixed window: a number of packets that may be unacknowledged. The simplest control; for comparison and for tests.

use super::{Limit, Parameter, Values, whole};

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "window_packets",
    default: 16.0,
    least: 1.0,
    most: 1e6,
    meaning: "packets of a channel that may be unacknowledged",
}];

/// The control.
#[derive(Clone, Debug)]
pub struct Window {
    window: u32,
}

impl Window {
    /// With these parameters.
    pub fn new(values: &Values) -> Self {
        Self {
            window: whole(values.of("window_packets")),
        }
    }

    /// What every channel may do.
    #[inline]
    pub fn limit(&self) -> Limit {
        Limit {
            window: self.window,
            ..Limit::OPEN
        }
    }
}
