//! Measures the shim's cost per posted work request and per poll: `cargo bench -p isolane-rdma-preload`.
//!
//! The provider below only remembers a number, so the difference to a direct call is the shim's cost. One round posts
//! 64 requests of 64 bytes, one call each, the last one signalled, and polls its completion; the processor time of a
//! round is divided by 64. Prints nanoseconds per request (median, fastest and slowest repeat), and difference and
//! ratio to the direct call of the same run. Without `--bench` every case runs a few rounds as a smoke test.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Lease, METER_ACTIVE, METER_RELEASED, Region};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports::{self, HOOKS};
use isolane_shim::originals::Originals;
use isolane_shim::process::{Process, install};
use isolane_shim::session::Session;
use isolane_shim::settings::{Settings, Talk};
use std::ffi::{c_int, c_uint, c_void};

const ROUND: usize = 64;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let process = process();
    println!(
        "posting 64 bytes, ns per work request: median (fastest to slowest), difference and ratio to direct"
    );
    let direct = End::new(process, "direct", None);
    let base = direct.posts("direct call of the provider", measured, None);
    let latency = End::new(process, "latency", None);
    assert_eq!(
        latency.post_send().addr(),
        (post_send as PostSend as *const c_void).addr(),
        "the pointer is the provider's own"
    );
    latency.posts("latency class (the same pointer)", measured, Some(base));
    let plenty = lease(1 << 49, 1 << 39);
    let paced = End::new(process, "paced", Some(plenty));
    paced.posts("paced, credit in hand", measured, Some(base));
    let each = lease(1 << 49, 256);
    End::new(process, "asking", Some(each)).posts(
        "paced, credit requested each time",
        measured,
        Some(base),
    );
    let mut released = plenty;
    released.flags |= METER_RELEASED;
    let released = End::new(process, "released", Some(released));
    released.posts("released by the daemon", measured, Some(base));
    let lists = direct.lists("direct, lists of 16", measured, None);
    paced.lists("paced, lists of 16", measured, Some(lists));
    println!("polling, ns per call");
    let base = direct.polls("direct, nothing there", measured, None);
    paced.polls("paced, nothing there", measured, Some(base));
    process.release("");
    let base = direct.posts("direct call of the provider, again", measured, None);
    paced.posts("the daemon is gone", measured, Some(base));
}

fn lease(rate_bytes_per_s: u64, burst_bytes: u64) -> Lease {
    Lease {
        rate_bytes_per_s,
        burst_bytes,
        rate_operations_per_s: 1 << 49,
        burst_operations: burst_bytes,
        chunk_bytes: 4_096,
        valid_until_ns: u64::MAX / 2,
        flags: METER_ACTIVE,
    }
}

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time of this thread, ns. It excludes the time of other programs.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn process() -> &'static Process {
    let settings = Settings {
        talk: Talk::Off,
        pump: false,
        ..Settings::default()
    };
    let originals = Originals {
        open_device,
        open_device_by_vendor: None,
        close_device,
        query_device,
        create_cq,
        resize_cq,
        destroy_cq,
        get_cq_event,
        ack_cq_events,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        qp_to_qp_ex: None,
        destroy_ah,
    };
    install(Process::new(originals, settings, clock))
}

/// A queue pair and its completion queue.
struct End {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    _region: Region,
}

impl End {
    fn new(process: &'static Process, name: &str, lease: Option<Lease>) -> Self {
        let (region, file) = Region::create(1).unwrap();
        let mut device = ibv_device::default();
        for (at, byte) in name.bytes().enumerate() {
            device.name[at] = byte as i8;
        }
        let device = Box::leak(Box::new(device));
        unsafe {
            let context = open_device(device);
            if let Some(lease) = lease {
                region.meters[0].grant(&lease);
                region.meters[1].grant(&lease);
                let session = Session::local(Region::map(&file).unwrap(), Class::Auto);
                process.serve_locally(name, session, [0, 1]);
                process.adopt(context, &HOOKS);
            }
            let none = std::ptr::null_mut();
            let cq = exports::ibv_create_cq(context, 1_024, none, std::ptr::null_mut(), 0);
            let pd = Box::leak(Box::new(ibv_pd { context, handle: 0 }));
            let mut attr = ibv_qp_init_attr {
                send_cq: cq,
                recv_cq: cq,
                cap: ibv_qp_cap {
                    max_send_wr: 256,
                    max_send_sge: 1,
                    ..Default::default()
                },
                qp_type: IBV_QPT_RC,
                ..Default::default()
            };
            let qp = exports::ibv_create_qp(pd, &raw mut attr);
            let mut attr = ibv_qp_attr {
                qp_state: IBV_QPS_RTS,
                ..Default::default()
            };
            exports::ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int);
            Self {
                qp,
                cq,
                _region: region,
            }
        }
    }

    fn post_send(&self) -> *const c_void {
        unsafe { (*(*self.qp).context).ops.post_send }
            .map_or(std::ptr::null(), |post| post as *const c_void)
    }

    fn posts(&self, name: &str, measured: bool, base: Option<f64>) -> f64 {
        let memory = [0u8; 64];
        let mut list = [sge(&memory)];
        let mut plain = work(&mut list, 0);
        let mut signalled = work(&mut list, IBV_SEND_SIGNALED);
        case(name, measured, ROUND, base, || {
            for _ in 1..ROUND {
                self.post(&mut plain);
            }
            self.post(&mut signalled);
            self.reap();
        })
    }

    fn lists(&self, name: &str, measured: bool, base: Option<f64>) -> f64 {
        let memory = [0u8; 64];
        let mut list = [sge(&memory)];
        let mut works = [work(&mut list, 0); 16];
        for at in 0..15 {
            works[at].next = &raw mut works[at + 1];
        }
        works[15].send_flags = IBV_SEND_SIGNALED;
        case(name, measured, 16, base, || {
            self.post(&mut works[0]);
            self.reap();
        })
    }

    fn polls(&self, name: &str, measured: bool, base: Option<f64>) -> f64 {
        let mut wc = ibv_wc::default();
        case(name, measured, 1, base, || {
            let got = unsafe { ibv_poll_cq(self.cq, 1, &raw mut wc) };
            assert_eq!(got, 0);
        })
    }

    #[inline]
    fn post(&self, work: &mut ibv_send_wr) {
        let mut bad = std::ptr::null_mut();
        let error = unsafe { ibv_post_send(self.qp, work, &raw mut bad) };
        assert_eq!(error, 0);
    }

    #[inline]
    fn reap(&self) {
        let mut wc = ibv_wc::default();
        let got = unsafe { ibv_poll_cq(self.cq, 1, &raw mut wc) };
        assert_eq!((got, wc.wr_id), (1, 7));
    }
}

