//! Two ends over the null provider, with or without the shim.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod calls;

use crate::null;
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Lease, METER_ACTIVE, Region};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports::{self, HOOKS};
use isolane_shim::process::{Process, install};
use isolane_shim::pump::Driven;
use isolane_shim::session::Session;
use isolane_shim::settings::{Settings, Talk};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Nanoseconds of the process's clock; only tests advance it.
pub static CLOCK: AtomicU64 = AtomicU64::new(1_000_000_000);
static SERIAL: Mutex<()> = Mutex::new(());
static DEVICES: AtomicU64 = AtomicU64::new(0);

pub fn clock() -> u64 {
    CLOCK.load(Ordering::Relaxed)
}

pub fn pass_time(ns: u64) {
    CLOCK.fetch_add(ns, Ordering::Relaxed);
}

/// Tests share one process, so they run one at a time.
pub fn serial() -> MutexGuard<'static, ()> {
    let guard = SERIAL
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    null::allow_all();
    guard
}

pub fn settings() -> Settings {
    Settings {
        talk: Talk::Off,
        pump: false,
        split_immediate: std::env::var_os("TEST_SPLIT_IMMEDIATE").is_some(),
        ..Settings::default()
    }
}

pub fn process() -> &'static Process {
    static ONCE: OnceLock<&'static Process> = OnceLock::new();
    ONCE.get_or_init(|| install(Process::new(null::originals(), settings(), clock)))
}

/// A lease without end.
pub fn lease(rate_bytes_per_s: u64, burst_bytes: u64, chunk_bytes: u32) -> Lease {
    Lease {
        rate_bytes_per_s,
        burst_bytes,
        rate_operations_per_s: 0,
        burst_operations: 0,
        chunk_bytes,
        valid_until_ns: u64::MAX / 2,
        flags: METER_ACTIVE,
    }
}

/// How [`Rig::post`] posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `ibv_post_send`.
    Plain,
    /// `ibv_wr_start`, `ibv_wr_*`, `ibv_wr_complete`.
    Extended,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub shimmed: bool,
    pub depth: u32,
    pub pairs: usize,
    pub signal_all: bool,
    pub extended: bool,
    pub cqe: c_int,
    /// Whether completions of sends make events.
    pub events: bool,
    pub kind: ibv_qp_type,
    pub calls: Calls,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            shimmed: true,
            depth: 16,
            pairs: 1,
            signal_all: false,
            extended: false,
            cqe: 256,
            events: true,
            kind: IBV_QPT_RC,
            calls: Calls::Plain,
        }
    }
}

pub struct Rig {
    pub context: *mut ibv_context,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub channel: *mut ibv_comp_channel,
    pub pairs: Vec<(*mut ibv_qp, *mut ibv_qp)>,
    pub region: Region,
    pub shape: Shape,
    _pd: Box<ibv_pd>,
}

impl Rig {
    pub fn new(shape: Shape, lease: &Lease) -> Self {
        process();
        let name = format!("null{}", DEVICES.fetch_add(1, Ordering::Relaxed));
        let (region, file) = Region::create(1).unwrap();
        for meter in &region.meters[..2] {
            meter.grant(lease);
        }
        unsafe {
            let context = null::open_device(null::device(&name));
            if shape.shimmed {
                let mapped = Region::map(&file).unwrap();
                process().serve_locally(&name, Session::local(mapped, Class::Auto), [0, 1]);
                process().adopt(context, &HOOKS);
            }
            let channel = null::create_channel(context);
            let null_pointer = std::ptr::null_mut();
            let events = match shape.events {
                true => channel,
                false => std::ptr::null_mut(),
            };
            let mut attr = ibv_cq_init_attr_ex {
                cqe: shape.cqe as u32,
                channel: events,
                ..Default::default()
            };
            let send_cq = match shape.extended {
                true => ibv_create_cq_ex(context, &raw mut attr).cast(),
                false => exports::ibv_create_cq(context, shape.cqe, null_pointer, events, 0),
            };
            let none = std::ptr::null_mut();
            let recv_cq = exports::ibv_create_cq(context, 4096, null_pointer, none, 0);
            let mut pd = Box::new(ibv_pd { context, handle: 0 });
            let mut rig = Self {
                context,
                send_cq,
                recv_cq,
                channel,
                pairs: Vec::new(),
                region,
                shape,
                _pd: Box::default(),
            };
            for _ in 0..shape.pairs {
                let one = rig.queue_pair(&raw mut *pd, shape.kind);
                let two = rig.queue_pair(&raw mut *pd, shape.kind);
                null::join(one, two);
                set_state(one, IBV_QPS_RTS);
                set_state(two, IBV_QPS_RTS);
                rig.pairs.push((one, two));
            }
            rig._pd = pd;
            rig
        }
    }

