//! A data end: creates its objects and connects its queue pairs.

use super::buffers::{self, Regions};
use super::error::EndError;
use super::pace;
use super::pattern::{self, Stamp};
use super::places::{Place, Places};
use crate::worker::{
    Arrival, DataWork, EndAddress, EndJob, Job, MemoryAddress, Operation, QueuePairAddress, Side,
};
use isolane_common_quantities::rng::Stream;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::safe::{
    AddressHandle, Capacity, CompletionChannel, CompletionQueue, Connection, Context, MemoryRegion,
    Peer, Port, ProtectionDomain, QueuePair, Service, Timers, port_gid,
};
use isolane_rdma_verbs_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, Library, ibv_gid,
};
use std::sync::Arc;

/// Bytes before the payload of a received datagram.
pub(super) const DATAGRAM_HEADER: u64 = 40;
/// Largest queue depth with checking, because each message then needs its own memory.
const CHECKED_DEPTH: u32 = 16;

/// The opened device of a job.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) context: Arc<Context>,
    pub(crate) port: Port,
    pub(crate) gid_index: u8,
    pub(crate) gid: ibv_gid,
}

impl Device {
    /// Opens the device of `job`.
    pub(crate) fn open(library: &Library, job: &Job) -> Result<Self, EndError> {
        let context = Context::open(library, &job.device)?;
        let port = context.port(job.port)?;
        if !port.active {
            return Err(EndError::Device {
                device: job.device.clone(),
                what: format!("port {} is not active", job.port),
                remedy: "set its network interface up (`ip link set ... up`), or name another port",
            });
        }
        let (gid_index, gid) = match job.gid_index {
            None => port_gid(&context, job.port)?,
            Some(index) => {
                let (gid, _) = context.gid(job.port, index)?;
                (u8::try_from(index).unwrap_or(u8::MAX), gid)
            }
        };
        Ok(Self {
            context,
            port,
            gid_index,
            gid,
        })
    }
}

/// All objects of one end, ready to be connected.
#[derive(Debug)]
pub(crate) struct DataEnd {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) begin_ns: u64,
    pub(super) end_ns: Option<u64>,
    pub(super) work: DataWork,
    pub(super) check: bool,
    pub(super) seed: u64,
    pub(super) channel: Option<Arc<CompletionChannel>>,
    pub(super) sends: Arc<CompletionQueue>,
    pub(super) receives: Arc<CompletionQueue>,
    pub(super) own: Vec<Arc<MemoryRegion>>,
    /// Memory that the peer may access, and of receives.
    pub(super) open: Vec<Arc<MemoryRegion>>,
    /// Memory that written data is read back to.
    pub(super) read_back: Option<Arc<MemoryRegion>>,
    pub(super) own_places: Places,
    pub(super) receive_places: Places,
    pub(super) queue_pairs: Vec<QueuePair>,
    pub(super) handles: Vec<Arc<AddressHandle>>,
    pub(super) remote: Vec<MemoryAddress>,
    /// Whether the device itself paces a paced process.
    pub(super) paced_by_device: bool,
    packet_sequences: Vec<u32>,
    device: Device,
    domain: Arc<ProtectionDomain>,
}

