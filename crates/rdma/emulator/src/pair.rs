//! Queue pairs: states, what each change of state needs, what a pair holds.

use crate::memory::Payload;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_emulated_verbs::attributes::{Element, PairAttributes, SendRequest};
use isolane_rdma_scenario::model::{Transport, Verb};
use isolane_rdma_simulator::rnic::live::{Connection, LivePair};
use isolane_rdma_verbs_sys::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
pub(crate) struct Pair {
    /// Its owner.
    pub client: u32,
    /// Its host.
    pub host: u32,
    pub domain: u32,
    /// RC, UC or UD.
    pub transport: Transport,
    /// Handle of the completion queue of sends.
    pub send_completions: u32,
    /// Handle of the completion queue of receives.
    pub receive_completions: u32,
    /// Handle of the shared receive queue.
    pub shared: Option<u32>,
    /// Size of the send queue.
    pub depth: u32,
    /// Size of the receive queue.
    pub receive_depth: u32,
    pub attributes: PairAttributes,
    /// The host it is connected to.
    pub peer: Option<u32>,
    /// Work requests that are not over, oldest first.
    pub work: VecDeque<Work>,
    /// Number of the next work request.
    pub next: u64,
    /// How many of `work` have taken effect.
    pub executed: usize,
    /// Receives that were not used, oldest first.
    pub receives: VecDeque<Receive>,
    /// Number of the next receive.
    pub next_receive: u64,
    /// What it is in the model, by verb and destination.
    pub lanes: BTreeMap<(Verb, u32), Lane>,
    /// The rate that its program set, of the model's time.
    pub limit: Option<BitRate>,
    /// A timer runs: the oldest work request that has not taken effect waits for its retry.
    pub waits: bool,
    /// Handles of the windows that it alone may use.
    pub windows: BTreeSet<u32>,
}

/// A work request of a send queue.
#[derive(Debug)]
pub(crate) struct Work {
    /// Its number in the queue.
    pub sequence: u64,
    /// As posted.
    pub request: SendRequest,
    /// It has reached the other end, by the model.
    pub arrived: bool,
    /// Its completion is there, by the model.
    pub acknowledged: bool,
    /// Times that it found no receive.
    pub tries: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Receive {
    /// As posted.
    pub wr_id: u64,
    /// Its number in the queue.
    pub sequence: u64,
    /// Its place.
    pub elements: Vec<Element>,
}

/// One direction of a pair in the model.
#[derive(Debug)]
pub(crate) struct Lane {
    /// What it was connected as.
    pub connection: Connection,
    /// Its name in the model.
    pub pair: LivePair,
    /// Number of its next message, modulo 2^32.
    pub next: u32,
    /// Numbers of the work requests under way, oldest first.
    pub under_way: VecDeque<u64>,
    /// Messages of an unreliable pair that have left and not arrived.
    pub flying: VecDeque<(u32, SendRequest, Payload)>,
}

impl Lane {
    /// The number of the oldest message under way.
    pub(crate) fn first(&self) -> u32 {
        self.next.wrapping_sub(self.under_way.len() as u32)
    }
}

impl Pair {
    /// Handles of the objects that it uses.
    pub(crate) fn uses(&self) -> impl Iterator<Item = u32> + use<> {
        let always = [self.domain, self.send_completions, self.receive_completions];
        always.into_iter().chain(self.shared)
    }

    /// Whether it takes what arrives.
    pub(crate) const fn receives_packets(&self) -> bool {
        matches!(
            self.attributes.state,
            IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE
        )
    }

    /// The place of work request `sequence`, while it is not over.
    pub(crate) fn index(&self, sequence: u64) -> Option<usize> {
        let first = self.work.front()?.sequence;
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        (index < self.work.len()).then_some(index)
    }

    /// Whether a timer of work request `sequence` still counts.
    pub(crate) fn waits_for(&self, sequence: u64) -> bool {
        let at_hand = self.work.get(self.executed).map(|work| work.sequence);
        self.waits && at_hand == Some(sequence)
    }

