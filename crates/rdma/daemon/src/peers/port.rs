//! A device as the daemon itself uses it: memory, one completion queue, and connections to peers.
//!
//! Method: one reliable connection per peer. Reference messages are WRITEs into [`LANDING_BYTES`] bytes that every peer
//! may write and the daemon never reads; reports are SENDs. Receive buffers are in memory that peers cannot write
//! directly. Limits: [`LINKS_MAX`] peers per device.

use super::exchange::REPORTS_MAX;
use super::handshake::{Endpoint, HandshakeError, PORTS_MAX};
use super::report::{REPORT_BYTES, encode};
use crate::order::REFERENCE_BYTES;
use crate::settings;
use isolane_common_linux::key::random;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region;
use isolane_rdma_verbs_sys::safe::{
    Capacity, CompletionChannel, CompletionQueue, Connection, Context, Element, MemoryRegion, Peer,
    ProtectionDomain, QueuePair, ReceiveList, Request, SendList, Target, Timers, VerbsError,
    port_gid, port_gids,
};
use isolane_rdma_verbs_sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, Library, ibv_gid};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest number of peers per device.
pub const LINKS_MAX: usize = settings::PEERS_MAX;
/// A response may take 0.27 s, and a link fails after seven times that, 1.9 s. With shorter timers, messages delayed by
/// a full link would be sent twice. A retry count of seven would be endless on Soft-RoCE: the queue pair would hang
/// instead of being replaced.
const TIMERS: Timers = Timers {
    timeout: 16,
    retries: 6,
    min_rnr: 12,
    rnr_retries: 7,
};
/// Memory that peers may write.
const LANDING_BYTES: u64 = 64;
/// Reference messages in flight to one peer: at a period of 1 ms, a network that stops for 32 ms.
pub(super) const REFERENCES_MAX: usize = 32;
/// Receives posted for one peer.
const RECEIVES: usize = 8;
const REPORT: u64 = REPORT_BYTES as u64;

/// The work request of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Reference,
    Sent,
    /// A received report, with the number of its buffer.
    Came(u64),
}

/// An open device.
#[derive(Debug)]
pub(super) struct Port {
    domain: Arc<ProtectionDomain>,
    landing: Arc<MemoryRegion>,
    messages: Arc<MemoryRegion>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) queue: Arc<CompletionQueue>,
    name: String,
    number: u8,
    gid_index: u8,
    gid: ibv_gid,
    lid: u16,
    mtu: u32,
    /// See [`Endpoint::addresses`].
    addresses: Vec<PortAddress>,
    daemon: [u8; 16],
    /// The class of new links.
    service: Mutex<region::Service>,
    places: Mutex<[bool; LINKS_MAX]>,
    numbers: AtomicU64,
}

/// The addresses of a port: its LID, and its GIDs as far as there is room.
fn addresses(context: &Context, port: u8, lid: u16) -> Vec<PortAddress> {
    let mut addresses = Vec::new();
    if lid != 0 {
        addresses.push(PortAddress::of_lid(lid));
    }
    for (_, gid, _) in port_gids(context, port) {
        let address = PortAddress(gid.raw);
        let is_new = gid.raw != [0; 16] && !addresses.contains(&address);
        if is_new && addresses.len() < PORTS_MAX {
            addresses.push(address);
        }
    }
    addresses
}

/// A connection to a peer, connected or being connected.
#[derive(Debug)]
pub(super) struct Link {
    queue_pair: QueuePair,
    port: Arc<Port>,
    place: usize,
    /// Unique while the daemon runs; it distinguishes completions of earlier links.
    pub(super) number: u64,
    packet_sequence: u32,
    pub(super) theirs: Option<Endpoint>,
    /// Whether this link carries our reference messages.
    pub(super) carries_reference: bool,
    /// Whether the link carries reports. A device does not report to itself.
    pub(super) reports: bool,
    /// Shut down when the link fails, so that its keeper makes another link.
    pub(super) alive: Option<OwnedFd>,
    sends: SendList,
}

const KIND_SHIFT: u32 = 8;