impl DataEnd {
    /// Creates all objects.
    pub(crate) fn prepare(
        library: &Library,
        job: &Job,
        end: &EndJob,
        work: &DataWork,
    ) -> Result<Self, EndError> {
        let work = effective(work, job.check);
        let device = Device::open(library, job)?;
        let domain = ProtectionDomain::new(&device.context)?;
        let limits = device.context.attributes()?;
        let channel = match job.events {
            true => Some(CompletionChannel::new(&device.context)?),
            false => None,
        };
        let entries = |each: u32| {
            let wanted = work.queue_pairs.saturating_mul(each).saturating_add(16);
            wanted.min(limits.max_cqe.unsigned_abs().max(1))
        };
        let sends = CompletionQueue::new(
            &device.context,
            entries(send_capacity(&work, job.check)),
            channel.as_ref(),
        )?;
        let receives = CompletionQueue::new(
            &device.context,
            entries(work.receive_depth),
            channel.as_ref(),
        )?;
        let largest = work.largest_message();
        let regions = u64::from(work.memory_regions);
        let pairs = u64::from(work.queue_pairs);
        let own_bytes = region_bytes(&work, job.check);
        let own_places = Places::new(regions, own_bytes, largest, pairs);
        let landing = landing_bytes(&work);
        let open_bytes = open_region_bytes(&work, job.check);
        let receive_places = Places::new(regions, open_bytes, landing, pairs);
        let mut access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if work.operation.is_atomic() {
            access |= IBV_ACCESS_REMOTE_ATOMIC;
        }
        let group = |wanted: bool, count: u32, bytes: u64, access| Regions {
            count: if wanted { count } else { 0 },
            bytes,
            access,
        };
        let local = IBV_ACCESS_LOCAL_WRITE;
        let reads_back = job.check && requests(&work) && reads_back(&work);
        let back_bytes = pairs * u64::from(work.depth) * largest.max(1);
        let groups = [
            group(requests(&work), work.memory_regions, own_bytes, local),
            group(is_target(&work), work.memory_regions, open_bytes, access),
            group(reads_back, 1, back_bytes, local),
        ];
        let [own, open, mut read_back] = buffers::regions(&domain, work.memory, groups)?;
        let read_back = read_back.pop();
        let queue_pairs = queue_pairs(&domain, [&sends, &receives], &work, job, access)?;
        let mut numbers = Stream::indexed(job.seed, "packet-sequence", u64::from(end.id));
        let packet_sequences = (0..work.queue_pairs)
            .map(|_| (numbers.next_u64() & 0xff_ffff) as u32)
            .collect();
        let made = Self {
            id: end.id,
            name: end.name.clone(),
            begin_ns: end.begin_ns,
            end_ns: end.end_ns,
            check: job.check,
            seed: job.seed,
            work,
            channel,
            sends,
            receives,
            own,
            open,
            read_back,
            own_places,
            receive_places,
            queue_pairs,
            handles: Vec::new(),
            remote: Vec::new(),
            paced_by_device: false,
            packet_sequences,
            device,
            domain,
        };
        made.fill_memory();
        Ok(made)
    }

    /// With checking: fills memory that READs fetch with a pattern, and all other memory with stale bytes.
    fn fill_memory(&self) {
        if !self.check || self.work.operation.is_atomic() {
            return;
        }
        for region in &self.open {
            pattern::stale(region, 0, region.length());
        }
        if self.work.operation == Operation::Read && is_target(&self.work) {
            for queue_pair in 0..u64::from(self.work.queue_pairs) {
                for sequence in 0..self.own_places.per_queue_pair() {
                    let place = self.own_places.of(queue_pair, sequence);
                    let stamp = self.stamp(queue_pair, sequence);
                    let length = self.work.largest_message();
                    pattern::fill(&self.open[place.region], place.offset, stamp, 0, length);
                }
            }
        }
    }

    pub(super) fn stamp(&self, queue_pair: u64, sequence: u64) -> Stamp {
        Stamp {
            seed: self.seed,
            queue_pair,
            sequence,
            direction: u64::from(self.work.side == Side::To),
        }
    }

    /// The region of element `index` of an own message at `place`. With checking, messages are not spread over regions,
    /// because messages of different shapes would overlap.
    pub(super) fn element_region(&self, place: Place, index: usize) -> usize {
        match self.check && self.work.pattern.len() > 1 {
            true => place.region,
            false => self.own_places.element_region(place, index),
        }
    }

    /// The direction of the peer's messages.
    pub(super) fn other_direction(&self) -> u64 {
        u64::from(self.work.side == Side::From)
    }

    pub(crate) fn address(&self) -> EndAddress {
        let numbers = self.queue_pairs.iter().zip(&self.packet_sequences);
        EndAddress {
            gid: gid_text(self.device.gid),
            lid: self.device.port.lid,
            mtu: self.device.port.mtu,
            queue_pairs: numbers
                .map(|(pair, &packet_sequence)| QueuePairAddress {
                    number: pair.number(),
                    packet_sequence,
                })
                .collect(),
            memory: self
                .open
                .iter()
                .map(|region| MemoryAddress {
                    address: region.address(),
                    length: region.length(),
                    remote_key: region.remote_key(),
                })
                .collect(),
        }
    }

