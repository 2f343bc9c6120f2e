//! Counters of packets and ports, and the check that packets are conserved.

use super::Network;
use crate::topology::PortId;
use isolane_common_quantities::units::Duration;
use isolane_study_results::network::{PacketCounts, PortCounts, PortResult};
use std::cmp::Reverse;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It arrived at a full buffer.
    BufferFull,
    /// It mattered least in a full buffer (pFabric).
    LowerPriority,
    /// Its class held all that it may.
    ClassFull,
}

impl DropReason {
    const ALL: [Self; 3] = [Self::BufferFull, Self::LowerPriority, Self::ClassFull];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer-full",
            Self::LowerPriority => "pfabric-lower-priority",
            Self::ClassFull => "class-full",
        }
    }
}

/// Ports in each list of [`PortCounts`].
const LISTED: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) data: u64,
    pub(super) repeated: u64,
    pub(super) marked: u64,
    pub(super) pauses: u64,
    pub(super) events: u64,
    /// Packets between the port that they left and the node at which they arrive.
    pub(super) on_wire: u64,
    dropped: [u64; DropReason::ALL.len()],
    dropped_at: Vec<u64>,
}

impl Counts {
    pub(super) fn new(ports: usize) -> Self {
        Self {
            sent: 0,
            delivered: 0,
            data: 0,
            repeated: 0,
            marked: 0,
            pauses: 0,
            events: 0,
            on_wire: 0,
            dropped: [0; _],
            dropped_at: vec![0; ports],
        }
    }

    pub(super) fn drop(&mut self, port: PortId, reason: DropReason) {
        self.dropped[reason as usize] += 1;
        self.dropped_at[port.0 as usize] += 1;
    }
}

impl Network {
    /// Packets so far.
    pub fn counts(&self) -> PacketCounts {
        let counts = &self.counts;
        let dropped = |reason: &DropReason| counts.dropped[*reason as usize];
        let reasons = DropReason::ALL.iter().filter(|reason| dropped(reason) > 0);
        PacketCounts {
            sent: counts.sent,
            delivered: counts.delivered,
            dropped: reasons
                .map(|reason| (reason.name().to_owned(), dropped(reason)))
                .collect(),
            in_flight: self.in_flight(),
            data: counts.data,
            repeated: counts.repeated,
            marked: counts.marked,
            pauses: counts.pauses,
            events: counts.events,
        }
    }

    /// Packets that wait at ports or are on the wire.
    fn in_flight(&self) -> u64 {
        let waiting: u64 = self.ports.iter().map(|port| u64::from(port.waiting)).sum();
        waiting + self.counts.on_wire
    }

    /// Ports so far: the fullest and the busiest.
    pub fn port_counts(&self) -> PortCounts {
        let all = || (0..self.ports.len() as u32).map(PortId);
        let list = |mut ports: Vec<(u64, PortId)>| {
            ports.retain(|&(value, _)| value > 0);
            ports.sort_by_key(|&(value, port)| (Reverse(value), port));
            ports.truncate(LISTED);
            ports.iter().map(|&(_, port)| self.port(port)).collect()
        };
        let queue = |port: PortId| (self.ports[port.0 as usize].queue_max, port);
        let busy = |port: PortId| (self.busy(port).as_ps(), port);
        PortCounts {
            fullest: list(all().map(queue).collect()),
            busiest: list(all().map(busy).collect()),
        }
    }

    /// One port so far.
    pub fn port(&self, port: PortId) -> PortResult {
        let now = self.now();
        let paused = match &self.pauses {
            Some(pauses) => pauses.paused(port, now),
            None => Duration::ZERO,
        };
        let share = |part: Duration| match now.as_ps() {
            0 => 0.0,
            all => part.as_ps() as f64 / all as f64,
        };
        PortResult {
            name: self.topology.port_name(port),
            queue_max_bytes: self.ports[port.0 as usize].queue_max,
            utilisation: share(self.busy(port)),
            dropped: self.counts.dropped_at[port.0 as usize],
            paused_share: share(paused),
        }
    }

    /// Time in which packets have been on the port's line; what is there now counts up to now.
    fn busy(&self, port: PortId) -> Duration {
        let state = &self.ports[port.0 as usize];
        let ahead = Duration::from_ps(state.free_at.saturating_sub(self.now().as_ps()));
        state.time_for_many(state.sent).saturating_sub(ahead)
    }

    /// Every packet sent was delivered or dropped, waits or is on the wire; every byte that waits is in a queue, and
    /// in the memory of its switch. Called at the end of every run. Panics if that is not so: a mistake of ours.
    pub fn assert_conservation(&self) {
        let counts = &self.counts;
        let dropped: u64 = counts.dropped.iter().sum();
        let in_flight = self.in_flight();
        assert_eq!(
            counts.sent,
            counts.delivered + dropped + in_flight,
            "sent = {} delivered + {dropped} dropped + {in_flight} in flight",
            counts.delivered
        );
        assert!(
            self.packets.live() as u64 >= in_flight,
            "a packet in flight was forgotten"
        );
        for (number, (port, discipline)) in self.ports.iter().zip(&self.disciplines).enumerate() {
            let name = || self.topology.port_name(PortId(number as u32));
            assert_eq!(port.queued, discipline.bytes(), "bytes at {}", name());
        }
        self.assert_memory();
    }

    fn assert_memory(&self) {
        for switch in 0..self.topology.switches() as usize {
            let own = &self.topology.ports_of[self.topology.hosts as usize + switch];
            let queued = || own.iter().map(|port| self.ports[port.0 as usize].queued);
            if let Some(used) = self.buffers.used(switch) {
                assert_eq!(used, self.buffers.expected(queued()), "switch {switch}");
            }
            if let Some(pauses) = &self.pauses {
                let held: u64 = own.iter().map(|&port| pauses.held(port)).sum();
                let waiting: u64 = queued().sum();
                assert_eq!(held, waiting, "entered and held at switch {switch}");
            }
        }
    }
}
