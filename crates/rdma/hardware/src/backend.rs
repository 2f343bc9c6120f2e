//! The kernel's objects behind one interface: read a value, write a value.

use crate::setting::{Target, Value};
use isolane_common_linux::HostError;
use std::fmt;

/// Reads and writes values of objects.
///
/// A write that failed or was cut off leaves a value that [`Value::is_between`] the old and the new one.
pub trait Backend: fmt::Debug {
    /// The present value; [`Value::Absent`] if the object, its device or its cgroup does not exist.
    fn read(&mut self, target: &Target) -> Result<Value, HostError>;

    /// Makes `value` the value of the object. [`Value::Absent`] removes a group of rates.
    fn write(&mut self, target: &Target, value: &Value) -> Result<(), HostError>;
}
