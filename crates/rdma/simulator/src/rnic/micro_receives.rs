//! Receives and requests that a device keeps, and what happens when they do not fit.
//!
//! Receives are read when they are posted, into a cache of bytes. Three ways lead out of line rate (collie 3.11, root cause
//! 1). A list of at least `receive_burst` is read the moment it is posted, into a window of its pair; where more receives are
//! posted than the window holds, the newest take the place of the next in turn, which are read again when they are used:
//! for datagrams always, for connections only amid a message of several packets, as then the place of the next in turn is
//! out of date. Shorter lists wait until the cache has room: with more posted than it holds, receives are read one at a time
//! as they are used. A device with credits grants its senders what it has read, and drops datagrams that find none; one
//! without keeps packets waiting, so its buffer fills. Lists of at least `receive_list` bytes are read ahead as a whole.
//!
//! Requests of reliable pairs are kept until their list is done. Where they do not fit, each packet of a READ response
//! reads its request, with its scatter list, again (root cause 1, anomalies 4 and 16).
//!
//! Units: ps, bytes. Limits: the cache replaces in order of arrival, so that all is there or nothing is.

use super::access::{Access, End, Object};
use super::device::verb_index;
use super::event::{Event, Packet};
use super::trace::CacheName;
use super::trace::record::Timeline;
use super::world::World;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{Transport, Verb};

/// Receives of a pair that the device reads ahead, one at a time, where they do not fit.
pub(crate) const READ_AHEAD: u64 = 4;

/// Whether a message's receive is there.
pub(crate) enum Taken {
    /// It is, or will be at this time, ps; zero for at once.
    At(u64),
    /// It is not, and the message is dropped.
    Dropped,
}

impl<const RECORDS: bool> World<RECORDS> {
    /// Whether receives of `pair` are read one at a time, as posted ones do not fit its responder's cache.
    fn reads_singly(&self, pair: u32) -> bool {
        let micro = &self.device.micro;
        let queue_pair = &self.pairs[pair as usize];
        let own = &queue_pair.micro;
        self.nics[usize::from(queue_pair.peer)].micro.receives > micro.receive_cache
            && !self.reads_bursts(pair)
            && own.list * own.receive < micro.receive_list
    }

    fn reads_bursts(&self, pair: u32) -> bool {
        let burst = self.device.micro.receive_burst;
        burst > 0 && self.pairs[pair as usize].micro.list >= burst
    }

    /// Whether the sender of `pair` is held to what was granted.
    fn is_held_to_credits(&self, pair: u32) -> bool {
        let queue_pair = &self.pairs[pair as usize];
        self.device.micro.credits
            && queue_pair.verb == Verb::Send
            && queue_pair.transport == Transport::Rc
            && self.reads_singly(pair)
    }

    /// Whether credits let a pair send its next request.
    #[inline]
    pub(crate) fn has_credit(&self, pair: u32) -> bool {
        let queue_pair = &self.pairs[pair as usize];
        !self.device.micro.credits
            || queue_pair.offset > 0
            || queue_pair.sent < queue_pair.micro.granted
            || !self.is_held_to_credits(pair)
    }

    /// Takes the next posted receive for `packet`, the first of a message.
    pub(crate) fn take_kept_receive(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        packet: Packet,
    ) -> Taken {
        let micro = self.device.micro;
        let single = self.reads_singly(pair);
        let burst = self.reads_bursts(pair);
        let queue_pair = &mut self.pairs[pair as usize];
        let bytes = queue_pair.micro.receive;
        let (reliable, datagram) = (
            queue_pair.transport == Transport::Rc,
            queue_pair.transport == Transport::Ud,
        );
        if single && micro.credits && datagram && queue_pair.micro.read == 0 {
            self.nics[host].receive_wqes.misses += 1;
            self.read_receives(now, host, pair);
            return Taken::Dropped;
        }
        let queue_pair = &mut self.pairs[pair as usize];
        let displaced = burst
            && queue_pair.receives_used < queue_pair.micro.displaced
            && (datagram || !packet.last);
        queue_pair.receives -= 1;
        queue_pair.receives_used += 1;
        self.nics[host].micro.receives -= bytes;
        if single
            && micro.credits
            && (datagram || reliable)
            && self.pairs[pair as usize].micro.read > 0
        {
            self.pairs[pair as usize].micro.read -= 1;
            self.nics[host].receive_wqes.misses += 1;
            self.read_receives(now, host, pair);
            return Taken::At(0);
        }
        if !single && !displaced {
            self.nics[host].receive_wqes.hits += 1;
            return Taken::At(0);
        }
        self.nics[host].receive_wqes.misses += 1;
        // Messages of several packets hold their pair's receive until they are in, so the next is read after them.
        let not_before = if packet.last {
            0
        } else {
            self.pairs[pair as usize].micro.read_at
        };
        let longer = if displaced && datagram {
            micro.miss_ud
        } else {
            0
        };
        let done = self.read_kept(now, host, pair, (not_before, longer));
        self.pairs[pair as usize].micro.read_at = done;
        Taken::At(done)
    }

    /// Reads a receive or a kept request again, while arrivals wait for a slot; when it is there.
    fn read_kept(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        (not_before, longer): (u64, u64),
    ) -> u64 {
        let owner = self.pairs[pair as usize].tenant;
        let nic = &mut self.nics[host];
        let before = nic.responder_free;
        let at = now.max(before).max(not_before);
        let mut miss = nic.micro.slots.take(at, owner);
        nic.micro.slots.extend(&mut miss, longer);
        nic.responder_free = before.max(miss.started);
        self.traced(move |tracer| {
            let units = Timeline::Responder;
            tracer.missed(host, CacheName::Receives, units, (before, at), &miss);
        });
        self.fetch_kept(host, miss.started, pair);
        miss.done
    }

