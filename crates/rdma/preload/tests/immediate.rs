//! WRITEs with immediate data when the operator enables splitting them.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;
mod rig;

use isolane_rdma_verbs_sys::*;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::Settings;
use rig::{Rig, Shape, address, lease, sge, work};

#[test]
fn immediate_data_comes_with_the_last_chunk_and_takes_one_receive() {
    let settings = Settings {
        split_immediate: true,
        ..rig::settings()
    };
    install(Process::new(null::originals(), settings, rig::clock));
    let rig = Rig::new(Shape::default(), &lease(1_000_000, 2_000, 1_000));
    let mut receive = ibv_recv_wr {
        wr_id: 77,
        ..Default::default()
    };
    let mut bad = std::ptr::null_mut();
    for _ in 0..2 {
        let other = rig.pairs[0].1;
        assert_eq!(
            unsafe { ibv_post_recv(other, &raw mut receive, &raw mut bad) },
            0
        );
    }
    let (from, to) = (vec![3u8; 5_500], vec![0u8; 5_500]);
    let mut list = [sge(&from)];
    let flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    let mut one = work(
        5,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        &mut list,
        address(&to),
        flags,
    );
    one.imm_data = 0xabcd;
    rig.post(rig.qp(), &mut one).unwrap();
    rig.settle();
    assert_eq!(null::provider_requests(rig.qp()), 6);
    assert_eq!(from, to);
    assert_eq!(rig.poll(rig.send_cq, 4).len(), 1);
    let received = rig.poll(rig.recv_cq, 4);
    assert_eq!(received.len(), 1, "the other receive is still there");
    assert_eq!((received[0].wr_id, received[0].imm_data), (77, 0xabcd));
    assert_eq!(
        received[0].byte_len, 500,
        "the price: the last chunk's bytes"
    );
}
