//! The general transport: messages in channels, packets in order, lost ones again, at a congestion control's pace.
//!
//! Problem: a call's latency is decided by how its packets share ports with those of others, and by what its channel
//! still has to send before it. Method: one channel for each (sender, receiver, class), made when it is first used. A
//! channel is a first-in first-out list of messages; its packets are numbered through, each carries at most an MTU of
//! one message, and every arriving data packet is turned around in its slot into an acknowledgement: cumulative, with
//! an echo of the packet's number, time, mark and telemetry.
//!
//! Repair: *go-back-N* receivers take packets in order only, report the first gap once and drop all later packets; the
//! sender starts over there. *Selective* receivers keep everything; the sender repeats what three later packets have
//! overtaken (RFC 6675's threshold), once; a repeat that is lost too waits for the timeout. Timeouts double while
//! nothing comes back (at most 64-fold). With `fast_repeat = 0` only timeouts repair, as in the public Aequitas
//! simulator.
//!
//! Pace: a channel sends while fewer packets are unacknowledged than its window, no earlier than its gap allows. A
//! paced sender also waits while its own host's port holds two packets of its class, as a NIC fetches no faster than
//! it sends. Acknowledgements pass through their host's port in the class of their data; notifications (DCQCN) in the
//! highest class.
//!
//! Speed: state is in flat arrays by channel number, messages in one slab; nothing is allocated for a packet or a
//! message once these have grown. A channel has at most one timer of each kind on its way.
//!
//! Limits: sequence numbers are 32 bits of packets and do not wrap (17 TB in packets of 4 KB per channel); deadlines are ignored.

mod bits;
mod receiver;
mod sender;
mod table;

use super::congestion::{Acked, Control, Loss, ParameterError, Values, Way};
use super::{Ended, How, Message, Transport};
use crate::network::{Network, Owner};
use crate::packet::{NIL, Packet, PacketId, PacketKind, Timer, flags};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::{Recovery, TransportSpec};
use receiver::{Receiver, Taken};
use sender::{Messages, Repair, Sender};
use table::Table;

/// Timer of retransmissions.
const REPEAT: u8 = 0;
/// Timer of pacing.
const PACE: u8 = 1;
/// A timeout doubles at most this often.
const BACKOFF_MAX: u8 = 6;
/// A paced sender adds to its host's port only while fewer packets of its class wait there.
const PORT_PACKETS: u64 = 2;

/// All channels of a run.
#[derive(Clone, Debug)]
pub struct Channels {
    table: Table,
    senders: Vec<Sender>,
    /// Of selective repeat only; else empty.
    repairs: Vec<Repair>,
    receivers: Vec<Receiver>,
    ways: Vec<Way>,
    messages: Messages,
    control: Control,
    settings: Settings,
    figures: Figures,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    mtu: u32,
    header: u16,
    timeout: Duration,
    selective: bool,
    fast: bool,
    /// Flags of every data packet.
    flags: u8,
    /// Least time between notifications for a channel.
    notification: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    timeouts: u64,
    gaps: u64,
    repeated: u64,
    out_of_order: u64,
    notifications: u64,
}

impl Channels {
    /// No channels yet, between the hosts of `network`. Fails for a parameter that the control does not have, or cannot
    /// have at that value.
    pub fn new(spec: &TransportSpec, network: &Network) -> Result<Self, ParameterError> {
        let values = Values::new(spec.congestion, &spec.parameters)?;
        let control = Control::new(spec.congestion, &values)?;
        let mut bits = 0;
        if control.wants_marks() {
            bits |= flags::ECN_CAPABLE;
        }
        if control.wants_telemetry() {
            bits |= flags::TELEMETRY;
        }
        let header = network.header().get();
        let mtu = network.mtu().get();
        let largest = u64::from(u16::MAX);
        assert!(mtu + header <= largest, "packets have 16-bit lengths");
        Ok(Self {
            table: Table::new(network.topology().hosts),
            senders: Vec::new(),
            repairs: Vec::new(),
            receivers: Vec::new(),
            ways: Vec::new(),
            messages: Messages::default(),
            settings: Settings {
                mtu: mtu as u32,
                header: header as u16,
                timeout: values.duration("timeout_us"),
                selective: spec.recovery == Recovery::Selective,
                fast: values.of("fast_repeat") != 0.0,
                flags: bits,
                notification: control.notification_interval(),
            },
            control,
            figures: Figures::default(),
        })
    }

