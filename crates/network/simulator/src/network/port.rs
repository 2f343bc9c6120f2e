//! One port: the state that the event loop uses for every packet, in one cache line.
//!
//! Times on the wire are products with a fixed-point number of picoseconds per byte: exact where the rate gives a whole
//! number (all usual ones), else less than 0.1 ps short for the largest packet.

use crate::topology::{NodeId, PortId, Topology};
use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// Fractional bits of picoseconds per byte. A byte at 1 Mb/s takes 2^23 ps, so 65,535 of them stay below 2^59.
const SCALE_BITS: u32 = 20;

#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Port {
    /// When the last bit of the packet (or pause frame) on the line leaves.
    pub(super) free_at: u64,
    /// Picoseconds per byte, times 2^[`SCALE_BITS`].
    scale: u64,
    /// Picoseconds of the link.
    pub(super) delay: u64,
    /// Bytes that wait.
    pub(super) queued: u64,
    /// Most bytes that ever waited.
    pub(super) queue_max: u64,
    /// Bytes sent.
    pub(super) sent: u64,
    /// Who receives.
    pub(super) to: NodeId,
    pub(super) waiting: u32,
    /// The switch that the port belongs to, counted without hosts; none for a host.
    pub(super) switch: u16,
    /// The port of the other direction, counted within the receiver.
    pub(super) enters: u16,
    /// Classes that the receiver has paused, a bit each.
    pub(super) paused: u8,
    /// An event at `free_at` or before is filed.
    pub(super) free_filed: bool,
    /// The host's transport wants to know when the port runs dry.
    pub(super) tell_idle: bool,
}

const _: () = assert!(size_of::<Port>() == 64, "a port fills one cache line");

/// The `switch` of a host's port.
pub(super) const HOST: u16 = u16::MAX;

impl Port {
    pub(super) fn new(topology: &Topology, port: PortId) -> Self {
        let spec = topology.ports[port.0 as usize];
        let own = &topology.ports_of[spec.to.0 as usize];
        let switch = spec.from.0.checked_sub(topology.hosts);
        let second = Bytes::new(1 << SCALE_BITS);
        Self {
            free_at: 0,
            scale: spec.rate.time_for(second).as_ps(),
            delay: spec.delay.as_ps(),
            queued: 0,
            queue_max: 0,
            sent: 0,
            to: spec.to,
            waiting: 0,
            switch: switch.map_or(HOST, |switch| switch as u16),
            enters: (spec.back.0 - own[0].0) as u16,
            paused: 0,
            free_filed: false,
            tell_idle: false,
        }
    }

    /// Time of `bytes` on the line.
    #[inline]
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_ps((self.scale * bytes) >> SCALE_BITS)
    }

    /// The same for all bytes of a run.
    pub(super) fn time_for_many(&self, bytes: u64) -> Duration {
        let ps = (u128::from(self.scale) * u128::from(bytes)) >> SCALE_BITS;
        Duration::from_ps(ps as u64)
    }

    /// Whether a packet that comes now may have the line.
    #[inline]
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        !self.free_filed && self.free_at <= now.as_ps()
    }

    /// Whether a packet of `class` that comes now goes straight to the line.
    #[inline]
    pub(super) fn passes(&self, now: Instant, class: u8) -> bool {
        self.is_idle(now) && self.waiting == 0 && self.paused & (1 << class) == 0
    }

    /// Picoseconds per byte, rounded down.
    #[inline]
    pub(super) fn ps_per_byte(&self) -> u64 {
        self.scale >> SCALE_BITS
    }
}