    /// Checks that the objects of `peer` fit those of this end. Returns the peer's GID.
    fn check_peer(&self, peer: &EndAddress) -> Result<ibv_gid, EndError> {
        let refuse = |what, value: &dyn ToString, remedy| {
            Err(EndError::Peer {
                end: self.name.clone(),
                what,
                value: value.to_string(),
                remedy,
            })
        };
        let Some(gid) = gid_value(&peer.gid) else {
            return refuse("the address", &peer.gid, "must be 32 hexadecimal digits");
        };
        let count = peer.queue_pairs.len();
        if count != self.queue_pairs.len() {
            return refuse("queue pairs:", &count, "both ends must have as many");
        }
        let high = peer
            .queue_pairs
            .iter()
            .find(|pair| pair.number >> 24 != 0 || pair.packet_sequence >> 24 != 0);
        if let Some(pair) = high {
            return refuse("queue pair number", &pair.number, "must have 24 bits");
        }
        if requests(&self.work) && self.work.operation != Operation::Send {
            let needed = open_region_bytes(&self.work, self.check);
            let enough = peer
                .memory
                .iter()
                .filter(|memory| memory.length >= needed)
                .count();
            if enough != self.work.memory_regions as usize || enough != peer.memory.len() {
                return refuse(
                    "regions:",
                    &peer.memory.len(),
                    "both ends must be given the same job",
                );
            }
        }
        Ok(gid)
    }

    /// Connects the queue pairs with those of `peer`.
    pub(crate) fn connect(&mut self, peer: &EndAddress) -> Result<(), EndError> {
        let gid = self.check_peer(peer)?;
        let mtu = self.work.mtu.min(self.device.port.mtu).min(peer.mtu);
        if self.work.transport == Transport::Ud && self.work.largest_message() > u64::from(mtu) {
            return Err(EndError::Device {
                device: self.device.context.device().to_owned(),
                what: format!("datagrams are at most {mtu} bytes here"),
                remedy: "use smaller messages, or raise the MTU of the network interface",
            });
        }
        let limits = self.device.context.attributes()?;
        let outstanding = limits.max_qp_rd_atom.min(limits.max_qp_init_rd_atom);
        let outstanding = u32::try_from(outstanding).unwrap_or(0).min(255);
        let read_atomic = self.work.max_read_atomic.min(outstanding);
        let numbers = self.queue_pairs.iter().zip(&self.packet_sequences);
        for ((pair, &packet_sequence), other) in numbers.zip(&peer.queue_pairs) {
            let connection = Connection {
                port: self.device.port.number,
                gid_index: self.device.gid_index,
                mtu,
                packet_sequence,
                traffic_class: 0,
                service_level: 0,
                read_atomic: u8::try_from(read_atomic).unwrap_or(u8::MAX),
                timers: Timers {
                    min_rnr: self.work.min_rnr_timer,
                    ..Timers::default()
                },
            };
            let other = Peer {
                gid,
                lid: peer.lid,
                queue_pair: other.number,
                packet_sequence: other.packet_sequence,
            };
            pair.connect(&connection, &other)?;
            if self.work.transport == Transport::Ud {
                self.handles
                    .push(AddressHandle::new(&self.domain, &connection, &other)?);
            }
        }
        self.remote.clone_from(&peer.memory);
        self.paced_by_device =
            pace::by_device(&self.device.context, &self.work, &self.queue_pairs)?;
        Ok(())
    }
}

/// Whether the end posts send work requests, on its own or as answers.
pub(super) fn requests(work: &DataWork) -> bool {
    work.posts() || work.arrival == Arrival::PingPong
}

/// Whether the peer posts to this end.
pub(super) fn is_target(work: &DataWork) -> bool {
    work.side == Side::To || work.bidirectional || work.arrival == Arrival::PingPong
}

/// Whether written data is read back.
pub(super) fn reads_back(work: &DataWork) -> bool {
    work.operation == Operation::Write && work.arrival != Arrival::PingPong
}