impl Port {
    /// Opens the device. Fails if the device does not exist, its port is down or has no address, or the daemon has no
    /// permission.
    pub(super) fn open(
        library: &Library,
        name: &str,
        settings: &settings::Port,
        daemon: [u8; 16],
    ) -> Result<Arc<Self>, VerbsError> {
        let context = Context::open(library, name)?;
        let port = context.port(settings.number)?;
        let (gid_index, gid) = match settings.gid_index {
            Some(index) => (index, context.gid(settings.number, index.into())?.0),
            None if port.ethernet => port_gid(&context, settings.number)?,
            None => port_gid(&context, settings.number).unwrap_or_default(),
        };
        let domain = ProtectionDomain::new(&context)?;
        let ours = IBV_ACCESS_LOCAL_WRITE;
        let landing = MemoryRegion::new(&domain, LANDING_BYTES, ours | IBV_ACCESS_REMOTE_WRITE)?;
        let buffers = (LINKS_MAX * RECEIVES + 1) as u64;
        let messages = MemoryRegion::new(&domain, buffers * REPORT, ours)?;
        let channel = CompletionChannel::new(&context)?;
        let entries = LINKS_MAX * (REFERENCES_MAX + REPORTS_MAX + RECEIVES);
        let most = context.attributes()?.max_cqe.max(1).unsigned_abs();
        let queue = CompletionQueue::new(&context, most.min(entries as u32), Some(&channel))?;
        Ok(Arc::new(Self {
            domain,
            landing,
            messages,
            channel,
            queue,
            name: name.to_owned(),
            number: settings.number,
            gid_index,
            gid,
            lid: port.lid,
            mtu: port.mtu,
            addresses: addresses(&context, settings.number, port.lid),
            daemon,
            service: Mutex::default(),
            places: Mutex::new([false; LINKS_MAX]),
            numbers: AtomicU64::new(1),
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the class of new links; returns the one before.
    pub(super) fn set_service(&self, service: region::Service) -> region::Service {
        let mut held = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut held, service)
    }

    fn service(&self) -> region::Service {
        *self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a queue pair with posted receives that can be connected. Fails if the device has no queue pairs left, or
    /// [`LINKS_MAX`] peers exist.
    pub(super) fn prepare(self: &Arc<Self>) -> Result<Link, HandshakeError> {
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let free = places.iter().position(|taken| !taken);
            let free = free.ok_or_else(|| HandshakeError::Refused {
                reason: format!(
                    "{} has {LINKS_MAX} peers already; further ones get no reference flow and no reports",
                    self.name
                ),
            })?;
            places[free] = true;
            free
        };
        let made = self.make(place);
        if made.is_err() {
            self.give_back(place);
        }
        made
    }

    fn make(self: &Arc<Self>, place: usize) -> Result<Link, HandshakeError> {
        let capacity = Capacity {
            sends: (REFERENCES_MAX + REPORTS_MAX) as u32,
            receives: RECEIVES as u32,
            send_elements: 1,
            receive_elements: 1,
            inline_bytes: REPORT_BYTES as u32,
        };
        let queue_pair = QueuePair::reliable(&self.domain, &self.queue, capacity)?;
        queue_pair.initialise(
            self.number,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        )?;
        let mut sequence = [0; 4];
        random(&mut sequence)?;
        let link = Link {
            queue_pair,
            port: Arc::clone(self),
            place,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            packet_sequence: u32::from_le_bytes(sequence) & 0xff_ffff,
            theirs: None,
            carries_reference: false,
            reports: true,
            alive: None,
            sends: SendList::new(vec![Arc::clone(&self.messages)]),
        };
        for index in 0..RECEIVES {
            link.receive((place * RECEIVES + index) as u64)?;
        }
        Ok(link)
    }

    fn give_back(&self, place: usize) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)[place] = false;
    }

    /// Copies the report out of a receive buffer.
    pub(super) fn report(&self, buffer: u64, bytes: usize) -> Vec<u8> {
        let mut report = vec![0; bytes.min(REPORT_BYTES)];
        self.messages.read(buffer * REPORT, &mut report);
        report
    }
}

impl Link {
    /// Our end for the peer; `wanted` is the peer's device.
    pub(super) fn endpoint(&self, wanted: &str) -> Endpoint {
        let port = &self.port;
        Endpoint {
            daemon: port.daemon,
            device: port.name.clone(),
            wanted: wanted.to_owned(),
            gid: port.gid.raw,
            lid: port.lid,
            queue_pair: self.queue_pair.number(),
            packet_sequence: self.packet_sequence,
            mtu: port.mtu,
            address: port.landing.address(),
            remote_key: port.landing.remote_key(),
            addresses: port.addresses.clone(),
        }
    }

