//! Posting, executing and polling of the null provider.

use super::*;

unsafe fn list(list: *mut ibv_sge, count: c_int) -> Vec<ibv_sge> {
    match count {
        0 => Vec::new(),
        count => unsafe { std::slice::from_raw_parts(list, count as usize).to_vec() },
    }
}

/// A work request with copies of the data that a provider copies at once.
#[derive(Default)]
pub struct SendEntry {
    pub(super) work: ibv_send_wr,
    pub(super) list: Vec<ibv_sge>,
    pub(super) inline: Vec<u8>,
    pub(super) header: Vec<u8>,
}

/// The header of a segmentation request.
pub(super) unsafe fn header(work: &ibv_send_wr) -> Vec<u8> {
    unsafe {
        let tso = work.bind_mw.tso;
        std::slice::from_raw_parts(tso.hdr.cast::<u8>(), usize::from(tso.hdr_sz)).to_vec()
    }
}

impl SendEntry {
    unsafe fn of(work: &ibv_send_wr) -> Self {
        let mut entry = Self {
            work: *work,
            list: unsafe { list(work.sg_list, work.num_sge) },
            ..Self::default()
        };
        if work.send_flags & IBV_SEND_INLINE != 0 {
            entry.inline = gather(&std::mem::take(&mut entry.list));
        }
        if work.opcode == IBV_WR_TSO {
            entry.header = unsafe { header(work) };
        }
        entry
    }

    fn refused_by(&self, null: &NullQp) -> c_int {
        let unfit = (self.work.num_sge as u32 > null.cap.max_send_sge && !null.siw)
            || self.inline.len() > null.cap.max_inline_data as usize;
        if null.refuse != 0 {
            null.refuse
        } else if null.refuse_payload != 0 && self.total() > 0 {
            null.refuse_payload
        } else if null.qp.qp_base.state < IBV_QPS_RTS || unfit {
            libc::EINVAL
        } else if null.posted - null.freed >= u64::from(null.cap.max_send_wr) {
            libc::ENOMEM
        } else {
            0
        }
    }

    /// Bytes on the wire.
    fn total(&self) -> u64 {
        let listed: u64 = self.list.iter().map(|entry| u64::from(entry.length)).sum();
        listed + self.inline.len() as u64
    }
}

impl NullQp {
    fn accept(&mut self, entry: SendEntry) {
        self.send.push_back(entry);
        self.posted += 1;
        self.chunks += 1;
    }
}

/// Takes the whole batch, or nothing and returns an errno.
pub(super) fn take(null: &mut NullQp, entries: Vec<SendEntry>) -> c_int {
    let _world = WORLD.lock().unwrap();
    let refused = entries.iter().map(|entry| entry.refused_by(null));
    if let Some(errno) = refused.into_iter().find(|errno| *errno != 0) {
        return errno;
    }
    if null.posted - null.freed + entries.len() as u64 > u64::from(null.cap.max_send_wr) {
        return libc::ENOMEM;
    }
    for entry in entries {
        null.accept(entry);
    }
    0
}

pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut work: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe {
        let null = &mut *qp.cast::<NullQp>();
        let before = null.posted;
        while !work.is_null() {
            let entry = SendEntry::of(&*work);
            let refuse = entry.refused_by(null);
            if refuse != 0 {
                *bad = work;
                return match (null.siw, null.posted > before) {
                    (false, _) => refuse,
                    (true, false) => -refuse,
                    (true, true) => 0,
                };
            }
            null.accept(entry);
            work = (*work).next;
        }
    }
    0
}

/// The old bind call: the provider posts a request of its own.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    unsafe {
        let mut work = ibv_send_wr {
            wr_id: (*bind).wr_id,
            send_flags: (*bind).send_flags,
            opcode: IBV_WR_BIND_MW,
            ..Default::default()
        };
        work.bind_mw.bind_mw = ibv_send_wr_bind_mw {
            mw,
            rkey: (*mw).rkey,
            bind_info: (*bind).bind_info,
        };
        post_send(qp, &raw mut work, &mut std::ptr::null_mut())
    }
}

pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut work: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe {
        while !work.is_null() {
            let entry = RecvEntry {
                wr_id: (*work).wr_id,
                list: list((*work).sg_list, (*work).num_sge),
            };
            (*qp.cast::<NullQp>()).recv.push_back(entry);
            work = (*work).next;
        }
    }
    0
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn gather(list: &[ibv_sge]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in list.iter().filter(|entry| entry.length > 0) {
        let from = pointer(entry.addr).cast_const();
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, entry.length as usize) });
    }
    bytes
}

fn scatter(list: &[ibv_sge], mut bytes: &[u8]) {
    for entry in list {
        let count = bytes.len().min(entry.length as usize);
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(entry.addr), count) };
        bytes = &bytes[count..];
    }
    assert!(bytes.is_empty(), "the receive is large enough");
}

