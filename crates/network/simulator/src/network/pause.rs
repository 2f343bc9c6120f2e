//! Priority flow control (IEEE 802.1Qbb): pauses instead of drops.
//!
//! A switch counts what it holds of each class per port through which it came. When a count reaches `xoff`, the switch
//! sends a pause frame back through that port; when it has fallen below `xon`, another frame that releases the class. A frame
//! waits for the end of the packet on the line, goes ahead of all that wait, takes [`FRAME_BYTES`] on it and the
//! link's delay. A paused port finishes the packet that it sends and passes the class over. Hosts obey pauses and never
//! send any: they take what comes.
//!
//! Until a pause takes hold, more comes: the packet that reached `xoff` (one packet beyond it), what the frame waits
//! for at both ends (a packet each), and the link twice over. This headroom must fit beside `xoff` for every class of
//! every port ([`Network::check_headroom`]); then nothing is ever dropped, in any pattern.
//!
//! How long a frame holds: until it is taken back; or, with [`Pfc::quanta`], for so many times of 512 bits on its link.
//! Then the port that requested the pause repeats it after half of that time as long as it needs the pause, and the
//! peer resumes by itself when no repeat arrives. The parser refuses times so short that a pause ends before its repeat
//! can be there.

use super::{Event, Network};
use crate::topology::{PortId, Topology};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_network_scenario::model::{CLASSES_MAX, Pfc, PortSettings};

/// A pause frame on the wire: the smallest Ethernet frame.
const FRAME_BYTES: u64 = 64;

/// Bytes of one unit of pause time: 512 bits.
const QUANTUM_BYTES: u64 = 64;

/// A buffer that cannot hold what arrives until pauses take hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a port's buffer of {buffer} is too small for pauses without loss: {classes} classes of xoff {xoff} and headroom \
     {headroom} (three packets of {packet}, {frames} of pause frames, {link} on the link of {port} there and back) \
     need {need}; enlarge `buffer` or lower `xoff` to {xoff_max} at most"
)]
pub struct HeadroomError {
    /// The port with the largest need.
    pub port: String,
    /// Buffer of one port.
    pub buffer: Bytes,
    /// Traffic classes.
    pub classes: u64,
    /// Bytes at which a class is paused.
    pub xoff: Bytes,
    /// Bytes that may come after it.
    pub headroom: Bytes,
    /// A full packet on the wire.
    pub packet: Bytes,
    /// Pause frames that one may wait for.
    pub frames: Bytes,
    /// What is on the link, both ways.
    pub link: Bytes,
    /// What all classes need.
    pub need: Bytes,
    /// The largest `xoff` that fits.
    pub xoff_max: Bytes,
}

/// Counts per port of entry and class.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    limits: Limits,
    /// Bytes by class, then port: most runs use one class.
    held: [Vec<u64>; CLASSES_MAX],
    /// Classes that a port has paused at its peer.
    asked: Vec<u8>,
    /// When each port's peer began to pause it, and for how long in all.
    since: Vec<Option<Instant>>,
    total: Vec<Duration>,
    terms: Option<Terms>,
}

fn terms(pauses: &mut Option<Pauses>) -> Option<&mut Terms> {
    pauses.as_mut()?.terms.as_mut()
}

/// Bytes of a class from which on a port pauses its peer, and below which the peer may go on.
#[derive(Clone, Copy, Debug)]
struct Limits {
    xoff: u64,
    xon: u64,
}

/// Pauses that end by themselves.
#[derive(Clone, Debug)]
struct Terms {
    /// For how long a frame holds each port.
    hold: Vec<Duration>,
    /// Until when each class of a port is held, if it is.
    until: Vec<[Instant; CLASSES_MAX]>,
    /// Classes whose end is filed, and those whose repeat is.
    ending: Vec<u8>,
    repeating: Vec<u8>,
}