    /// Connects our end with the peer's. Fails if the peer's address cannot be reached.
    pub(super) fn connect(&mut self, theirs: Endpoint) -> Result<(), VerbsError> {
        let service = self.port.service();
        let connection = Connection {
            port: self.port.number,
            gid_index: self.port.gid_index,
            mtu: self.port.mtu.min(theirs.mtu),
            packet_sequence: self.packet_sequence,
            traffic_class: service.traffic_class,
            service_level: service.level,
            read_atomic: 1,
            timers: TIMERS,
        };
        let peer = Peer {
            gid: ibv_gid { raw: theirs.gid },
            lid: theirs.lid,
            queue_pair: theirs.queue_pair,
            packet_sequence: theirs.packet_sequence,
        };
        self.queue_pair.connect(&connection, &peer)?;
        self.theirs = Some(theirs);
        Ok(())
    }

    /// Posts a reference message. Fails if the queue pair has failed.
    pub(super) fn send_reference(&mut self) -> Result<(), VerbsError> {
        let theirs = self.theirs.as_ref().expect("only connected links are used");
        let target = Target::Write {
            address: theirs.address,
            key: theirs.remote_key,
            immediate: None,
        };
        self.send(Work::Reference, target, REFERENCE_BYTES)
    }

    /// Posts a report. The data is copied while posting, so one buffer serves all. Fails if the queue pair has failed.
    pub(super) fn send_report(&mut self, state: &RemoteState) -> Result<(), VerbsError> {
        self.port.messages.write(SCRATCH, &encode(state));
        let target = Target::Send {
            immediate: None,
            datagram: None,
        };
        self.send(Work::Sent, target, REPORT_BYTES as u32)
    }

    fn send(&mut self, work: Work, target: Target<'_>, length: u32) -> Result<(), VerbsError> {
        let request = Request {
            id: self.id(work),
            target,
            signaled: true,
            inline: true,
            wrong_key: false,
        };
        let element = Element {
            region: 0,
            offset: SCRATCH,
            length,
        };
        self.sends.push(&request, &[element])?;
        self.sends
            .post(&self.queue_pair)
            .map_err(|(error, _)| error)
    }

    /// Posts a receive into a buffer. Fails if the queue pair has failed.
    pub(super) fn receive(&self, buffer: u64) -> Result<(), VerbsError> {
        let mut list = ReceiveList::new(vec![Arc::clone(&self.port.messages)]);
        let element = Element {
            region: 0,
            offset: buffer * REPORT,
            length: REPORT_BYTES as u32,
        };
        list.push(self.id(Work::Came(buffer)), Some(element))?;
        list.post(&self.queue_pair)
    }

    /// Work request id: the link's number above the kind of work. Buffer numbers are at most 512.
    fn id(&self, work: Work) -> u64 {
        let what = match work {
            Work::Reference => 0,
            Work::Sent => 1,
            Work::Came(buffer) => 2 + buffer,
        };
        self.number << (2 * KIND_SHIFT) | what
    }
}

/// Position after the receive buffers: the reports being sent.
const SCRATCH: u64 = (LINKS_MAX * RECEIVES) as u64 * REPORT;
const _: () = assert!(2 + LINKS_MAX * RECEIVES < 1 << (2 * KIND_SHIFT));

/// Number of the link and kind of work of a completion.
pub(super) fn work_of(id: u64) -> (u64, Work) {
    let work = match id & ((1 << (2 * KIND_SHIFT)) - 1) {
        0 => Work::Reference,
        1 => Work::Sent,
        buffer => Work::Came(buffer - 2),
    };
    (id >> (2 * KIND_SHIFT), work)
}

impl Drop for Link {
    fn drop(&mut self) {
        // Reset the queue pair first, so that no message arrives in buffers of the next link at this place. If the
        // reset fails, the device is gone and no message arrives.
        let _ = self.queue_pair.reset();
        self.port.give_back(self.place);
        if let Some(alive) = &self.alive {
            // The keeper notices the shutdown; it may have ended already.
            let _ = rustix::net::shutdown(alive, rustix::net::Shutdown::Both);
        }
    }
}
