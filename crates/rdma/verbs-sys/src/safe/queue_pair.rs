//! Queue pairs and the way to their ready state.

use super::{CompletionQueue, ProtectionDomain, Service, VerbsError};
use crate::pacing::limit_rate;
use crate::*;
use std::sync::Arc;

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send work requests.
    pub sends: u32,
    /// Receive work requests.
    pub receives: u32,
    /// Elements of a send.
    pub send_elements: u32,
    /// Elements of a receive.
    pub receive_elements: u32,
    /// Bytes of inline data.
    pub inline_bytes: u32,
}

/// Who is at the other end, and the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its GID.
    pub gid: ibv_gid,
    /// Its LID; 0 on Ethernet.
    pub lid: u16,
    /// Its queue pair's number.
    pub queue_pair: u32,
    /// The first packet sequence number it sends.
    pub packet_sequence: u32,
}

/// The own side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Port to use.
    pub port: u8,
    /// Index of the own GID.
    pub gid_index: u8,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// First packet sequence number.
    pub packet_sequence: u32,
    /// RoCE traffic class (its upper six bits are the DSCP).
    pub traffic_class: u8,
    /// Service level of InfiniBand; on RoCE without a traffic class it chooses the priority.
    pub service_level: u8,
    /// READs and atomics outstanding, in each direction.
    pub read_atomic: u8,
    /// When to try again.
    pub timers: Timers,
}

/// Timers and retries of a reliable connection, as codes of the IB specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Acknowledgement timeout: 4.096 us times two to this.
    pub timeout: u8,
    /// Retries after it, at most 7.
    pub retries: u8,
    /// Time that the sender waits when the receiver has no receive posted.
    pub min_rnr: u8,
    /// Retries after that; 7 never gives up.
    pub rnr_retries: u8,
}

impl Default for Timers {
    /// 67 ms and seven retries, 0.64 ms for RNR without end: what perftest uses.
    fn default() -> Self {
        Self {
            timeout: 14,
            retries: 7,
            min_rnr: 12,
            rnr_retries: 7,
        }
    }
}

