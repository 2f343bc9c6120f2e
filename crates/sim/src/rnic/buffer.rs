//! The receive buffer and what it does to those who fill it: pauses, and the switch behind them (stage 8).
//!
//! Occupancy counts packets from arrival until their payload is written, in order of arrival. Above `pause_bytes`
//! the port pauses its link partner, below `resume_bytes` it lets it go on. Behind a switch, the switch holds what
//! arrives meanwhile, marks it for ECN, and pauses the sender when its own buffer is full.

use super::lanes::ALL_CLASSES;
use super::world::{Event, Packet, World};
use isolane_scenario::model::Topology;

impl World {
    /// The switch keeps a packet for a host that pauses it.
    pub(crate) fn hold(&mut self, now: u64, host: usize, pair: u32, mut packet: Packet) {
        let size = u64::from(packet.payload) + self.device.frame;
        let delay = self.device.propagation;
        let (ecn, limit) = (self.device.switch_ecn, self.device.switch_buffer);
        let nic = &mut self.nics[host];
        packet.marked = ecn > 0 && nic.held_bytes > ecn;
        nic.count.marks += u64::from(packet.marked);
        nic.held.push_back((pair, packet));
        nic.held_bytes += size;
        if nic.held_bytes > limit && !nic.switch_pauses {
            nic.switch_pauses = true;
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    classes: ALL_CLASSES,
                    stop: true,
                },
            );
        }
    }

    /// The switch sends one held packet on.
    pub(crate) fn switch_drain(&mut self, now: u64, host: usize) {
        let nic = &mut self.nics[host];
        if nic.pausing {
            nic.draining = false;
            return;
        }
        let Some((pair, packet)) = nic.held.pop_front() else {
            nic.draining = false;
            return;
        };
        let size = u64::from(packet.payload) + self.device.frame;
        nic.held_bytes -= size;
        let resume = nic.switch_pauses && nic.held_bytes * 2 <= self.device.switch_buffer;
        if resume {
            nic.switch_pauses = false;
            let at = now + self.device.propagation;
            self.schedule(
                at,
                Event::Pause {
                    host: (1 - host) as u8,
                    classes: ALL_CLASSES,
                    stop: false,
                },
            );
        }
        self.accept(now, host, pair, packet);
        let next = now + self.device.link.of(size);
        self.nics[host].draining = true;
        self.schedule(next, Event::SwitchDrain { host: host as u8 });
    }

    /// Frees what has left the buffer by now.
    pub(crate) fn free_buffers(&mut self, now: u64, host: usize) {
        let nic = &mut self.nics[host];
        while nic.buffer.front().is_some_and(|entry| entry.0 <= now) {
            let (_, bytes) = nic.buffer.pop_front().expect("the front was just seen");
            nic.buffered -= u64::from(bytes);
        }
    }

    /// Pauses the link partner when the buffer is too full.
    pub(crate) fn watch_buffer(&mut self, now: u64, host: usize) {
        self.free_buffers(now, host);
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        if nic.buffered <= self.device.pause_at || nic.pausing {
            return;
        }
        nic.pausing = true;
        nic.pausing_since = now;
        nic.count.pauses_sent += 1;
        // Behind a switch, the switch holds what comes next.
        if self.topology == Topology::BackToBack {
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    classes: ALL_CLASSES,
                    stop: true,
                },
            );
        }
        self.watch_drain(now, host);
    }

    /// Comes back when the buffer, without further arrivals, may have drained to the resume threshold.
    fn watch_drain(&mut self, now: u64, host: usize) {
        let nic = &self.nics[host];
        let mut left = nic.buffered;
        let mut at = now + 1;
        for &(released, bytes) in &nic.buffer {
            if left <= self.device.resume_at {
                break;
            }
            left -= u64::from(bytes);
            at = at.max(released);
        }
        if left > self.device.resume_at {
            at = at.max(nic.responder_free);
        }
        self.schedule(at, Event::Drained { host: host as u8 });
    }

    /// The receive buffer may have drained enough to let the link partner go on.
    pub(crate) fn drained(&mut self, now: u64, host: usize) {
        self.free_buffers(now, host);
        if self.nics[host].buffered > self.device.resume_at {
            self.watch_drain(now, host);
            return;
        }
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        nic.pausing = false;
        nic.count.pausing_ps += now - nic.pausing_since;
        if self.topology == Topology::Switch {
            if !nic.held.is_empty() && !nic.draining {
                nic.draining = true;
                self.schedule(now + delay, Event::SwitchDrain { host: host as u8 });
            }
        } else {
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    classes: ALL_CLASSES,
                    stop: false,
                },
            );
        }
    }
}