fn complete(cq: *mut ibv_cq, completion: Completion) {
    let cq = unsafe { &mut *cq.cast::<NullCq>() };
    let is_failed = completion.wc.status != IBV_WC_SUCCESS;
    if cq.entries.len() as c_int >= cq.cq.cqe {
        cq.overflowed = true;
    }
    cq.entries.push_back(completion);
    // No test solicits an event.
    let wakes = |solicited_only: bool| !solicited_only || is_failed;
    if cq.armed.is_some_and(wakes) && !cq.cq.channel.is_null() {
        cq.armed = None;
        let channel = unsafe { &mut *cq.cq.channel.cast::<NullChannel>() };
        channel.events.push_back((&raw mut *cq).cast());
    }
}

/// Executes one work request of a queue pair. Returns false if there is none, or if the peer has no receive for it.
pub fn step(qp: *mut ibv_qp) -> bool {
    let _world = WORLD.lock().unwrap();
    let null = unsafe { &mut *qp.cast::<NullQp>() };
    let Some(entry) = null.send.front() else {
        return false;
    };
    let work = entry.work;
    let total = entry.total();
    let header = entry.header.clone();
    let mut status = IBV_WC_SUCCESS;
    let mut opcode = IBV_WC_RDMA_WRITE;
    if null.failed {
        status = IBV_WC_WR_FLUSH_ERR;
    } else {
        let payload = match work.send_flags & IBV_SEND_INLINE != 0 {
            true => entry.inline.clone(),
            false => gather(&entry.list),
        };
        let consumes = matches!(
            work.opcode,
            IBV_WR_SEND
                | IBV_WR_SEND_WITH_IMM
                | IBV_WR_SEND_WITH_INV
                | IBV_WR_RDMA_WRITE_WITH_IMM
                | IBV_WR_TSO
        );
        let peer = unsafe { &mut *null.peer };
        if consumes && peer.recv.is_empty() {
            return false;
        }
        let (remote, rkey) = unsafe { (work.wr.rdma.remote_addr, work.wr.rdma.rkey) };
        match work.opcode {
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => {
                if is_forbidden(rkey, remote, total) {
                    status = IBV_WC_REM_ACCESS_ERR;
                } else if total > 0 {
                    let to = pointer(remote);
                    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len()) };
                }
            }
            IBV_WR_RDMA_READ => {
                opcode = IBV_WC_RDMA_READ;
                if is_forbidden(rkey, remote, total) {
                    status = IBV_WC_REM_ACCESS_ERR;
                } else if total > 0 {
                    let from = pointer(remote).cast_const();
                    let bytes =
                        unsafe { std::slice::from_raw_parts(from, total as usize) }.to_vec();
                    scatter(&entry.list, &bytes);
                }
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                opcode = IBV_WC_FETCH_ADD;
                let atomic = unsafe { work.wr.atomic };
                let at = pointer(atomic.remote_addr).cast::<u64>();
                let before = unsafe { at.read_unaligned() };
                unsafe { at.write_unaligned(before.wrapping_add(atomic.compare_add)) };
                scatter(&entry.list, &before.to_ne_bytes());
            }
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                opcode = IBV_WC_COMP_SWAP;
                let atomic = unsafe { work.wr.atomic };
                let at = pointer(atomic.remote_addr).cast::<u64>();
                let before = unsafe { at.read_unaligned() };
                if before == atomic.compare_add {
                    unsafe { at.write_unaligned(atomic.swap) };
                }
                scatter(&entry.list, &before.to_ne_bytes());
            }
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => opcode = IBV_WC_SEND,
            // Not split: the receiver gets the header and all segments.
            IBV_WR_TSO => opcode = IBV_WC_TSO,
            IBV_WR_SEND_WITH_INV => {
                opcode = IBV_WC_SEND;
                window(work.imm_data, false);
            }
            IBV_WR_LOCAL_INV => {
                opcode = IBV_WC_LOCAL_INV;
                window(work.imm_data, false);
            }
            IBV_WR_BIND_MW => {
                opcode = IBV_WC_BIND_MW;
                window(unsafe { work.bind_mw.bind_mw.rkey }, true);
            }
            other => panic!("opcode {other} is not for this provider"),
        }
        if consumes && status == IBV_WC_SUCCESS {
            let receive = peer.recv.pop_front().expect("looked at above");
            let is_send = work.opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
            if is_send {
                scatter(&receive.list, &[header.as_slice(), &payload].concat());
            }
            let plain = matches!(work.opcode, IBV_WR_SEND | IBV_WR_TSO);
            let wc = ibv_wc {
                wr_id: receive.wr_id,
                opcode: if is_send {
                    IBV_WC_RECV
                } else {
                    IBV_WC_RECV_RDMA_WITH_IMM
                },
                byte_len: total as u32 + header.len() as u32,
                imm_data: if plain { 0 } else { work.imm_data },
                wc_flags: match work.opcode {
                    IBV_WR_SEND | IBV_WR_TSO => 0,
                    IBV_WR_SEND_WITH_INV => IBV_WC_WITH_INV,
                    _ => IBV_WC_WITH_IMM,
                },
                qp_num: peer.qp.qp_base.qp_num,
                ..ibv_wc::default()
            };
            let cq = peer.qp.qp_base.recv_cq;
            complete(
                cq,
                Completion {
                    wc,
                    qp: null.peer,
                    frees: None,
                },
            );
        }
    }
    null.send.pop_front();
    if status == IBV_WC_SUCCESS {
        null.log.push(Done {
            opcode: work.opcode,
            bytes: total,
            immediate: work.imm_data,
            shared_receive: work.qp_type.remote_srqn,
            datagram: (null.qp.qp_base.qp_type == IBV_QPT_UD).then(|| {
                let to = unsafe { work.wr.ud };
                (to.remote_qpn, to.remote_qkey)
            }),
            header_bytes: header.len(),
        });
    }
    null.executed += 1;
    null.failed |= status != IBV_WC_SUCCESS;
    let signalled = null.signal_all || work.send_flags & IBV_SEND_SIGNALED != 0;
    if signalled || status != IBV_WC_SUCCESS {
        let wc = ibv_wc {
            wr_id: work.wr_id,
            status,
            // After an error the field is undefined; a wrong value reveals a reader.
            opcode: if status == IBV_WC_SUCCESS {
                opcode
            } else {
                0xdead_00ff
            },
            byte_len: total as u32,
            qp_num: null.qp.qp_base.qp_num,
            ..ibv_wc::default()
        };
        let frees = Some(null.executed);
        complete(
            null.qp.qp_base.send_cq,
            Completion {
                wc,
                qp: null,
                frees,
            },
        );
    }
    true
}