fn sge(memory: &[u8]) -> ibv_sge {
    ibv_sge {
        addr: memory.as_ptr().expose_provenance() as u64,
        length: memory.len() as u32,
        lkey: 1,
    }
}

fn work(list: &mut [ibv_sge], send_flags: u32) -> ibv_send_wr {
    ibv_send_wr {
        wr_id: 7,
        opcode: IBV_WR_RDMA_WRITE,
        sg_list: list.as_mut_ptr(),
        num_sge: 1,
        send_flags,
        ..Default::default()
    }
}

fn case(
    name: &str,
    measured: bool,
    parts: usize,
    base: Option<f64>,
    mut round: impl FnMut(),
) -> f64 {
    let (repeats, rounds) = if measured {
        (21, 400_000 / parts)
    } else {
        (1, 10)
    };
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = cpu_ns();
            for _ in 0..rounds {
                round();
            }
            (cpu_ns() - start) as f64 / (rounds * parts) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
    let difference = base.map_or(String::new(), |base| {
        format!("{:>+8.1} {:>6.1} x", median - base, median / base)
    });
    println!(
        "{name:<36} {median:>8.1} ({:.1} to {last:.1}) {difference}",
        times[0]
    );
    median
}

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

#[repr(C)]
struct FastCq {
    cq: ibv_cq,
    signalled: u64,
    wr_id: u64,
    qp_num: u32,
}

#[inline(never)]
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut work: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    unsafe {
        let cq = (*qp).send_cq.cast::<FastCq>();
        while !work.is_null() {
            if (*work).send_flags & IBV_SEND_SIGNALED != 0 {
                (*cq).signalled += 1;
                (*cq).wr_id = (*work).wr_id;
                (*cq).qp_num = (*qp).qp_num;
            }
            work = (*work).next;
        }
    }
    0
}

#[inline(never)]
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, _: c_int, wc: *mut ibv_wc) -> c_int {
    unsafe {
        let cq = cq.cast::<FastCq>();
        if (*cq).signalled == 0 {
            return 0;
        }
        (*cq).signalled -= 1;
        *wc = ibv_wc {
            wr_id: (*cq).wr_id,
            opcode: IBV_WC_RDMA_WRITE,
            qp_num: (*cq).qp_num,
            ..Default::default()
        };
    }
    1
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut context = Box::new(ibv_context::default());
    context.device = device;
    context.ops.post_send = Some(post_send);
    context.ops.poll_cq = Some(poll_cq);
    Box::into_raw(context)
}
unsafe extern "C" fn close_device(_: *mut ibv_context) -> c_int {
    0
}
unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    unsafe {
        (*attr).max_cqe = 1 << 20;
        (*attr).max_qp_wr = 1 << 14;
    }
    0
}
unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let mut cq = FastCq {
        cq: ibv_cq::default(),
        signalled: 0,
        wr_id: 0,
        qp_num: 0,
    };
    cq.cq.context = context;
    Box::into_raw(Box::new(cq)).cast()
}
unsafe extern "C" fn resize_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    0
}
unsafe extern "C" fn destroy_cq(_: *mut ibv_cq) -> c_int {
    0
}
unsafe extern "C" fn get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}
unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}
unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let mut qp = Box::new(ibv_qp::default());
    unsafe {
        qp.context = (*pd).context;
        qp.send_cq = (*attr).send_cq;
        qp.qp_type = (*attr).qp_type;
    }
    qp.qp_num = 17;
    Box::into_raw(qp)
}
unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, _: c_int) -> c_int {
    unsafe { (*qp).state = (*attr).qp_state };
    0
}
unsafe extern "C" fn query_qp(
    _: *mut ibv_qp,
    _: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    0
}
unsafe extern "C" fn destroy_qp(_: *mut ibv_qp) -> c_int {
    0
}
unsafe extern "C" fn destroy_ah(_: *mut ibv_ah) -> c_int {
    0
}
