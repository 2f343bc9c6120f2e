//! Paths to far memory, ordered reads, reserved packet memory and lists in the packet processor.

use super::MicroPair;
use crate::rnic::access::Access;
use crate::rnic::byte_time::ByteTime;
use crate::rnic::micro_receives::READ_AHEAD;
use crate::rnic::process::PatternEntry;
use crate::rnic::sizes::RECEIVE_WQE_BYTES;
use crate::rnic::world::World;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{MemoryPlace, Transport, Verb};

impl<const RECORDS: bool> World<RECORDS> {
    /// Fills in what pairs and NICs keep, when all pairs are there.
    pub(crate) fn set_micro(&mut self) {
        for index in 0..self.pairs.len() {
            self.set_micro_of(index);
        }
    }

    /// The same for one pair.
    pub(crate) fn set_micro_of(&mut self, index: usize) {
        let micro = self.device.micro;
        let pair = &self.pairs[index];
        let plan = &self.plans[self.processes[pair.process as usize].plan as usize];
        let longest = |entry: &PatternEntry| u64::from(entry.elements);
        let elements = plan.pattern.iter().map(longest).max().unwrap_or(1);
        let receive = match pair.transport {
            Transport::Ud => micro.receive_ud,
            _ => RECEIVE_WQE_BYTES * elements,
        };
        let request = self.device.wqe_bytes(pair.transport, elements);
        let ends = [usize::from(pair.host), usize::from(pair.peer)];
        let connected = pair.transport != Transport::Ud && !pair.reference;
        let mtu = if connected { u64::from(pair.mtu) } else { 0 };
        let gathers = if connected {
            micro.staging_element * elements
        } else {
            0
        };
        let posted = if pair.verb == Verb::Send {
            pair.receives * receive
        } else {
            0
        };
        let list = u64::from(plan.receive_batch);
        self.nics[ends[0]].micro.reserved += mtu + gathers;
        self.nics[ends[1]].micro.reserved += mtu;
        self.nics[ends[1]].micro.receives += posted;
        if pair.verb == Verb::Read && !pair.reference {
            self.nics[ends[1]].micro.kept += micro.responder_pair;
        }
        let requests = u64::from(plan.post_list.min(plan.completion_every)).max(1);
        let phase = if pair.transport == Transport::Rc {
            index as u64 % requests
        } else {
            0
        };
        if micro.request_cache > 0 {
            self.nics[ends[0]].micro.kept += phase * request;
        }
        let window = micro.receive_window.checked_div(receive).unwrap_or(0);
        let burst = micro.receive_burst > 0 && list >= micro.receive_burst;
        self.pairs[index].micro = MicroPair {
            receive,
            list,
            displaced: if burst {
                self.pairs[index].receives.saturating_sub(window)
            } else {
                0
            },
            requests,
            posted_at_once: u64::from(plan.post_list),
            phase,
            request,
            read: READ_AHEAD,
            granted: READ_AHEAD,
            ..MicroPair::default()
        };
    }

    /// The path to `place`, where it is a bottleneck.
    fn path(&self, place: MemoryPlace) -> Option<(usize, ByteTime)> {
        let index = match place {
            MemoryPlace::Local => return None,
            MemoryPlace::RemoteSocket => 0,
            MemoryPlace::Gpu => 1,
        };
        self.device.micro.paths[index].map(|time| (index, time))
    }

    /// Reads or writes `bytes` at `place` over the path to it; when they have passed. A write goes behind what is read.
    pub(crate) fn over_path(
        &mut self,
        host: usize,
        at: u64,
        bytes: u64,
        place: MemoryPlace,
        reads: bool,
    ) -> u64 {
        let Some((index, time)) = self.path(place) else {
            return at;
        };
        let nic = &mut self.nics[host];
        let time = time.of(bytes);
        nic.count.paths_busy[index] += time;
        let (read, all) = &mut nic.micro.paths[index];
        *all = (*all).max(at) + time;
        if !reads {
            return *all;
        }
        *read = at.max(*read) + time;
        *read
    }

    /// A gathering read that changes between short and long elements: on a host that keeps the order of everything, writes
    /// wait for it.
    pub(crate) fn order_reads(&mut self, host: usize, at: u64, pair: u32, message: u64) {
        let process = &self.processes[self.pairs[pair as usize].process as usize];
        let pattern = &self.plans[process.plan as usize].pattern;
        let changes = pattern[message as usize % pattern.len()].changes;
        let nic = &mut self.nics[host];
        nic.pcie_out_free = nic.pcie_out_free.max(at) + self.device.micro.ordering * changes;
    }

    /// What connections have reserved does not fit the packet memory: payload is read, displaced and read again.
    pub(crate) fn read_again(&mut self, host: usize, at: u64, bytes: u64, access: Access) {
        if self.device.micro.staging > 0
            && self.nics[host].micro.reserved > self.device.micro.staging
        {
            self.pcie(BusDirection::ToNic, host, at, bytes, || access);
        }
    }

    /// A packet of `pair` passes the packet processor of `host`, amid a message or not; what bringing its list of requests in
    /// costs it, ps. A request that is posted alone needs no list.
    pub(crate) fn bring_in(&mut self, host: usize, pair: u32, (amid, sends): (bool, bool)) -> u64 {
        let micro = &self.device.micro;
        let nic = &mut self.nics[host];
        let queue_pair = &mut self.pairs[pair as usize];
        let list = queue_pair.micro.posted_at_once;
        nic.micro.passed += list;
        let end = usize::from(usize::from(queue_pair.host) != host);
        let before = std::mem::replace(&mut queue_pair.micro.at_hand[end], nic.micro.passed);
        let cold = list > 1 && nic.micro.passed - before > micro.hot_requests;
        if !cold || !amid {
            return 0;
        }
        if sends {
            // Arrivals wait while the processor works for what leaves.
            nic.responder_free += micro.swap + self.device.packet;
        }
        micro.swap
    }
}