impl Terms {
    fn new(topology: &Topology, quanta: u16) -> Self {
        let ports = topology.ports.len();
        let bytes = Bytes::new(u64::from(quanta) * QUANTUM_BYTES);
        let back = |port: usize| topology.ports[topology.ports[port].back.0 as usize];
        Self {
            hold: (0..ports)
                .map(|port| back(port).rate.time_for(bytes))
                .collect(),
            until: vec![[Instant::ZERO; CLASSES_MAX]; ports],
            ending: vec![0; ports],
            repeating: vec![0; ports],
        }
    }
}

impl Pauses {
    pub(super) fn new(topology: &Topology, pfc: Pfc) -> Self {
        let ports = topology.ports.len();
        Self {
            limits: Limits {
                xoff: pfc.xoff.get(),
                xon: pfc.xon.get(),
            },
            held: std::array::from_fn(|_| vec![0; ports]),
            asked: vec![0; ports],
            since: vec![None; ports],
            total: vec![Duration::ZERO; ports],
            terms: pfc.quanta.map(|quanta| Terms::new(topology, quanta)),
        }
    }

    /// Time for which `port` was paused by its peer until `now`, in any class.
    pub(super) fn paused(&self, port: PortId, now: Instant) -> Duration {
        let port = port.0 as usize;
        let open = self.since[port].map_or(Duration::ZERO, |since| now - since);
        self.total[port] + open
    }

    /// Bytes held for a port of entry, all classes.
    pub(super) fn held(&self, port: PortId) -> u64 {
        self.held.iter().map(|class| class[port.0 as usize]).sum()
    }
}

impl Network {
    /// Whether the buffers of `settings` hold all that can arrive under pauses with `classes` classes. The error is the
    /// port that needs most, when its need exceeds the buffer of one port.
    pub fn check_headroom(
        topology: &Topology,
        settings: &PortSettings,
        classes: usize,
    ) -> Result<(), HeadroomError> {
        let Some(pfc) = settings.pfc else {
            return Ok(());
        };
        let packet = settings.mtu + settings.header;
        let classes = classes as u64;
        let frames = Bytes::new(2 * FRAME_BYTES * classes);
        let link = |port: usize| {
            let spec = topology.ports[port];
            spec.rate.bytes_in(spec.delay * 2)
        };
        let entered = |port: &usize| topology.ports[*port].to.0 >= topology.hosts;
        let ports = (0..topology.ports.len()).filter(entered);
        let Some(port) = ports.max_by_key(|&port| link(port)) else {
            return Ok(());
        };
        let headroom = Bytes::new(3 * packet.get()) + frames + link(port);
        let need = Bytes::new(classes * (pfc.xoff + headroom).get());
        if need <= settings.buffer {
            return Ok(());
        }
        let share = Bytes::new(settings.buffer.get() / classes);
        Err(HeadroomError {
            port: topology.port_name(PortId(port as u32)),
            buffer: settings.buffer,
            classes,
            xoff: pfc.xoff,
            headroom,
            packet,
            frames,
            link: link(port),
            need,
            xoff_max: share.saturating_sub(headroom),
        })
    }

    /// `bytes` have come through `entered`, a port of a switch.
    #[inline]
    pub(super) fn occupy_ingress(&mut self, now: Instant, entered: PortId, class: u8, bytes: u64) {
        self.change_ingress(now, entered, class, |held, limits| {
            *held += bytes;
            (*held >= limits.xoff).then_some(true)
        });
    }

    /// `bytes` that had come through `entered` have left.
    #[inline]
    pub(super) fn release_ingress(&mut self, now: Instant, entered: PortId, class: u8, bytes: u64) {
        self.change_ingress(now, entered, class, |held, limits| {
            *held -= bytes;
            (*held < limits.xon).then_some(false)
        });
    }
    /// Changes what the port holds of the class by `change`, which returns whether the class should be paused, or `None` to
    /// leave the peer as it is.
    #[inline]
    fn change_ingress(
        &mut self,
        now: Instant,
        entered: PortId,
        class: u8,
        change: impl FnOnce(&mut u64, Limits) -> Option<bool>,
    ) {
        let Some(pauses) = &mut self.pauses else {
            return;
        };
        let port = entered.0 as usize;
        let held = &mut pauses.held[usize::from(class)][port];
        let (bit, asked) = (1 << class, &mut pauses.asked[port]);
        let Some(on) = change(held, pauses.limits) else {
            return;
        };
        if (*asked & bit != 0) != on {
            *asked ^= bit;
            self.send_frame(now, entered, class, on);
        }
    }