    unsafe fn queue_pair(&self, pd: *mut ibv_pd, kind: ibv_qp_type) -> *mut ibv_qp {
        let extended = self.shape.calls == Calls::Extended;
        let send_ops = if extended {
            IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        } else {
            0
        };
        let mut attr = ibv_qp_init_attr_ex {
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            cap: ibv_qp_cap {
                max_send_wr: self.shape.depth,
                max_recv_wr: 4096,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            qp_type: kind,
            sq_sig_all: c_int::from(self.shape.signal_all),
            comp_mask: IBV_QP_INIT_ATTR_PD | send_ops,
            pd,
            send_ops_flags: u64::from(IBV_QP_EX_WITH_ATOMIC_WRITE - 1),
            ..Default::default()
        };
        let qp = unsafe {
            match extended {
                true => {
                    let create = verbs_get_ctx_op!(self.context, create_qp_ex);
                    create.expect("the null provider has it")(self.context, &raw mut attr)
                }
                false => exports::ibv_create_qp(pd, (&raw mut attr).cast()),
            }
        };
        assert!(!qp.is_null());
        let depth = self.shape.depth;
        assert_eq!(attr.cap.max_send_wr, depth, "the application's own word");
        qp
    }

    pub fn qp(&self) -> *mut ibv_qp {
        self.pairs[0].0
    }

    /// A protection domain of the device.
    pub fn domain(&self) -> ibv_pd {
        ibv_pd {
            context: self.context,
            handle: 0,
        }
    }

    /// Two connected queue pairs that are not paced, as a vendor's function makes them.
    pub fn unpaced(&self) -> (*mut ibv_qp, *mut ibv_qp) {
        let mut pd = self.domain();
        let mut attr = ibv_qp_init_attr {
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            qp_type: IBV_QPT_RC,
            ..Default::default()
        };
        attr.cap.max_send_wr = self.shape.depth;
        attr.cap.max_recv_wr = 16;
        attr.cap.max_send_sge = 1;
        let pair = [(); 2].map(|()| unsafe { null::create_qp(&raw mut pd, &raw mut attr) });
        null::join(pair[0], pair[1]);
        set_state(pair[0], IBV_QPS_RTS);
        set_state(pair[1], IBV_QPS_RTS);
        (pair[0], pair[1])
    }

    /// Posts like the header's inline function; on error with the address of the first request that was not posted.
    pub fn post(&self, qp: *mut ibv_qp, work: &mut ibv_send_wr) -> Result<(), (usize, c_int)> {
        if self.shape.calls == Calls::Extended {
            return match unsafe { calls::post(qp.cast(), work) } {
                0 => Ok(()),
                error => Err(((&raw const *work).addr(), error)),
            };
        }
        let mut bad = std::ptr::null_mut();
        let answer = unsafe { ibv_post_send(qp, work, &raw mut bad) };
        assert!(!self.shape.shimmed || (answer >= 0 && (answer > 0) != bad.is_null()));
        match answer {
            0 if bad.is_null() => Ok(()),
            // siw's result for a partially accepted list.
            0 => Err((bad.addr(), libc::ENOMEM)),
            error => Err((bad.addr(), error.abs())),
        }
    }

    /// Polls until nothing comes, `batch` at a time.
    pub fn poll(&self, cq: *mut ibv_cq, batch: usize) -> Vec<ibv_wc> {
        let mut all = Vec::new();
        let mut some = vec![ibv_wc::default(); batch];
        loop {
            let got = unsafe { ibv_poll_cq(cq, batch as c_int, some.as_mut_ptr()) };
            assert!(got >= 0);
            all.extend_from_slice(&some[..got as usize]);
            if got == 0 {
                return all;
            }
        }
    }

    /// Does one round of the pump. Returns when the pump would check credit again.
    pub fn pump(&self) -> Option<u64> {
        if !self.shape.shimmed {
            return None;
        }
        let left = process().drive();
        if left.blocked {
            process().drain_blocked();
        }
        left.ready_at_ns
    }

    /// Executes up to `count` work requests of a queue pair in the provider.
    pub fn step(&self, qp: *mut ibv_qp, count: usize) -> usize {
        (0..count).take_while(|_| null::step(qp)).count()
    }

    /// Runs everything to its end without polls of the application; returns the number of executed work requests.
    pub fn settle(&self) -> usize {
        let mut total = 0;
        let mut idle = 0;
        for round in 0.. {
            if idle == 20 {
                break;
            }
            assert!(round < 1 << 24, "what waits for credit never goes");
            let ready = self.pump();
            let sides = self.pairs.iter().flat_map(|(one, two)| [*one, *two]);
            let done: usize = sides.map(|qp| self.step(qp, 1 << 20)).sum();
            total += done;
            // A slow lease waits for days of this clock; credit grows for at most one second at a time.
            let wait = ready.map_or(0, |at| at.saturating_sub(clock()));
            idle = if done > 0 || wait > 0 { 0 } else { idle + 1 };
            pass_time(wait.clamp(50_000_000, 1_000_000_000));
        }
        total
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        unsafe {
            for (one, two) in &self.pairs {
                if self.shape.shimmed {
                    assert_eq!(null::extended::calls(*one), 0, "not past the shim");
                }
                assert_eq!(exports::ibv_destroy_qp(*one), 0);
                assert_eq!(exports::ibv_destroy_qp(*two), 0);
            }
            assert!(
                !null::overflowed(self.send_cq),
                "the completion queue overflowed"
            );
            assert_eq!(exports::ibv_destroy_cq(self.send_cq), 0);
            assert_eq!(exports::ibv_destroy_cq(self.recv_cq), 0);
            assert_eq!(exports::ibv_close_device(self.context), 0);
        }
    }
}

pub fn set_state(qp: *mut ibv_qp, state: ibv_qp_state) {
    let mut attr = ibv_qp_attr {
        qp_state: state,
        ..Default::default()
    };
    let mask = IBV_QP_STATE as c_int;
    assert_eq!(
        unsafe { exports::ibv_modify_qp(qp, &raw mut attr, mask) },
        0
    );
}

/// The address of memory in the form of work requests.
pub fn address(memory: &[u8]) -> u64 {
    memory.as_ptr().expose_provenance() as u64
}

pub fn receive(qp: *mut ibv_qp, wr_id: u64, into: &[u8]) {
    let mut list = [sge(into)];
    let mut receive = ibv_recv_wr {
        wr_id,
        sg_list: list.as_mut_ptr(),
        num_sge: 1,
        ..Default::default()
    };
    let mut bad = std::ptr::null_mut();
    let answer = unsafe { ibv_post_recv(qp, &raw mut receive, &raw mut bad) };
    assert_eq!(answer, 0);
}

pub fn sge(memory: &[u8]) -> ibv_sge {
    ibv_sge {
        addr: address(memory),
        length: memory.len() as u32,
        lkey: 1,
    }
}

/// A WRITE of the bytes in `list` to the address `remote`.
pub fn write_request(
    wr_id: u64,
    list: &mut [ibv_sge],
    remote: u64,
    send_flags: u32,
) -> ibv_send_wr {
    work(wr_id, IBV_WR_RDMA_WRITE, list, remote, send_flags)
}

/// A work request on remote memory.
pub fn work(
    wr_id: u64,
    opcode: ibv_wr_opcode,
    list: &mut [ibv_sge],
    remote: u64,
    send_flags: u32,
) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        opcode,
        sg_list: list.as_mut_ptr(),
        num_sge: list.len() as c_int,
        send_flags,
        wr: ibv_send_wr_wr {
            rdma: ibv_send_wr_rdma {
                remote_addr: remote,
                rkey: 2,
            },
        },
        ..Default::default()
    }
}
