//! Generic netlink: finds families by name and sends their commands.
//!
//! Limits: a family that the kernel does not have is `None`, not an error, because modules are optional. Source:
//! genetlink(7)'s kernel documentation, `linux/genetlink.h`.

use super::{Attributes, AttributesBuilder, Family, Request, Socket};
use crate::error::HostError;

/// GENL_ID_CTRL: the family that resolves family names.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`: command, version, reserved.
const HEADER_BYTES: usize = 4;

/// Answers the requests of a family: the kernel, or a substitute in tests.
pub trait Ask: std::fmt::Debug {
    /// Requests one object, or with `dump` all; `each` receives the attributes of every answer.
    fn ask(
        &mut self,
        action: &str,
        command: u8,
        dump: bool,
        attributes: &AttributesBuilder,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), HostError>;
}

/// An open family.
#[derive(Debug)]
pub struct Generic {
    socket: Socket,
    family: u16,
}

impl Generic {
    /// Opens the family with that name; `None` if the kernel does not have it.
    pub fn open(name: &str) -> Result<Option<Self>, HostError> {
        let mut socket = Socket::open(Family::Generic)?;
        let attributes = AttributesBuilder::new().with_text(CTRL_ATTR_FAMILY_NAME, name);
        let request = request(CONTROLLER, CTRL_CMD_GETFAMILY, false, &attributes);
        let mut family = None;
        let action = format!("look for the netlink family {name}");
        let asked = socket.request(&action, &request, |_, payload| {
            family = attributes_of(payload).u16(CTRL_ATTR_FAMILY_ID);
        });
        match asked {
            Ok(()) => Ok(family.map(|family| Self { socket, family })),
            Err(HostError::NotOffered { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Ask for Generic {
    fn ask(
        &mut self,
        action: &str,
        command: u8,
        dump: bool,
        attributes: &AttributesBuilder,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), HostError> {
        let request = request(self.family, command, dump, attributes);
        let answer = |_, payload: &[u8]| each(attributes_of(payload));
        self.socket.request(action, &request, answer)
    }
}

/// Builds the message of a command.
fn request(family: u16, command: u8, dump: bool, attributes: &AttributesBuilder) -> Request {
    let mut payload = vec![command, 1, 0, 0];
    payload.extend(attributes.bytes());
    Request {
        kind: family,
        dump,
        create: false,
        payload,
    }
}

fn attributes_of(payload: &[u8]) -> Attributes<'_> {
    Attributes::new(payload.get(HEADER_BYTES..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_its_own_families() {
        assert!(Generic::open("nlctrl").unwrap().is_some());
        assert!(Generic::open("no-such-family").unwrap().is_none());
    }
}