    fn send_frame(&mut self, now: Instant, through: PortId, class: u8, on: bool) {
        let state = &mut self.ports[through.0 as usize];
        let starts = Instant::from_ps(state.free_at.max(now.as_ps()));
        let free_at = starts + state.time_for(FRAME_BYTES);
        state.free_at = free_at.as_ps();
        let arrival = Instant::from_ps(state.free_at + state.delay);
        let port = self.topology.ports[through.0 as usize].back;
        self.counts.pauses += 1;
        if state.waiting > 0 {
            self.expect_free(through);
        }
        self.events
            .schedule(arrival, Event::Pause { port, class, on });
        if on
            && let Some(terms) = self
                .pauses
                .as_mut()
                .and_then(|pauses| pauses.terms.as_mut())
        {
            let repeating = &mut terms.repeating[through.0 as usize];
            if *repeating & (1 << class) == 0 {
                *repeating |= 1 << class;
                let half = Duration::from_ps(terms.hold[port.0 as usize].as_ps() / 2);
                let port = through;
                self.events
                    .schedule(now + half, Event::Repeat { port, class });
            }
        }
    }

    /// Half of a pause that `port` requested is over.
    pub(super) fn repeat_pause(&mut self, now: Instant, port: PortId, class: u8) {
        let Some(pauses) = &mut self.pauses else {
            return;
        };
        let Some(terms) = &mut pauses.terms else {
            return;
        };
        terms.repeating[port.0 as usize] &= !(1 << class);
        if pauses.asked[port.0 as usize] & (1 << class) != 0 {
            self.send_frame(now, port, class, true);
        }
    }

    /// A class of `port` is held for a frame's time from now.
    fn hold_until(&mut self, now: Instant, port: PortId, class: u8) {
        let Some(terms) = terms(&mut self.pauses) else {
            return;
        };
        let index = port.0 as usize;
        let at = now + terms.hold[index];
        terms.until[index][usize::from(class)] = at;
        if terms.ending[index] & (1 << class) == 0 {
            terms.ending[index] |= 1 << class;
            self.events.schedule(at, Event::Expire { port, class });
        }
    }

    /// The end that a pause had when this was filed.
    pub(super) fn expire_pause(&mut self, now: Instant, port: PortId, class: u8) {
        let Some(terms) = terms(&mut self.pauses) else {
            return;
        };
        let index = port.0 as usize;
        terms.ending[index] &= !(1 << class);
        if self.ports[index].paused & (1 << class) == 0 {
            return;
        }
        let until = terms.until[index][usize::from(class)];
        if until > now {
            terms.ending[index] |= 1 << class;
            self.events.schedule(until, Event::Expire { port, class });
            return;
        }
        self.obey(now, port, class, false);
    }

    /// A pause frame has come for `port`.
    pub(super) fn obey(&mut self, now: Instant, port: PortId, class: u8, on: bool) {
        let state = &mut self.ports[port.0 as usize];
        let before = state.paused;
        state.paused = match on {
            true => before | 1 << class,
            false => before & !(1 << class),
        };
        let after = state.paused;
        if on {
            self.hold_until(now, port, class);
        }
        let state = &self.ports[port.0 as usize];
        let may_send = !on && state.waiting > 0 && state.is_idle(now);
        if let Some(pauses) = &mut self.pauses {
            let (since, total) = (
                &mut pauses.since[port.0 as usize],
                &mut pauses.total[port.0 as usize],
            );
            match (before, after) {
                (0, 1..) => *since = Some(now),
                (1.., 0) => *total += since.take().map_or(Duration::ZERO, |since| now - since),
                _ => {}
            }
        }
        if may_send {
            self.send_next(now, port);
        }
    }
}
