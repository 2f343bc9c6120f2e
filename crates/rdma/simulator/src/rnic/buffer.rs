//! The receive buffer and what it does to those who fill it: pauses, and the switch behind them (stage 8).
//!
//! Occupancy counts packets from arrival until their payload is written, in order of arrival. Above `pause_bytes`
//! the port pauses its link partner, below `resume_bytes` it lets it go on. Behind a switch, the switch holds what
//! arrives meanwhile, marks it for ECN, and pauses the sender when it holds too much of it.
//!
//! With more than two hosts several ports feed one: the switch port towards a host sends one packet at a time at the
//! link's rate, in order of arrival, and holds the rest. What the switch holds is accounted to the port it came in by,
//! as priority flow control does it: a host is paused once the switch holds more than its buffer from that host, for
//! any ports. With two hosts nothing can overrun a port but a pause, and nothing is held.
//!
//! Classes may have a receive buffer to themselves, with pauses and room in the switch of its own; buffers share the
//! switch port packet by packet, in turn. Without such classes there is one buffer for all.

use super::apart::RUN_AHEAD;
use super::event::{Event, Packet, PacketKind};
use super::world::World;
use isolane_rdma_scenario::model::Topology;

impl<const RECORDS: bool> World<RECORDS> {
    /// Whether the switch port towards `host` has to hold a packet that arrives now.
    pub(crate) fn port_holds(&mut self, now: u64, host: usize, packet: Packet) -> bool {
        let time = self.device.link.of(self.size_of(packet));
        let shared = self.nics.len() > 2;
        let nic = &mut self.nics[host];
        if nic.pausing & bit(packet.buffer) != 0 || nic.draining {
            return true;
        }
        if shared && nic.port_free + time > now {
            // Cut-through: its last byte is out when the port has sent what came before, and then this packet.
            nic.draining = true;
            let at = nic.port_free + time;
            self.schedule(at, Event::SwitchDrain { host: host as u8 });
            return true;
        }
        nic.port_free = now;
        false
    }

    fn size_of(&self, packet: Packet) -> u64 {
        u64::from(packet.payload) + self.device.frame
    }

    /// The host that sent a packet of a pair.
    fn sender(&self, pair: u32, packet: Packet) -> usize {
        let queue_pair = &self.pairs[pair as usize];
        usize::from(if packet.kind == PacketKind::ReadResponse {
            queue_pair.peer
        } else {
            queue_pair.host
        })
    }

    /// The switch keeps a packet for a host that pauses it, or whose port is busy.
    pub(crate) fn hold(&mut self, now: u64, host: usize, pair: u32, mut packet: Packet) {
        let size = self.size_of(packet);
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        let state = &mut nic.buffers[usize::from(packet.buffer)];
        packet.marked = state.ecn_at > 0 && state.held_bytes > state.ecn_at;
        nic.count.marks += u64::from(packet.marked);
        state.held.push_back((pair, packet));
        state.held_bytes += size;
        let sender = self.sender(pair, packet);
        let nic = &mut self.nics[sender];
        let state = &mut nic.buffers[usize::from(packet.buffer)];
        state.in_switch += size;
        if state.in_switch > state.switch_at && nic.switch_pauses & bit(packet.buffer) == 0 {
            nic.switch_pauses |= bit(packet.buffer);
            self.traced(move |tracer| tracer.pauses(host, sender));
            self.send_pause(now + delay, sender, packet.buffer, true);
        }
    }

    fn send_pause(&mut self, at: u64, host: usize, buffer: u8, stop: bool) {
        let classes = self.nics[host].buffers[usize::from(buffer)].classes;
        let host = host as u8;
        self.schedule(
            at,
            Event::Pause {
                host,
                classes,
                stop,
            },
        );
    }

    /// The switch sends one held packet on.
    pub(crate) fn switch_drain(&mut self, now: u64, host: usize) {
        let Some((pair, packet)) = self.next_held(host) else {
            self.nics[host].draining = false;
            return;
        };
        let size = self.size_of(packet);
        let sender = self.sender(pair, packet);
        let nic = &mut self.nics[sender];
        let state = &mut nic.buffers[usize::from(packet.buffer)];
        state.in_switch -= size;
        if nic.switch_pauses & bit(packet.buffer) != 0 && state.in_switch * 2 <= state.switch_at {
            nic.switch_pauses &= !bit(packet.buffer);
            let at = now + self.device.propagation;
            self.send_pause(at, sender, packet.buffer, false);
        }
        self.accept(now, host, pair, packet);
        let next = now + self.device.link.of(size);
        let nic = &mut self.nics[host];
        nic.draining = true;
        nic.port_free = now;
        self.schedule(next, Event::SwitchDrain { host: host as u8 });
    }

