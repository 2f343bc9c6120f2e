//! What one message does to memory: keys, bounds, permissions, receives, atomics, errors (IB specification, chapter 9).

use crate::fabric::{Bound, Fabric};
use crate::memory::{Fault, Payload, Span, read, write};
use crate::pair::Receive;
use isolane_common_quantities::units::Instant;
use isolane_rdma_emulated_verbs::attributes::{Element, SendRequest};
use isolane_rdma_emulated_verbs::ring::Entry;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::*;

/// Bytes of the header before a datagram's payload.
const GRH_BYTES: usize = 40;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It took effect; or it failed with this status and the pair is in error.
    Over(ibv_wc_status),
    /// There was no receive.
    NotReady,
    /// No peer answers.
    Silent,
}

/// What the responder answers with when the request is refused, and the event at its own end.
struct Refusal {
    status: ibv_wc_status,
    event: ibv_event_type,
}

const ACCESS: Refusal = Refusal {
    status: IBV_WC_REM_ACCESS_ERR,
    event: IBV_EVENT_QP_ACCESS_ERR,
};
const INVALID: Refusal = Refusal {
    status: IBV_WC_REM_INV_REQ_ERR,
    event: IBV_EVENT_QP_REQ_ERR,
};

impl Fabric {
    /// The payload of a request of a pair; `None` when a key or a bound is wrong.
    pub(crate) fn payload(&self, number: u32, request: &SendRequest) -> Option<Payload> {
        match &request.inline {
            Some(bytes) => Some(Payload::Bytes(bytes.clone())),
            None => {
                let spans = self.spans(number, &request.elements, false)?;
                Some(Payload::Spans(spans))
            }
        }
    }

    /// The memory of a pair's elements.
    fn spans(&self, number: u32, elements: &[Element], write: bool) -> Option<Vec<Span>> {
        let pair = self.pairs.get(&number)?;
        let used = elements.iter().filter(|element| element.length > 0);
        used.map(|element| {
            let place = (element.addr, u64::from(element.length), element.lkey);
            self.local(pair.client, pair.domain, place, write)
        })
        .collect()
    }

    /// The pair that a connected one's messages reach.
    fn destination(&self, number: u32) -> Option<u32> {
        let pair = self.pairs.get(&number)?;
        let to = pair.attributes.dest_qp_num;
        let other = self.pairs.get(&to)?;
        let answers = other.transport == pair.transport
            && Some(other.host) == pair.peer
            && other.receives_packets()
            && other.attributes.dest_qp_num == number
            && other.peer == Some(pair.host);
        answers.then_some(to)
    }

