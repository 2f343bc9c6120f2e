//! RDMA devices, links and resources, as the kernel tracks them (NETLINK_RDMA, RDMA_NLDEV).
//!
//! Method: one socket, one request per question, parsed by [`mod@parse`] into the types of [`types`].
//!
//! Limits, all the kernel's:
//! * An object that user space made carries its process id as seen from the reader's pid namespace. Of processes in
//!   other namespaces it carries none (Linux 6.12), or may be left out (older kernels). Read in the host's namespace.
//! * Memory keys come only with CAP_NET_ADMIN.
//! * The process id is the one that created the object; a child that inherited it over fork(2) is not named.
//!
//! Source: `rdma/rdma_netlink.h`, `drivers/infiniband/core/nldev.c` (Linux 6.12), rdma-resource(8).

pub mod parse;
pub mod types;

pub use types::*;

use isolane_common_linux::error::HostError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Family, Request, Socket};
use parse::attribute as number;

/// RDMA_NL_NLDEV, the client that owns these commands; it sits above the command's ten bits.
const NLDEV: u16 = 5 << 10;

/// RDMA_NLDEV_CMD_*.
mod command {
    pub(super) const GET: u16 = 1;
    pub(super) const PORT_GET: u16 = 5;
    pub(super) const RES_QP_GET: u16 = 10;
    pub(super) const RES_CM_ID_GET: u16 = 11;
    pub(super) const RES_CQ_GET: u16 = 12;
    pub(super) const RES_MR_GET: u16 = 13;
    pub(super) const RES_PD_GET: u16 = 14;
    pub(super) const RES_CTX_GET: u16 = 22;
    pub(super) const RES_SRQ_GET: u16 = 23;
}

/// An open NETLINK_RDMA socket.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    /// Opens the socket. Fails with [`HostError::NoRdmaSubsystem`] on a kernel without RDMA.
    pub fn open() -> Result<Self, HostError> {
        let socket = Socket::open(Family::Rdma)?;
        Ok(Self { socket })
    }

    /// Every device, by index.
    pub fn devices(&mut self) -> Result<Vec<Device>, HostError> {
        self.ask(
            "list RDMA devices",
            command::GET,
            true,
            AttributesBuilder::new(),
            parse::device,
        )
    }

    /// The device with that name. Fails with [`HostError::NoDevice`], which has the existing names.
    pub fn device(&mut self, name: &str) -> Result<Device, HostError> {
        let devices = self.devices()?;
        let known = devices.iter().map(|device| device.name.clone()).collect();
        let found = devices.into_iter().find(|device| device.name == name);
        found.ok_or_else(|| HostError::NoDevice {
            device: name.to_owned(),
            known,
        })
    }

    /// The links (ports) of a device, by port.
    pub fn links(&mut self, device: &Device) -> Result<Vec<Link>, HostError> {
        self.dump(device, "links", command::PORT_GET, |attributes| {
            parse::link(attributes).into_iter().collect()
        })
    }

    /// The queue pairs of a device.
    pub fn queue_pairs(&mut self, device: &Device) -> Result<Vec<QueuePair>, HostError> {
        self.dump(
            device,
            "queue pairs",
            command::RES_QP_GET,
            parse::queue_pairs,
        )
    }

    /// The completion queues of a device.
    pub fn completion_queues(
        &mut self,
        device: &Device,
    ) -> Result<Vec<CompletionQueue>, HostError> {
        self.dump(
            device,
            "completion queues",
            command::RES_CQ_GET,
            parse::completion_queues,
        )
    }

    /// The memory regions of a device.
    pub fn memory_regions(&mut self, device: &Device) -> Result<Vec<MemoryRegion>, HostError> {
        self.dump(
            device,
            "memory regions",
            command::RES_MR_GET,
            parse::memory_regions,
        )
    }

    /// The protection domains of a device.
    pub fn protection_domains(
        &mut self,
        device: &Device,
    ) -> Result<Vec<ProtectionDomain>, HostError> {
        self.dump(
            device,
            "protection domains",
            command::RES_PD_GET,
            parse::protection_domains,
        )
    }

    /// The connection identifiers (rdma_cm) of a device.
    pub fn connection_identifiers(
        &mut self,
        device: &Device,
    ) -> Result<Vec<ConnectionIdentifier>, HostError> {
        self.dump(
            device,
            "connection identifiers",
            command::RES_CM_ID_GET,
            parse::connection_identifiers,
        )
    }

    /// The contexts of a device: one per open of its `/dev/infiniband/uverbs` file. Empty on kernels before 5.15.
    pub fn contexts(&mut self, device: &Device) -> Result<Vec<Context>, HostError> {
        let contexts = self.dump(device, "contexts", command::RES_CTX_GET, parse::contexts);
        none_if_not_offered(contexts)
    }

    /// The shared receive queues of a device. Empty on kernels before 5.15.
    pub fn shared_receive_queues(
        &mut self,
        device: &Device,
    ) -> Result<Vec<SharedReceiveQueue>, HostError> {
        let queues = self.dump(
            device,
            "shared receive queues",
            command::RES_SRQ_GET,
            parse::shared_receive_queues,
        );
        none_if_not_offered(queues)
    }

    fn dump<T>(
        &mut self,
        device: &Device,
        what: &str,
        command: u16,
        parse: impl Fn(Attributes<'_>) -> Vec<T>,
    ) -> Result<Vec<T>, HostError> {
        let attributes = AttributesBuilder::new().with_u32(number::DEV_INDEX, device.index);
        let action = format!("list the {what} of {}", device.name);
        self.ask(&action, command, true, attributes, parse)
    }

    fn ask<T>(
        &mut self,
        action: &str,
        command: u16,
        dump: bool,
        attributes: AttributesBuilder,
        parse: impl Fn(Attributes<'_>) -> Vec<T>,
    ) -> Result<Vec<T>, HostError> {
        let request = Request {
            kind: NLDEV | command,
            dump,
            create: false,
            payload: attributes.bytes().to_vec(),
        };
        let mut found = Vec::new();
        // The kernel answers PORT_GET as GET, so only the client number identifies the message.
        self.socket.request(action, &request, |kind, payload| {
            if kind >> 10 == NLDEV >> 10 {
                found.extend(parse(Attributes::new(payload)));
            }
        })?;
        Ok(found)
    }
}

fn none_if_not_offered<T>(answer: Result<Vec<T>, HostError>) -> Result<Vec<T>, HostError> {
    match answer {
        Err(HostError::NotOffered { .. }) => Ok(Vec::new()),
        answer => answer,
    }
}