    /// Takes the oldest packet of the next buffer in turn that the host does not pause.
    fn next_held(&mut self, host: usize) -> Option<(u32, Packet)> {
        let nic = &mut self.nics[host];
        let buffers = nic.buffers.len();
        for step in 0..buffers {
            let number = (nic.next_buffer + step) % buffers;
            if nic.pausing >> number & 1 == 1 {
                continue;
            }
            let state = &mut nic.buffers[number];
            if let Some(held) = state.held.pop_front() {
                state.held_bytes -= u64::from(held.1.payload) + self.device.frame;
                nic.next_buffer = (number + 1) % buffers;
                return Some(held);
            }
        }
        None
    }

    /// The link partner stops classes of the port or lets them go on.
    pub(crate) fn pause(&mut self, now: u64, host: usize, classes: u16, stop: bool) {
        self.traced(move |tracer| tracer.paused(host, classes, stop));
        let nic = &mut self.nics[host];
        let before = nic.lanes.paused;
        if stop {
            nic.lanes.paused |= classes;
            if before == 0 {
                nic.paused_since = now;
            }
            nic.count.pauses_received += u64::from(nic.lanes.paused != before);
            return;
        }
        nic.lanes.paused &= !classes;
        if before != 0 && nic.lanes.paused == 0 {
            nic.count.paused_ps += now - nic.paused_since;
        }
        self.step_at(host, now);
    }

    /// Frees what has left the buffer by now.
    pub(crate) fn free_buffers(&mut self, now: u64, host: usize, buffer: u8) {
        self.nics[host].buffers[usize::from(buffer)].free(now);
    }

    /// Pauses the link partner when the buffer is too full.
    #[inline]
    pub(crate) fn watch_buffer(&mut self, now: u64, host: usize, buffer: u8) {
        let nic = &mut self.nics[host];
        let state = &mut nic.buffers[usize::from(buffer)];
        state.free(now);
        state.peak = state.peak.max(state.buffered);
        if state.buffered > state.pause_at && nic.pausing & bit(buffer) == 0 {
            self.begin_pause(now, host, buffer);
        }
    }

    /// The buffer is too full: pauses the link partner.
    fn begin_pause(&mut self, now: u64, host: usize, buffer: u8) {
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        let first = nic.pausing == 0;
        if first {
            nic.pausing_since = now;
        }
        nic.pausing |= bit(buffer);
        nic.count.pauses_sent += 1;
        // Behind a switch, the switch holds what comes next.
        if first && self.ask_network(now, host, true) {
            // The network's port holds what comes next.
        } else if self.border.is_none() && self.topology == Topology::BackToBack {
            self.traced(move |tracer| tracer.pauses(host, 1 - host));
            self.send_pause(now + delay, 1 - host, buffer, true);
        }
        self.watch_drain(now, host, buffer);
    }

    /// Comes back when the buffer, without further arrivals, may have drained to the resume threshold.
    fn watch_drain(&mut self, now: u64, host: usize, buffer: u8) {
        let nic = &self.nics[host];
        let state = &nic.buffers[usize::from(buffer)];
        let mut left = state.buffered;
        let mut at = now + 1;
        for &(released, bytes) in &state.packets {
            if left <= state.resume_at {
                break;
            }
            left -= u64::from(bytes);
            at = at.max(released);
        }
        if left > state.resume_at {
            // Those that still wait for the units leave no earlier than these are free.
            at = at.max(nic.responder_free);
            if let Some(apart) = &nic.apart {
                // What waits for its tenant's turn leaves no earlier than the units look at it, and is not checked
                // every picosecond meanwhile.
                at = at.max(apart.looks_at().unwrap_or(0)).max(now + RUN_AHEAD);
            }
        }
        let host = host as u8;
        self.schedule(at, Event::Drained { host, buffer });
    }

    /// The buffer may have drained enough to let the link partner go on.
    pub(crate) fn drained(&mut self, now: u64, host: usize, buffer: u8) {
        self.free_buffers(now, host, buffer);
        let state = &self.nics[host].buffers[usize::from(buffer)];
        if state.buffered > state.resume_at {
            self.watch_drain(now, host, buffer);
            return;
        }
        let has_held = !state.held.is_empty();
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        nic.pausing &= !bit(buffer);
        let last = nic.pausing == 0;
        if last {
            nic.count.pausing_ps += now - nic.pausing_since;
        }
        if self.border.is_some() {
            if last {
                self.ask_network(now, host, false);
            }
        } else if self.topology == Topology::BackToBack {
            self.send_pause(now + delay, 1 - host, buffer, false);
        } else if has_held && !nic.draining {
            nic.draining = true;
            self.schedule(now + delay, Event::SwitchDrain { host: host as u8 });
        }
    }
}