    fn fetch_kept(&mut self, host: usize, at: u64, pair: u32) {
        let queue_pair = &self.pairs[pair as usize];
        let length = queue_pair.micro.receive;
        let offset = queue_pair.receives_used * length;
        let access = Access::of(pair, End::Responder, Object::ReceiveQueue, offset, length);
        let bytes = self.device.pcie_bytes(length);
        self.pcie(BusDirection::ToNic, host, at, bytes, || access);
    }

    /// Starts reads of the next receives, one at a time each, as far as some are posted and the device reads ahead.
    fn read_receives(&mut self, now: u64, host: usize, pair: u32) {
        loop {
            let queue_pair = &mut self.pairs[pair as usize];
            let ahead = queue_pair.micro.read + queue_pair.micro.reading;
            if ahead >= READ_AHEAD.min(queue_pair.receives) {
                return;
            }
            queue_pair.micro.reading += 1;
            let owner = queue_pair.tenant;
            let miss = self.nics[host].micro.slots.take(now, owner);
            self.fetch_kept(host, miss.started, pair);
            self.schedule(miss.done, Event::ReceiveRead { pair });
        }
    }

    /// A receive has been read.
    pub(crate) fn receive_was_read(&mut self, now: u64, pair: u32) {
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.micro.reading -= 1;
        queue_pair.micro.read += 1;
        self.grant(now, pair);
    }

    /// Reports the receives that have been read to the sender.
    pub(crate) fn grant(&mut self, now: u64, pair: u32) {
        if self.is_held_to_credits(pair) {
            let queue_pair = &self.pairs[pair as usize];
            let upto = (queue_pair.received + queue_pair.micro.read) as u32;
            let at = now + self.one_way();
            self.schedule(at, Event::Credited { pair, upto });
        }
    }

    /// The sender learns how far it may send.
    pub(crate) fn credited(&mut self, now: u64, pair: u32, upto: u32) {
        let queue_pair = &mut self.pairs[pair as usize];
        let fresh = upto.wrapping_sub(queue_pair.micro.granted as u32) as i32;
        if fresh > 0 {
            queue_pair.micro.granted += fresh as u64;
            self.activate(now, pair, false);
        }
    }

    /// Receives were posted.
    pub(crate) fn keep_receives(&mut self, now: u64, pair: u32, count: u16) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.peer);
        let bytes = queue_pair.micro.receive;
        let kept = &mut self.nics[host].micro;
        kept.receives += u64::from(count) * bytes;
        kept.peak.receives = kept.peak.receives.max(kept.receives);
        if self.reads_bursts(pair) {
            let room = self.device.micro.receive_window / bytes.max(1);
            let queue_pair = &mut self.pairs[pair as usize];
            // Each has the place of the one a window before it.
            queue_pair.micro.displaced =
                queue_pair.receives_used + queue_pair.receives.saturating_sub(room);
        }
        if self.device.micro.credits && self.reads_singly(pair) {
            self.read_receives(now, host, pair);
        }
    }

    /// Drops a datagram whose receive was not read.
    pub(crate) fn drop_datagram(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        packet: Packet,
    ) -> u64 {
        let at = self.responder_works(now, host, self.device.respond[verb_index(Verb::Send)]);
        let count = &mut self.nics[host].count;
        count.drops += 1;
        let queue_pair = &mut self.pairs[pair as usize];
        // Like a device's own counters of a port's traffic, ours are of what found a receive; what loops back was not counted.
        if queue_pair.host != queue_pair.peer {
            count.rx_bytes -= u64::from(packet.payload) + self.device.frame;
            count.rx_packets -= 1;
        }
        queue_pair.dropping = !packet.last;
        queue_pair.received += u64::from(packet.last);
        at
    }

    /// A request of a reliable pair has been sent, and is kept.
    #[inline]
    pub(crate) fn keep_request(&mut self, host: usize, pair: u32) {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.transport == Transport::Rc {
            let kept = &mut self.nics[host].micro;
            kept.kept += queue_pair.micro.request;
            kept.peak.requests = kept.peak.requests.max(kept.kept);
        }
    }

    /// Requests below `upto` are done, and forgotten as far as their whole list is.
    #[inline]
    pub(crate) fn forget_requests(&mut self, host: usize, pair: u32, upto: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        if self.device.micro.request_cache > 0 && queue_pair.transport == Transport::Rc {
            let own = &mut queue_pair.micro;
            let upto = upto + own.phase;
            let upto = upto - upto % own.requests;
            let done = upto - own.kept_from;
            own.kept_from = upto;
            self.nics[host].micro.kept -= done * own.request;
        }
    }

    /// The sender went back by `requests`, which it will send again.
    pub(crate) fn unkeep_requests(&mut self, host: usize, pair: u32, requests: u64) {
        let queue_pair = &self.pairs[pair as usize];
        if self.device.micro.request_cache > 0 {
            self.nics[host].micro.kept -= requests * queue_pair.micro.request;
        }
    }

    /// A packet of a READ response needs its request; when that is there, ps, or zero at once.
    pub(crate) fn look_up_kept(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let cache = self.device.micro.request_cache;
        if cache == 0 || self.nics[host].micro.kept <= cache {
            return 0;
        }
        self.read_kept(now, host, pair, (0, 0))
    }
}
