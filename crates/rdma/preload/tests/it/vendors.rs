//! Objects that vendors' functions create, and thread domains.

use crate::null;
use crate::rig::{self, Rig, Shape, lease, serial};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Region, Service};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports::{self, HOOKS};
use isolane_shim::session::Session;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

fn attributes(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        cap: ibv_qp_cap {
            max_send_wr: 8,
            max_send_sge: 1,
            ..Default::default()
        },
        qp_type: IBV_QPT_RC,
        ..Default::default()
    }
}

#[test]
fn a_device_that_a_vendors_library_opens_is_paced() {
    let _serial = serial();
    let name = "vendor-opened";
    let (_region, file) = Region::create(1).unwrap();
    let session = Session::local(Region::map(&file).unwrap(), Class::Auto);
    rig::process().serve_locally(name, session, [0, 1]);
    unsafe {
        let context = exports::verbs_open_device(null::device(name), null_mut());
        let ours = HOOKS.post_send as usize;
        assert_eq!(
            (*context).ops.post_send.map(|post| post as usize),
            Some(ours)
        );
        // The same context again, as when `ibv_open_device` opens by this function: the provider's table is kept.
        let known = rig::process().context(context).unwrap();
        assert_ne!(known.ops.post_send.map(|post| post as usize), Some(ours));
        assert_eq!(exports::ibv_close_device(context), 0);
    }
}

/// The application polls such a queue by functions of its own, which would show the library's identifiers.
#[test]
fn a_queue_pair_at_a_vendors_completion_queue_is_not_paced() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(1_000_000, 2_000, 1_000));
    let mut pd = rig.domain();
    unsafe {
        let create = null::originals().create_cq;
        let cq = create(rig.context, 16, null_mut(), null_mut(), 0);
        let mut attr = attributes(cq);
        let qp = exports::ibv_create_qp(&raw mut pd, &raw mut attr);
        assert!(rig::process().queue_pair(qp).is_none());
        assert!(rig::process().completion_queue(cq).is_none());
        assert_eq!(exports::ibv_destroy_qp(qp), 0);
        assert_eq!(exports::ibv_destroy_cq(cq), 0);
    }
}

#[test]
fn the_daemon_sees_the_class_of_a_connection() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(1_000_000, 2_000, 1_000));
    let slot = &rig.region.slots[0];
    let seen = || Service::from_word(slot.service.load(Ordering::Relaxed));
    assert_eq!(seen(), None);
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        ..Default::default()
    };
    attr.ah_attr.sl = 3;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.traffic_class = 0xb8;
    let mask = (IBV_QP_STATE | IBV_QP_AV) as i32;
    let answer = unsafe { exports::ibv_modify_qp(rig.qp(), &raw mut attr, mask) };
    assert_eq!(answer, 0);
    let expected = Service {
        level: 3,
        traffic_class: 0xb8,
    };
    assert_eq!(seen(), Some(expected));
}

#[test]
fn queue_pairs_of_a_thread_domain_are_known() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(1_000_000, 2_000, 1_000));
    let domains = &rig::process().domains;
    assert!(!domains.has(rig.qp()));
    unsafe {
        let alloc = verbs_get_ctx_op!(rig.context, alloc_parent_domain).unwrap();
        let mut td = 0u64;
        let mut with = ibv_parent_domain_init_attr {
            td: (&raw mut td).cast(),
            ..Default::default()
        };
        let parent = alloc(rig.context, &raw mut with);
        let mut attr = attributes(rig.send_cq);
        let qp = exports::ibv_create_qp(parent, &raw mut attr);
        assert!(rig::process().queue_pair(qp).is_some(), "it is paced");
        assert!(domains.has(qp));
        assert_eq!(exports::ibv_destroy_qp(qp), 0);
        assert!(!domains.has(qp));
        drop(Box::from_raw(parent));
    }
}