    /// The path MTU, bytes.
    pub(crate) const fn mtu(&self) -> u32 {
        match self.attributes.path_mtu {
            code @ 1..=5 => 128 << code,
            _ => 4096,
        }
    }
}

/// Takes the fields of `wanted` that `mask` (`ibv_qp_attr_mask`) names. Fails with `EINVAL` when the change of state is
/// not allowed from the current one, or lacks an attribute that it needs.
pub(crate) fn change(
    pair: &mut Pair,
    mask: u32,
    current: u32,
    wanted: &PairAttributes,
) -> Result<(), i32> {
    let from = pair.attributes.state;
    let to = if mask & IBV_QP_STATE == 0 {
        from
    } else {
        wanted.state
    };
    let needs = needed(pair.transport, from, to).ok_or(libc::EINVAL)?;
    let claims = mask & IBV_QP_CUR_STATE != 0 && current != from;
    let port = mask & IBV_QP_PORT != 0 && wanted.port != 1;
    let key = mask & IBV_QP_PKEY_INDEX != 0 && wanted.pkey_index != 0;
    let mtu = mask & IBV_QP_PATH_MTU != 0 && !(1..=5).contains(&wanted.path_mtu);
    if mask & needs != needs || claims || port || key || mtu {
        return Err(libc::EINVAL);
    }
    let attributes = &mut pair.attributes;
    macro_rules! take {
        ($($bit:ident: $field:ident),*) => { $( if mask & $bit != 0 { attributes.$field = wanted.$field; } )* };
    }
    take!(
        IBV_QP_PKEY_INDEX: pkey_index, IBV_QP_PORT: port, IBV_QP_QKEY: qkey, IBV_QP_ACCESS_FLAGS: access,
        IBV_QP_AV: route, IBV_QP_PATH_MTU: path_mtu, IBV_QP_TIMEOUT: timeout, IBV_QP_RETRY_CNT: retry_count,
        IBV_QP_RNR_RETRY: rnr_retry, IBV_QP_RQ_PSN: rq_psn, IBV_QP_SQ_PSN: sq_psn, IBV_QP_DEST_QPN: dest_qp_num,
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer, IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic,
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic
    );
    attributes.state = to;
    Ok(())
}

/// The attributes that a change of state needs; `None` where there is no such change (IB specification, 10.3.1).
fn needed(transport: Transport, from: u32, to: u32) -> Option<u32> {
    let rc = transport == Transport::Rc;
    let connected = transport != Transport::Ud;
    Some(match (from, to) {
        (_, IBV_QPS_RESET | IBV_QPS_ERR) => 0,
        (IBV_QPS_RESET, IBV_QPS_INIT) if connected => {
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
        }
        (IBV_QPS_RESET, IBV_QPS_INIT) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        (IBV_QPS_INIT, IBV_QPS_RTR) if rc => {
            IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        }
        (IBV_QPS_INIT, IBV_QPS_RTR) if connected => {
            IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        }
        (IBV_QPS_RTR, IBV_QPS_RTS) if rc => {
            IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC
        }
        (IBV_QPS_RTR, IBV_QPS_RTS) => IBV_QP_SQ_PSN,
        (IBV_QPS_INIT, IBV_QPS_INIT | IBV_QPS_RTR)
        | (IBV_QPS_RTS | IBV_QPS_SQE, IBV_QPS_RTS)
        | (IBV_QPS_RTR, IBV_QPS_RTR) => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_reaches_a_state_only_from_the_one_before_it() {
        let states = [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
        for (at, &from) in states.iter().enumerate() {
            for (then, &to) in states.iter().enumerate().skip(1) {
                let allowed = then == at + 1 || then == at;
                let found = needed(Transport::Rc, from, to).is_some();
                assert_eq!(found, allowed, "{from} to {to}");
            }
        }
        assert_eq!(needed(Transport::Ud, IBV_QPS_ERR, IBV_QPS_RTS), None);
        assert_eq!(needed(Transport::Uc, IBV_QPS_ERR, IBV_QPS_RESET), Some(0));
    }
}