    /// Channels made so far.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// True before the first message.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    fn channel(&mut self, network: &Network, message: &Message) -> u32 {
        let (from, to, class) = (message.from, message.to, message.class);
        let fresh = self.senders.len() as u32;
        let channel = self.table.find_or_insert(from, to, class, fresh);
        if channel != fresh {
            return channel;
        }
        let (mtu, header) = (network.mtu(), network.header());
        let packet = mtu + header;
        let base = network.base_path(from, to, packet, header);
        let way = Way {
            line_rate: network.host_rate(from),
            packet,
            round_trip: base.round_trip,
            hops: base.hops,
        };
        let limit = self.control.start(&way);
        self.ways.push(way);
        self.senders.push(Sender::new(message, limit));
        self.receivers.push(Receiver::default());
        if self.settings.selective {
            self.repairs.push(Repair::default());
        }
        channel
    }

    /// Sends what the channel may send now.
    fn pump(&mut self, network: &mut Network, channel: u32) {
        let index = channel as usize;
        let now = network.now();
        loop {
            let sender = &mut self.senders[index];
            if !sender.has_work() || sender.in_flight() >= sender.limit.window {
                return;
            }
            if !sender.limit.gap.is_zero() && !self.may_leave(network, channel) {
                return;
            }
            let bytes = self.emit(network, channel, now);
            if let Some(limit) = self
                .control
                .sent(index, &self.ways[index], now, u64::from(bytes))
            {
                self.senders[index].limit = limit;
            }
        }
    }

    /// Whether a paced channel may send now; if not, it is woken when it may.
    fn may_leave(&mut self, network: &mut Network, channel: u32) -> bool {
        let index = channel as usize;
        let (now, way) = (network.now(), self.ways[index]);
        let sender = &mut self.senders[index];
        let mut wake = sender.may_leave_at();
        if wake <= now {
            let queued = network.queued(sender.from, sender.class);
            if queued.get() < PORT_PACKETS * way.packet.get() {
                return true;
            }
            wake = now + way.line_rate.time_for(way.packet);
        } else if let Some((limit, tick)) = self.control.review(index, &way, now) {
            sender.limit = limit;
            wake = sender.may_leave_at();
            if wake <= now {
                return self.may_leave(network, channel);
            }
            // The rate rises with time: look again when it does.
            wake = wake.min(now + tick.max(Duration::from_ps(1)));
        }
        let sender = &mut self.senders[index];
        if wake < sender.pace_at {
            sender.pace_at = wake;
            let timer = Timer {
                index: channel,
                what: PACE,
            };
            network.set_timer(wake, Owner::Transport, timer);
        }
        false
    }

    /// Sends the channel's next packet, a repeat if there is one; its bytes on the wire.
    #[inline]
    fn emit(&mut self, network: &mut Network, channel: u32, now: Instant) -> u16 {
        let settings = self.settings;
        let sender = &mut self.senders[channel as usize];
        let (sequence, repeat) = sender.take_next(&mut self.repairs, channel);
        let message = if repeat && settings.selective {
            self.messages.holding(sender.head, sequence)
        } else {
            sender.cursor
        };
        let (payload, last) = self.messages.payload(message, sequence, settings.mtu);
        if message == sender.cursor && last && sequence + 1 == sender.next {
            sender.cursor = self.messages.after(message);
        }
        let mut bits = settings.flags;
        if last {
            bits |= flags::LAST;
        }
        if repeat {
            bits |= flags::REPEATED;
            self.figures.repeated += 1;
        }
        let bytes = payload + settings.header;
        sender.left(now, bytes);
        if sequence == sender.acked {
            // Nothing older is on its way.
            sender.repeat_at = now + settings.timeout * (1 << sender.backoff);
        }
        if !settings.timeout.is_zero() && !sender.repeat_set {
            sender.repeat_set = true;
            let timer = Timer {
                index: channel,
                what: REPEAT,
            };
            network.set_timer(sender.repeat_at, Owner::Transport, timer);
        }
        network.transmit(Packet {
            sent_at: now,
            sequence,
            flow: channel,
            next: NIL,
            to: sender.to,
            from: sender.from,
            path: sender.path,
            bytes,
            payload,
            class: sender.class,
            flags: bits,
            ..Packet::default()
        });
        bytes
    }

    #[inline]
    fn on_data(&mut self, network: &mut Network, id: PacketId) {
        let packet = &network.packets[id];
        let (channel, sequence) = (packet.flow, packet.sequence);
        let marked = packet.flags & flags::MARKED != 0;
        let receiver = &mut self.receivers[channel as usize];
        let taken = receiver.take(sequence, self.settings.selective);
        let expected = receiver.expected;
        let mut kind = PacketKind::Ack;
        if taken == Taken::Gap {
            self.figures.out_of_order += 1;
            let tell = self.settings.fast && !receiver.notified;
            receiver.notified = true;
            kind = PacketKind::Nack;
            if !tell {
                if marked {
                    self.notify(network, channel, id);
                }
                network.free(id);
                return;
            }
        }
        if marked {
            self.notify(network, channel, id);
        }
        let packet = &mut network.packets[id];
        (packet.from, packet.to) = (packet.to, packet.from);
        packet.kind = kind;
        packet.expected = expected;
        packet.bytes = self.settings.header;
        packet.payload = 0;
        packet.flags &= flags::MARKED | flags::REPEATED | flags::TELEMETRY;
        network.answer(id);
    }

    /// The receiver of a marked packet notifies its sender, at a limited rate.
    fn notify(&mut self, network: &mut Network, channel: u32, id: PacketId) {
        let Some(interval) = self.settings.notification else {
            return;
        };
        let now = network.now();
        let receiver = &mut self.receivers[channel as usize];
        if now < receiver.notify_after {
            return;
        }
        receiver.notify_after = now + interval;
        self.figures.notifications += 1;
        let packet = network.packets[id];
        network.transmit(Packet {
            sent_at: now,
            sequence: 0,
            from: packet.to,
            to: packet.from,
            bytes: self.settings.header,
            payload: 0,
            class: 0,
            kind: PacketKind::Cnp,
            flags: 0,
            hops: 0,
            ..packet
        });
    }

    #[inline]
    fn on_ack(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        let (channel, now) = (packet.flow, network.now());
        let index = channel as usize;
        let sender = &mut self.senders[index];
        let news = if self.settings.selective {
            let repair = &mut self.repairs[index];
            sender.acknowledge_selectively(repair, packet.sequence, packet.expected)
        } else {
            sender.acknowledge(packet.expected)
        };
        if news > 0 {
            sender.backoff = 0;
            sender.repeat_at = now + self.settings.timeout;
            let acked = Acked {
                now,
                round_trip: now - packet.sent_at,
                marked: packet.flags & flags::MARKED != 0,
                packets: news,
                expected: sender.acked,
                next: sender.fresh,
                hops: network.telemetry(id),
            };
            sender.limit = self.control.acked(index, &self.ways[index], &acked);
            while let Some(token) = self.messages.complete(sender) {
                ended.push(Ended {
                    token,
                    how: How::Acknowledged,
                });
            }
        }
        network.free(id);
        let gap = if self.settings.selective {
            self.settings.fast && sender.find_overtaken(&mut self.repairs[index])
        } else {
            packet.kind == PacketKind::Nack && sender.go_back()
        };
        if gap {
            self.figures.gaps += 1;
            self.lost(index, now, Loss::Gap);
        }
        self.pump(network, channel);
    }

    fn lost(&mut self, index: usize, now: Instant, loss: Loss) {
        let sender = &mut self.senders[index];
        sender.limit = self
            .control
            .lost(index, &self.ways[index], now, sender.fresh, loss);
    }

    fn on_repeat_timer(&mut self, network: &mut Network, channel: u32) {
        let index = channel as usize;
        let now = network.now();
        let sender = &mut self.senders[index];
        if sender.acked == sender.next && sender.acked == sender.fresh {
            sender.repeat_set = false;
            return;
        }
        if now >= sender.repeat_at {
            self.figures.timeouts += 1;
            sender.backoff = (sender.backoff + 1).min(BACKOFF_MAX);
            sender.repeat_at = now + self.settings.timeout * (1 << sender.backoff);
            if self.settings.selective {
                sender.repeat_everything(&mut self.repairs[index]);
            } else {
                sender.go_back();
            }
            self.lost(index, now, Loss::Timeout);
        }
        let timer = Timer {
            index: channel,
            what: REPEAT,
        };
        network.set_timer(self.senders[index].repeat_at, Owner::Transport, timer);
        self.pump(network, channel);
    }
}