fn pop(cq: &mut NullCq) -> Option<ibv_wc> {
    let completion = cq.entries.pop_front()?;
    if let Some(frees) = completion.frees {
        unsafe { (*completion.qp).freed = frees };
    }
    Some(completion.wc)
}

static AFTER_POLL: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Does this at the end of the next poll, before its caller sees the completions.
pub fn after_poll(then: impl FnOnce() + Send + 'static) {
    *AFTER_POLL.lock().unwrap() = Some(Box::new(then));
}

pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    let world = WORLD.lock().unwrap();
    let cq = unsafe { &mut *cq.cast::<NullCq>() };
    let mut got = 0;
    while got < count
        && let Some(completion) = pop(cq)
    {
        unsafe { *wc.add(got as usize) = completion };
        got += 1;
    }
    drop(world);
    if let Some(then) = AFTER_POLL.lock().unwrap().take() {
        then();
    }
    got
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe { (*cq.cast::<NullCq>()).armed = Some(solicited_only != 0) };
    0
}

fn advance(cq: *mut ibv_cq_ex) -> c_int {
    let _world = WORLD.lock().unwrap();
    let cq = unsafe { &mut *cq.cast::<NullCq>() };
    cq.current = pop(cq);
    match cq.current {
        None => libc::ENOENT,
        Some(wc) => {
            cq.cq.wr_id = wc.wr_id;
            cq.cq.status = wc.status;
            0
        }
    }
}

pub(super) unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    advance(cq)
}
pub(super) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    advance(cq)
}
pub(super) unsafe extern "C" fn end_poll(_: *mut ibv_cq_ex) {}

fn current(cq: *mut ibv_cq_ex) -> ibv_wc {
    unsafe {
        (*cq.cast::<NullCq>())
            .current
            .expect("between start and end")
    }
}
pub(super) unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    current(cq).byte_len
}
pub(super) unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    current(cq).qp_num
}
pub(super) unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    current(cq).opcode
}

/// Work requests that the provider has executed or holds; shows how often a message was split.
pub fn provider_requests(qp: *mut ibv_qp) -> u64 {
    let _world = WORLD.lock().unwrap();
    unsafe { (*qp.cast::<NullQp>()).chunks }
}

/// Successfully executed work requests of a queue pair, in order.
pub fn executed(qp: *mut ibv_qp) -> Vec<Done> {
    let _world = WORLD.lock().unwrap();
    unsafe { (*qp.cast::<NullQp>()).log.clone() }
}

/// Makes every post fail with this errno; 0 ends that.
pub fn refuse(qp: *mut ibv_qp, errno: c_int) {
    unsafe { (*qp.cast::<NullQp>()).refuse = errno };
}

/// Makes every post of a request with a payload fail with this errno.
pub fn refuse_payload(qp: *mut ibv_qp, errno: c_int) {
    unsafe { (*qp.cast::<NullQp>()).refuse_payload = errno };
}

/// Makes a queue pair behave like siw: memory lists may be longer than its attributes say, errors are negative, and a
/// partially accepted list is not an error, although the first rejected request is reported.
pub fn like_siw(qp: *mut ibv_qp) {
    unsafe { (*qp.cast::<NullQp>()).siw = true };
}

pub fn overflowed(cq: *mut ibv_cq) -> bool {
    unsafe { (*cq.cast::<NullCq>()).overflowed }
}

/// Number of places in a queue pair's provider send queue.
pub fn depth(qp: *mut ibv_qp) -> u32 {
    unsafe { (*qp.cast::<NullQp>()).cap.max_send_wr }
}