/// The bit of a buffer in a mask.
#[inline]
fn bit(buffer: u8) -> u16 {
    1 << buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn world(policy: &str) -> World {
        let tenant = |name: &str, weight: u32| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nweight = {weight}\n[[tenant.traffic]]\nverb = \"write\"\nsize = 4096\n"
            )
        };
        let text = format!(
            "profile = \"cx5-100g-roce\"\ntopology = \"back-to-back\"\n[policy]\nname = \"{policy}\"\n{}{}",
            tenant("light", 1),
            tenant("heavy", 3)
        );
        let library = Library::embedded();
        let scenario = isolane_rdma_scenario::parse(&text, "test.toml", &library).expect("valid");
        let profile = library.profile("cx5-100g-roce").expect("shipped");
        <World>::build(&scenario, profile).expect("the policy exists")
    }

    /// Fills one receive buffer of host B, and lets the pause reach host A: the classes that it stops.
    fn stopped_by(world: &mut World, buffer: u8) -> u16 {
        let state = &mut world.nics[1].buffers[usize::from(buffer)];
        state.buffered = state.pause_at + 1;
        world.watch_buffer(0, 1, buffer);
        let pauses = std::iter::from_fn(|| world.queue.pop()).find_map(|(_, event)| match event {
            Event::Pause {
                classes,
                stop: true,
                ..
            } => Some(classes),
            _ => None,
        });
        let classes = pauses.expect("a full buffer pauses its sender");
        world.pause(0, 0, classes, true);
        world.nics[0].lanes.paused
    }

    #[test]
    fn a_full_buffer_stops_its_own_class_and_a_shared_one_stops_all() {
        for policy in ["hw-tc", "vl-qos", "hw-tc+sriov"] {
            assert_eq!(stopped_by(&mut world(policy), 0), 0b01, "{policy}");
            assert_eq!(stopped_by(&mut world(policy), 1), 0b10, "{policy}");
        }
        for policy in ["none", "sriov"] {
            assert_eq!(stopped_by(&mut world(policy), 0), u16::MAX, "{policy}");
        }
    }

    #[test]
    fn each_of_sixteen_buffers_has_a_pause_of_its_own() {
        let library = Library::embedded();
        let tenants: String = (0..16)
            .map(|number| {
                format!("[[tenant]]\nname = \"{number}\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\n")
            })
            .collect();
        let text = format!("profile = \"cx5-100g-roce\"\ntopology = \"back-to-back\"\n{tenants}");
        let mut scenario =
            isolane_rdma_scenario::parse(&text, "test.toml", &library).expect("valid");
        scenario.policy.name = "hw-tc".to_owned();
        let mut profile = library.profile("cx5-100g-roce").expect("shipped").clone();
        profile.traffic_classes = 16;
        for buffer in [0, 4, 12, 15] {
            let mut world = <World>::build(&scenario, &profile).expect("enough classes");
            assert_eq!(stopped_by(&mut world, buffer), 1 << buffer);
            assert_eq!(world.nics[1].pausing, 1 << buffer);
        }
    }

    /// Under `isolane` a full buffer whose packets wait for firmware is looked at when that is done, not all the time.
    #[test]
    fn a_buffer_that_waits_for_firmware_costs_few_events() {
        let library = Library::embedded();
        let text = "profile= \"cx4lx-10g-roce\"\n\
            topology= \"switch\"\n\
            duration= \"1ms\"\n\
            warmup= \"300us\"\n\
            seed=8\n\
            [policy]\n\
            name = \"isolane\"\n\
            [[tenant]]\n\
            name= \"t0\"\n\
            class= \"bandwidth\"\n\
            weight=2\n\
            [[tenant.traffic]]\n\
            verb= \"read\"\n\
            transport= \"rc\"\n\
            queue_pairs=1\n\
            arrival= \"closed\"\n\
            from= \"a\"\n\
            to= \"a\"\n\
            depth=128\n\
            post_list=64\n\
            size=257\n\
            bidirectional=true\n\
            weight=1000000\n\
            [[tenant]]\n\
            name= \"t2\"\n\
            class= \"bandwidth\"\n\
            weight=1\n\
            [[tenant.traffic]]\n\
            verb= \"send\"\n\
            transport= \"uc\"\n\
            queue_pairs=2\n\
            arrival= \"open\"\n\
            interval= \"1us\"\n\
            from= \"a\"\n\
            to= \"a\"\n\
            depth=2\n\
            post_list=1\n\
            size=4097\n\
            receive_depth=16\n\
            receive_batch=1\n\
            weight=5\n";
        let scenario = isolane_rdma_scenario::parse(text, "test.toml", &library).expect("valid");
        let profile = library.profile("cx4lx-10g-roce").expect("shipped");
        let mut world = <World>::build(&scenario, profile).expect("the policy exists");
        let mut events: u64 = 0;
        while world.step() {
            events += 1;
        }
        assert!(world.nics[0].count.pauses_sent > 0, "the buffer fills up");
        // 1.3 ms are 1.3 billion picoseconds: an event for each that is waited would be far more.
        assert!(events < 1_000_000, "{events} events");
    }

    #[test]
    fn the_buffer_is_split_by_share() {
        let parts = |policy: &str| -> Vec<u64> {
            let world = world(policy);
            let buffers = world.nics[0].buffers.iter();
            buffers.map(|buffer| buffer.pause_at).collect()
        };
        let whole = parts("none")[0];
        assert_eq!(parts("hw-tc"), [whole / 4, whole / 4 * 3]);
        assert_eq!(parts("vl-qos"), [whole / 2, whole / 2]);
    }
}
