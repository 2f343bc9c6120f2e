//! The kernel's objects behind one interface: read a value, write a value.

use crate::setting::{Renamable, Target, Value};
use isolane_common_linux::HostError;
use std::fmt;

/// Reads and writes values of objects.
///
/// A write that failed or was cut off leaves a value that [`Value::is_between`] the old and the new one.
pub trait Backend: fmt::Debug {
    /// The present value; [`Value::Absent`] if the object, its device or its cgroup does not exist.
    fn read(&mut self, target: &Target) -> Result<Value, HostError>;

    /// The kernel's number of the device, which stays when the device is renamed; `None` if no device has that name.
    fn number(&mut self, device: Renamable<'_>) -> Result<Option<u64>, HostError>;

    /// The present name of the device of that kind and `number`; `None` if this network namespace has no such device.
    fn name(&mut self, device: Renamable<'_>, number: u64) -> Result<Option<String>, HostError>;

    /// Makes `value` the value of the object. [`Value::Absent`] removes a group of rates.
    fn write(&mut self, target: &Target, value: &Value) -> Result<(), HostError>;
}