    /// One request of a reliable pair takes effect.
    pub(crate) fn execute(&mut self, now: Instant, number: u32, request: &SendRequest) -> Outcome {
        match request.opcode {
            IBV_WR_BIND_MW => return self.execute_bind(number, request),
            IBV_WR_LOCAL_INV => {
                return Outcome::Over(match self.invalidate(number, request.immediate) {
                    true => IBV_WC_SUCCESS,
                    false => IBV_WC_MW_BIND_ERR,
                });
            }
            _ => {}
        }
        let Some(to) = self.destination(number) else {
            return Outcome::Silent;
        };
        match request.opcode {
            IBV_WR_RDMA_READ => self.execute_read(number, to, request),
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                self.execute_atomic(number, to, request)
            }
            _ => match self.payload(number, request) {
                None => Outcome::Over(IBV_WC_LOC_PROT_ERR),
                Some(payload) => self.deliver(now, (number, to), request, &payload),
            },
        }
    }

    /// A binding, of a pair of any transport.
    fn execute_bind(&mut self, number: u32, request: &SendRequest) -> Outcome {
        let bound = Bound {
            region: request.qkey,
            addr: request.remote_addr,
            length: request.compare_add,
            access: request.swap as u32,
            pair: None,
        };
        Outcome::Over(
            match self.bind(number, request.remote_qpn, request.rkey, bound) {
                true => IBV_WC_SUCCESS,
                false => IBV_WC_MW_BIND_ERR,
            },
        )
    }

    /// The responder refuses: its pair is in error too.
    fn refuse(&mut self, to: u32, refusal: &Refusal) -> Outcome {
        let client = self.pairs[&to].client;
        self.fail_pair(to, None);
        self.tell(client, refusal.event, to);
        Outcome::Over(refusal.status)
    }

    fn execute_read(&mut self, number: u32, to: u32, request: &SendRequest) -> Outcome {
        let Some(target) = self.spans(number, &request.elements, true) else {
            return Outcome::Over(IBV_WC_LOC_PROT_ERR);
        };
        let length = request.length();
        if length == 0 {
            return Outcome::Over(IBV_WC_SUCCESS);
        }
        let (key, addr) = (request.rkey, request.remote_addr);
        let Some(source) = self.remote(to, key, addr, length, IBV_ACCESS_REMOTE_READ) else {
            return self.refuse(to, &ACCESS);
        };
        match Payload::Spans(vec![source]).copy(&target) {
            Ok(()) => Outcome::Over(IBV_WC_SUCCESS),
            Err(Fault::Source) => self.refuse(to, &ACCESS),
            Err(Fault::Target) => Outcome::Over(IBV_WC_LOC_PROT_ERR),
        }
    }

    fn execute_atomic(&mut self, number: u32, to: u32, request: &SendRequest) -> Outcome {
        let Some(target) = self.spans(number, &request.elements, true) else {
            return Outcome::Over(IBV_WC_LOC_PROT_ERR);
        };
        if target.iter().map(|span| span.length).sum::<u64>() != 8 {
            return Outcome::Over(IBV_WC_LOC_LEN_ERR);
        }
        let (key, addr) = (request.rkey, request.remote_addr);
        if !addr.is_multiple_of(8) {
            return self.refuse(to, &INVALID);
        }
        let Some(place) = self.remote(to, key, addr, 8, IBV_ACCESS_REMOTE_ATOMIC) else {
            return self.refuse(to, &ACCESS);
        };
        let mut old = [0; 8];
        if !read(place, &mut old) {
            return self.refuse(to, &ACCESS);
        }
        let before = u64::from_ne_bytes(old);
        let after = match request.opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD => before.wrapping_add(request.compare_add),
            _ if before == request.compare_add => request.swap,
            _ => before,
        };
        if after != before && !write(place, &after.to_ne_bytes()) {
            return self.refuse(to, &ACCESS);
        }
        match Payload::Bytes(old.to_vec()).copy(&target) {
            Ok(()) => Outcome::Over(IBV_WC_SUCCESS),
            Err(_) => Outcome::Over(IBV_WC_LOC_PROT_ERR),
        }
    }

    /// A WRITE or SEND of a connected pair arrives.
    fn deliver(
        &mut self,
        now: Instant,
        (number, to): (u32, u32),
        request: &SendRequest,
        payload: &Payload,
    ) -> Outcome {
        let writes = matches!(
            request.opcode,
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM
        );
        let takes = request.opcode != IBV_WR_RDMA_WRITE;
        if takes && !self.has_receive(&self.pairs[&to]) {
            return Outcome::NotReady;
        }
        if writes && payload.length() > 0 {
            let (key, addr) = (request.rkey, request.remote_addr);
            let length = payload.length();
            let Some(target) = self.remote(to, key, addr, length, IBV_ACCESS_REMOTE_WRITE) else {
                return self.refuse(to, &ACCESS);
            };
            match payload.copy(&[target]) {
                Ok(()) => {}
                Err(Fault::Source) => return Outcome::Over(IBV_WC_LOC_PROT_ERR),
                Err(Fault::Target) => return self.refuse(to, &ACCESS),
            }
        }
        if !takes {
            return Outcome::Over(IBV_WC_SUCCESS);
        }
        let receive = self.take_receive(to).expect("there is one");
        if request.opcode == IBV_WR_SEND_WITH_INV && !self.invalidate(to, request.immediate) {
            return self.refuse(to, &ACCESS);
        }
        if !writes && let Err(outcome) = self.scatter(now, to, &receive, payload) {
            return outcome;
        }
        let entry = Entry {
            byte_len: payload.length() as u32,
            src_qp: number,
            ..received(request, writes)
        };
        self.complete_receive(now, to, &receive, entry, request.flags);
        Outcome::Over(IBV_WC_SUCCESS)
    }

    /// Puts the payload of a SEND where the receive says.
    fn scatter(
        &mut self,
        now: Instant,
        to: u32,
        receive: &Receive,
        payload: &Payload,
    ) -> Result<(), Outcome> {
        let (status, answer) = match self.spans(to, &receive.elements, true) {
            None => (IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR),
            Some(spans) => {
                let room: u64 = spans.iter().map(|span| span.length).sum();
                match payload.length() > room {
                    true => (IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR),
                    false => match payload.copy(&spans) {
                        Ok(()) => return Ok(()),
                        Err(Fault::Source) => (IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR),
                        Err(Fault::Target) => (IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR),
                    },
                }
            }
        };
        let entry = Entry {
            status,
            ..Entry::default()
        };
        self.complete_receive(now, to, receive, entry, 0);
        self.fail_pair(to, None);
        Err(Outcome::Over(answer))
    }

    /// Writes the completion of a receive.
    pub(crate) fn complete_receive(
        &mut self,
        now: Instant,
        number: u32,
        receive: &Receive,
        entry: Entry,
        flags: u32,
    ) {
        let handle = self.pairs[&number].receive_completions;
        let entry = Entry {
            wr_id: receive.wr_id,
            qp_num: number,
            receive: true,
            sequence: receive.sequence,
            timestamp: now.as_ps() / 1000,
            ..entry
        };
        self.complete(handle, &entry, flags & IBV_SEND_SOLICITED != 0);
    }

    /// A message of an unreliable pair arrives; after any error it is dropped.
    pub(crate) fn deliver_unreliable(
        &mut self,
        now: Instant,
        number: u32,
        request: &SendRequest,
        payload: &Payload,
    ) {
        if self.faults.message_is_lost() {
            return;
        }
        let Some(pair) = self.pairs.get(&number) else {
            return;
        };
        if pair.transport == Transport::Uc {
            let Some(to) = self.destination(number) else {
                return;
            };
            let outcome = self.deliver(now, (number, to), request, payload);
            if outcome == Outcome::Over(IBV_WC_SUCCESS) {
                self.count(payload.length());
            }
            return;
        }
        let (host, own_qkey) = (pair.host, pair.attributes.qkey);
        // The highest bit of a key selects the sender's own.
        let qkey = if request.qkey >> 31 == 1 {
            own_qkey
        } else {
            request.qkey
        };
        let to = request.remote_qpn;
        let target = crate::facts::host_at(&self.facts, &request.route);
        let takes = self.pairs.get(&to).is_some_and(|other| {
            other.transport == Transport::Ud
                && Some(other.host) == target
                && other.receives_packets()
                && other.attributes.qkey == qkey
        });
        if !takes {
            return;
        }
        let Some(receive) = self.take_receive(to) else {
            return;
        };
        let Ok(bytes) = payload.clone().read() else {
            return;
        };
        let mut whole = self.header(host, &request.route.dgid, bytes.len());
        whole.extend_from_slice(&bytes);
        let length = whole.len() as u32;
        if self
            .scatter(now, to, &receive, &Payload::Bytes(whole))
            .is_err()
        {
            return;
        }
        let mut entry = received(request, false);
        (entry.byte_len, entry.src_qp) = (length, number);
        entry.flags |= IBV_WC_GRH;
        entry.slid = self.facts[host as usize].lid as u16;
        entry.sl = request.route.sl;
        self.complete_receive(now, to, &receive, entry, request.flags);
        self.count(bytes.len() as u64);
    }

    /// The header before a datagram: version 6, both GIDs.
    fn header(&self, from: u32, dgid: &[u64; 2], bytes: usize) -> Vec<u8> {
        let mut header = vec![0; GRH_BYTES];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(bytes as u16).to_be_bytes());
        header[6] = 0x1b;
        header[7] = u8::MAX;
        let sgid = self.facts[from as usize].gids[0];
        let gids = [sgid[0], sgid[1], dgid[0], dgid[1]];
        for (index, half) in gids.into_iter().enumerate() {
            header[8 + 8 * index..16 + 8 * index].copy_from_slice(&half.to_ne_bytes());
        }
        header
    }

    /// One message more took effect.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

/// The completion of a receive that `request` used, without numbers and lengths.
fn received(request: &SendRequest, writes: bool) -> Entry {
    let flags = match request.opcode {
        IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_WITH_IMM,
        IBV_WR_SEND_WITH_INV => IBV_WC_WITH_INV,
        _ => 0,
    };
    Entry {
        opcode: match writes {
            true => IBV_WC_RECV_RDMA_WITH_IMM,
            false => IBV_WC_RECV,
        },
        immediate: request.immediate,
        flags,
        ..Entry::default()
    }
}