/// The key datagrams carry; both ends of this engine use it.
const DATAGRAM_KEY: u32 = 0x1150_1a7e;

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) domain: Arc<ProtectionDomain>,
    pub(crate) raw: *mut ibv_qp,
    service: Service,
    _send_queue: Arc<CompletionQueue>,
    _receive_queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs' objects may be used by several threads.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// As [`QueuePair::new`], for a reliable connection with one completion queue.
    pub fn reliable(
        domain: &Arc<ProtectionDomain>,
        queue: &Arc<CompletionQueue>,
        capacity: Capacity,
    ) -> Result<Self, VerbsError> {
        Self::new(domain, Service::Rc, queue, queue, capacity)
    }

    /// A queue pair in state RESET, with separate or equal completion queues. Only signaled requests have a completion.
    /// Fails if the device has no more, or not with this capacity.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        service: Service,
        send_queue: &Arc<CompletionQueue>,
        receive_queue: &Arc<CompletionQueue>,
        capacity: Capacity,
    ) -> Result<Self, VerbsError> {
        let mut attributes = ibv_qp_init_attr {
            send_cq: send_queue.raw,
            recv_cq: receive_queue.raw,
            cap: ibv_qp_cap {
                max_send_wr: capacity.sends,
                max_recv_wr: capacity.receives,
                max_send_sge: capacity.send_elements,
                max_recv_sge: capacity.receive_elements,
                max_inline_data: capacity.inline_bytes,
            },
            qp_type: match service {
                Service::Rc => IBV_QPT_RC,
                Service::Uc => IBV_QPT_UC,
                Service::Ud => IBV_QPT_UD,
            },
            ..ibv_qp_init_attr::default()
        };
        let context = &domain.context;
        // SAFETY: a live domain and live completion queues, which this object holds.
        let raw = unsafe { (context.library.create_qp)(domain.raw, &mut attributes) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_create_qp", &context.device));
        }
        Ok(Self {
            domain: Arc::clone(domain),
            raw,
            service,
            _send_queue: Arc::clone(send_queue),
            _receive_queue: Arc::clone(receive_queue),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.raw).qp_num }
    }

    /// The transport.
    pub fn service(&self) -> Service {
        self.service
    }

    /// RESET to INIT: receives may be posted. The peer may do what `access` allows (`IBV_ACCESS_*`).
    pub fn initialise(&self, port: u8, access: ibv_access_flags) -> Result<(), VerbsError> {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: port,
            qkey: DATAGRAM_KEY,
            qp_access_flags: access,
            ..ibv_qp_attr::default()
        };
        let by_service = match self.service {
            Service::Ud => IBV_QP_QKEY,
            Service::Rc | Service::Uc => IBV_QP_ACCESS_FLAGS,
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | by_service;
        self.modify(&mut attributes, mask)
    }

    /// INIT to RTS by way of RTR: both directions work once the peer did the same. Fails if the device has no route to
    /// the peer, or cannot have a value.
    pub fn connect(&self, connection: &Connection, peer: &Peer) -> Result<(), VerbsError> {
        let connected = self.service != Service::Ud;
        let mut receive = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: mtu_code(connection.mtu),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.packet_sequence & 0xff_ffff,
            ah_attr: route(connection, peer),
            max_dest_rd_atomic: connection.read_atomic,
            min_rnr_timer: connection.timers.min_rnr,
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE;
        if connected {
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        }
        if self.service == Service::Rc {
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        self.modify(&mut receive, mask)?;
        let mut send = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: connection.packet_sequence & 0xff_ffff,
            max_rd_atomic: connection.read_atomic,
            timeout: connection.timers.timeout,
            retry_cnt: connection.timers.retries,
            rnr_retry: connection.timers.rnr_retries,
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if self.service == Service::Rc {
            mask |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
        }
        self.modify(&mut send, mask)
    }

    /// Lets the device send no faster than `kbps` for this queue pair; zero lifts the limit. Ask
    /// [`super::Context::pacing`] first, and only in state RTR or RTS. Fails if the device cannot do it, or not at this
    /// rate.
    pub fn limit_rate(&self, kbps: u32) -> Result<(), VerbsError> {
        // SAFETY: a live queue pair.
        let code = unsafe { limit_rate(self.raw, kbps) };
        self.domain.context.answer("ibv_modify_qp_rate_limit", code)
    }

    /// Any state to ERR: everything outstanding is flushed. Fails if the device has gone.
    pub fn fail(&self) -> Result<(), VerbsError> {
        self.to_state(IBV_QPS_ERR)
    }

    /// Any state to RESET: everything outstanding is forgotten. Fails if the device has gone.
    pub fn reset(&self) -> Result<(), VerbsError> {
        self.to_state(IBV_QPS_RESET)
    }

    fn to_state(&self, state: ibv_qp_state) -> Result<(), VerbsError> {
        let mut attributes = ibv_qp_attr {
            qp_state: state,
            ..ibv_qp_attr::default()
        };
        self.modify(&mut attributes, IBV_QP_STATE)
    }

    fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<(), VerbsError> {
        let context = &self.domain.context;
        // SAFETY: a live queue pair and whole attributes.
        let code = unsafe { (context.library.modify_qp)(self.raw, attributes, mask.cast_signed()) };
        context.answer("ibv_modify_qp", code)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; its completion queues and domain are still held.
        unsafe { (self.domain.context.library.destroy_qp)(self.raw) };
    }
}

/// Where datagrams go.
#[derive(Debug)]
pub struct AddressHandle {
    domain: Arc<ProtectionDomain>,
    pub(crate) raw: *mut ibv_ah,
    pub(crate) queue_pair: u32,
}

// SAFETY: libibverbs' objects may be used by several threads.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// The way to `peer`. Fails if there is no route.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        connection: &Connection,
        peer: &Peer,
    ) -> Result<Arc<Self>, VerbsError> {
        let mut attributes = route(connection, peer);
        let context = &domain.context;
        // SAFETY: a live domain and whole attributes.
        let raw = unsafe { (context.library.create_ah)(domain.raw, &mut attributes) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_create_ah", &context.device));
        }
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            queue_pair: peer.queue_pair,
        }))
    }

    /// The key its datagrams carry.
    pub(crate) fn key(&self) -> u32 {
        DATAGRAM_KEY
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.domain.context.library.destroy_ah)(self.raw) };
    }
}

fn route(connection: &Connection, peer: &Peer) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: peer.gid,
            flow_label: 0,
            sgid_index: connection.gid_index,
            hop_limit: 64,
            traffic_class: connection.traffic_class,
        },
        dlid: peer.lid,
        sl: connection.service_level,
        is_global: u8::from(peer.gid != ibv_gid::default()),
        port_num: connection.port,
        ..ibv_ah_attr::default()
    }
}

/// The code of the largest MTU that is at most `bytes`.
fn mtu_code(bytes: u32) -> ibv_mtu {
    match bytes {
        4_096.. => IBV_MTU_4096,
        2_048.. => IBV_MTU_2048,
        1_024.. => IBV_MTU_1024,
        512.. => IBV_MTU_512,
        _ => IBV_MTU_256,
    }
}