impl Transport for Channels {
    fn send(&mut self, network: &mut Network, message: Message) {
        let channel = self.channel(network, &message);
        let sender = &mut self.senders[channel as usize];
        self.messages
            .append(sender, message.token, message.size, self.settings.mtu);
        self.pump(network, channel);
    }

    #[inline]
    fn on_packet(&mut self, network: &mut Network, packet: PacketId, ended: &mut Vec<Ended>) {
        match network.packets[packet].kind {
            PacketKind::Data => self.on_data(network, packet),
            PacketKind::Ack | PacketKind::Nack => self.on_ack(network, packet, ended),
            PacketKind::Cnp => {
                let channel = network.packets[packet].flow;
                let index = channel as usize;
                network.free(packet);
                let now = network.now();
                if let Some(limit) = self.control.notified(index, &self.ways[index], now) {
                    self.senders[index].limit = limit;
                }
            }
            PacketKind::Request | PacketKind::Grant => {
                unreachable!("channels send no requests or grants")
            }
        }
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, _ended: &mut Vec<Ended>) {
        match timer.what {
            REPEAT => self.on_repeat_timer(network, timer.index),
            // A timer that an earlier one has overtaken is none any more.
            _ if network.now() < self.senders[timer.index as usize].pace_at => {}
            _ => {
                self.senders[timer.index as usize].pace_at = Instant::MAX;
                self.pump(network, timer.index);
            }
        }
    }

    fn figures(&self) -> Vec<(String, f64)> {
        let figures = self.figures;
        [
            ("transport_channels", self.len() as u64),
            ("transport_timeouts", figures.timeouts),
            ("transport_gaps_repaired", figures.gaps),
            ("transport_packets_repeated", figures.repeated),
            ("transport_packets_out_of_order", figures.out_of_order),
            ("transport_notifications", figures.notifications),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value as f64))
        .collect()
    }
}

#[cfg(test)]
mod tests;