/// The work as both ends run it: shorter queues when every byte is checked.
fn effective(work: &DataWork, check: bool) -> DataWork {
    let mut work = work.clone();
    if !work.operation.needs_receives() {
        work.receive_depth = 0;
        work.receive_batch = 0;
    }
    if check {
        work.depth = work.depth.min(CHECKED_DEPTH);
        work.post_list = work.post_list.min(work.depth);
        work.completion_every = 1;
        work.receive_depth = work.receive_depth.min(2 * CHECKED_DEPTH);
        work.receive_batch = work.receive_batch.min(work.receive_depth);
    }
    work
}

/// Capacity of a send queue, work requests.
pub(super) fn send_capacity(work: &DataWork, check: bool) -> u32 {
    let extra = match (work.arrival, check && reads_back(work)) {
        // An answer can be posted before the completion of the answered request.
        (Arrival::PingPong, _) => work.completion_every + 1,
        (_, true) => work.depth,
        (_, false) => 0,
    };
    work.depth + extra
}

/// Bytes of a region for own requests, and of their destination region.
fn region_bytes(work: &DataWork, check: bool) -> u64 {
    if !check && !work.operation.is_atomic() {
        return work.region_bytes;
    }
    let slots = match work.operation {
        Operation::WriteImm => u64::from(work.depth) + u64::from(work.receive_depth) + 2,
        _ => u64::from(work.depth),
    };
    let (regions, pairs) = (work.memory_regions.into(), work.queue_pairs.into());
    Places::checked_region_bytes(regions, work.largest_message(), pairs, slots)
        .max(work.region_bytes)
}

/// Bytes of a region that the peer accesses; for checked SENDs, every receive has its own slot.
fn open_region_bytes(work: &DataWork, check: bool) -> u64 {
    if work.operation != Operation::Send {
        return region_bytes(work, check);
    }
    let slots = if check {
        u64::from(work.receive_depth)
    } else {
        1
    };
    let (regions, pairs) = (work.memory_regions.into(), work.queue_pairs.into());
    Places::checked_region_bytes(regions, landing_bytes(work), pairs, slots).max(work.region_bytes)
}

/// Bytes of a receive buffer.
pub(super) fn landing_bytes(work: &DataWork) -> u64 {
    let header = match work.transport {
        Transport::Ud => DATAGRAM_HEADER,
        Transport::Rc | Transport::Uc => 0,
    };
    work.largest_message() + header
}

fn gid_text(gid: ibv_gid) -> String {
    gid.raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn gid_value(text: &str) -> Option<ibv_gid> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = digits.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(ibv_gid {
        raw: value.to_be_bytes(),
    })
}

/// The queue pairs of an end, initialised; `access` is that of its target regions.
fn queue_pairs(
    domain: &Arc<ProtectionDomain>,
    [sends, receives]: [&Arc<CompletionQueue>; 2],
    work: &DataWork,
    job: &Job,
    access: u32,
) -> Result<Vec<QueuePair>, EndError> {
    let capacity = Capacity {
        sends: send_capacity(work, job.check),
        receives: work.receive_depth.max(1),
        send_elements: u32::try_from(work.most_elements()).unwrap_or(u32::MAX),
        receive_elements: 1,
        inline_bytes: work.inline_bytes,
    };
    let service = match work.transport {
        Transport::Rc => Service::Rc,
        Transport::Uc => Service::Uc,
        Transport::Ud => Service::Ud,
    };
    let rights = match service {
        Service::Rc => access & !IBV_ACCESS_LOCAL_WRITE,
        Service::Uc | Service::Ud => IBV_ACCESS_REMOTE_WRITE,
    };
    (0..work.queue_pairs)
        .map(|_| {
            let pair = QueuePair::new(domain, service, sends, receives, capacity)?;
            pair.initialise(job.port, rights)?;
            Ok(pair)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_gid_survives_its_text(raw: [u8; 16]) {
            let gid = ibv_gid { raw };
            prop_assert_eq!(gid_value(&gid_text(gid)), Some(gid));
        }

        #[test]
        fn any_text_is_a_gid_or_not(text: String) {
            let _ = gid_value(&text);
        }
    }
}
