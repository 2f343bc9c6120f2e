//! Buffers of switches: whether a port may store one more packet.
//!
//! Three regimes, by [`PortSettings`]:
//!
//! * each port its own `buffer` bytes: a packet that would exceed them is dropped at the tail;
//! * shared (`shared_buffer`): the ports of a switch share `buffer * ports` bytes. Each port has [`RESERVED_PACKETS`]
//!   full packets of its own; beyond them it may hold at most [`ALPHA`] times what is left of the common rest (dynamic
//!   thresholds, Choudhury and Hahne 1998: with n ports congested each gets ALPHA / (1 + n ALPHA) of the rest);
//! * with pauses: any port may use all of the switch's memory, since pauses bound what is in it.
//!
//! These count whole ports. Beside them a class may have a limit of its own at each port, so that a low one cannot take the
//! room of a high one.

use super::port::{HOST, Port};
use crate::topology::Topology;
use isolane_common_quantities::units::Bytes;
use isolane_network_scenario::model::{CLASSES_MAX, PortSettings};

/// What a port may hold over what is free in the common pool.
const ALPHA: u64 = 1;
/// Full packets that every port may hold at any load of the others.
const RESERVED_PACKETS: u64 = 2;

#[derive(Clone, Debug)]
enum Regime {
    PerPort,
    Shared,
    Lossless,
}

#[derive(Clone, Debug)]
pub(super) struct Buffers {
    regime: Regime,
    /// Bytes of one port.
    own: u64,
    reserved: u64,
    switches: Vec<Memory>,
    /// Most bytes of each class at one port, if any has such a limit.
    classes: Option<[u64; CLASSES_MAX]>,
}

/// Memory that the ports of one switch have in common.
#[derive(Clone, Copy, Debug)]
struct Memory {
    size: u64,
    used: u64,
}

impl Buffers {
    pub(super) fn new(topology: &Topology, settings: &PortSettings) -> Self {
        let own = settings.buffer.get();
        let regime = match (settings.pfc, settings.shared_buffer) {
            (Some(_), _) => Regime::Lossless,
            (None, true) => Regime::Shared,
            (None, false) => Regime::PerPort,
        };
        let reserved = match regime {
            Regime::Shared => own.min(RESERVED_PACKETS * (settings.mtu + settings.header).get()),
            _ => 0,
        };
        let memory = |node: u32| {
            let ports = topology.ports_of[node as usize].len() as u64;
            Memory {
                size: (own - reserved).saturating_mul(ports),
                used: 0,
            }
        };
        let nodes = topology.hosts..topology.hosts + topology.switches();
        Self {
            regime,
            own,
            reserved,
            switches: nodes.map(memory).collect(),
            classes: None,
        }
    }

    pub(super) fn limit_classes(&mut self, limits: impl IntoIterator<Item = Option<Bytes>>) {
        let mut all = [u64::MAX; CLASSES_MAX];
        for (own, given) in all.iter_mut().zip(limits) {
            *own = given.map_or(u64::MAX, Bytes::get);
        }
        self.classes = all.iter().any(|own| *own < u64::MAX).then_some(all);
    }

    /// Whether some class has a limit of its own.
    #[inline]
    pub(super) fn limits_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// Most bytes of `class` at one port.
    pub(super) fn class_limit(&self, class: u8) -> u64 {
        self.classes.map_or(u64::MAX, |all| all[usize::from(class)])
    }

    /// Whether `bytes` more may wait at this port of a switch.
    #[inline]
    pub(super) fn admit(&self, port: &Port, bytes: u64) -> bool {
        let queued = port.queued + bytes;
        match self.regime {
            Regime::PerPort => queued <= self.own,
            _ => self.admit_shared(port, queued, bytes),
        }
    }

    /// Whether the port is within its limit.
    #[inline]
    pub(super) fn fits(&self, port: &Port) -> bool {
        self.admit(port, 0)
    }

    fn admit_shared(&self, port: &Port, queued: u64, bytes: u64) -> bool {
        let memory = self.switches[usize::from(port.switch)];
        match self.regime {
            Regime::Lossless => memory.used + bytes <= memory.size,
            _ => {
                let beyond = queued.saturating_sub(self.reserved);
                let own = self.beyond(port.queued);
                let free = memory.size.saturating_sub(memory.used);
                beyond == 0 || (beyond <= ALPHA * free && beyond.saturating_sub(own) <= free)
            }
        }
    }

    #[inline]
    fn beyond(&self, queued: u64) -> u64 {
        queued.saturating_sub(self.reserved)
    }

    /// `port`, whose queue already counts them, has taken in `bytes`.
    #[inline]
    pub(super) fn enters(&mut self, port: &Port, bytes: u64) {
        if !matches!(self.regime, Regime::PerPort) && port.switch != HOST {
            let more = self.beyond(port.queued) - self.beyond(port.queued - bytes);
            self.switches[usize::from(port.switch)].used += more;
        }
    }

    /// `port`, whose queue no longer counts them, has let go of `bytes`.
    #[inline]
    pub(super) fn leaves(&mut self, port: &Port, bytes: u64) {
        if !matches!(self.regime, Regime::PerPort) && port.switch != HOST {
            let less = self.beyond(port.queued + bytes) - self.beyond(port.queued);
            self.switches[usize::from(port.switch)].used -= less;
        }
    }

    /// Bytes that the common memory of a switch counts.
    pub(super) fn used(&self, switch: usize) -> Option<u64> {
        (!matches!(self.regime, Regime::PerPort)).then(|| self.switches[switch].used)
    }

    /// What `used` should be for ports that hold `queued` bytes each.
    pub(super) fn expected(&self, queued: impl Iterator<Item = u64>) -> u64 {
        queued.map(|queued| self.beyond(queued)).sum()
    }
}
