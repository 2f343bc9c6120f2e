//! The state of the process: all known objects, the session, the pump.
//!
//! Problem: exported functions and replaced pointers are called with C objects only, from any thread, also in a child
//! after `fork`. Method: one [`Process`] behind one pointer, never freed. A child starts without one: inherited objects
//! pass directly to the provider, and the first device that the child opens makes a new state.

use crate::base::{Base, Saying};
use crate::completion_queue::CompletionQueue;
use crate::context::{Context, Device, Hooks};
use crate::domains::Domains;
use crate::meter::{Left, Meter};
use crate::originals::Originals;
use crate::places::Places;
use crate::pump::{self, Driven};
use crate::queue_pair::QueuePair;
use crate::session::Session;
use crate::settings::Settings;
use crate::table::{Table, lock};
use isolane_rdma_session::message::{Class, PortAddress};
use isolane_rdma_verbs_sys::*;
use rustix::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

/// Attempts on full queues before datagrams are abandoned.
const FLUSH_ROUNDS: usize = 10_000;

/// The objects of one process. A child after `fork` has none.
#[derive(Debug)]
pub struct Process {
    /// The functions of libibverbs.
    pub originals: Originals,
    /// Parts that all objects share.
    pub base: Base,
    /// Places of the queue pairs.
    pub places: Places,
    /// Thread domains.
    pub domains: Domains,
    /// Whether the pump runs.
    started: AtomicBool,
    contexts: Table<Context>,
    queue_pairs: Table<QueuePair>,
    completion_queues: Table<CompletionQueue>,
    free_cqs: Mutex<Vec<&'static CompletionQueue>>,
    devices: Mutex<Vec<&'static Device>>,
    session: Mutex<Option<Session>>,
    socket: AtomicI32,
    lost_at_ns: AtomicU64,
    /// The process before this one, once this one has forked.
    parent: AtomicPtr<Process>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// The process before the last fork: its contexts still contain our pointers.
static PARENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// The process's state, if it exists.
#[inline]
pub fn process() -> Option<&'static Process> {
    // SAFETY: null, or a leaked allocation.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Makes `process` the state that exported functions and replaced pointers use. The first one stays.
pub fn install(process: Process) -> &'static Process {
    static FORK: Once = Once::new();
    FORK.call_once(|| {
        // SAFETY: the handler is async-signal-safe. Without memory for it a child keeps what it must not use, as
        // with any other library that is not made for forks.
        unsafe { libc::pthread_atfork(None, None, Some(child_of_fork)) };
    });
    process.base.settings.allow_threads();
    let new = Box::into_raw(Box::new(process));
    let empty = std::ptr::null_mut();
    match PROCESS.compare_exchange(empty, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just leaked.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: `new` was not shared; `first` is leaked.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// Runs in a child of `fork`, where only async-signal-safe calls are allowed and other threads may have held any lock.
/// Closes our descriptors, so the parent's session ends with the parent, and clears the state.
pub extern "C" fn child_of_fork() {
    let parent = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or a leaked allocation.
    if let Some(process) = unsafe { parent.as_ref() } {
        let before = PARENT.swap(parent, Ordering::AcqRel);
        process.parent.store(before, Ordering::Release);
    }
    crate::descriptor::close_all();
}

/// The provider's tables of a context of this process or of a process that it was forked from.
pub fn context_of(context: *mut ibv_context) -> Option<&'static Context> {
    // SAFETY: null, or a leaked allocation, here and below.
    let parents = std::iter::successors(
        unsafe { PARENT.load(Ordering::Acquire).as_ref() },
        |child| unsafe { child.parent.load(Ordering::Acquire).as_ref() },
    );
    let mut processes = process().into_iter().chain(parents);
    processes.find_map(|process| process.contexts.find(context.addr()))
}

impl Process {
    /// A process without a session.
    pub fn new(originals: Originals, settings: Settings, clock: fn() -> u64) -> Self {
        let base = Base::new(settings, clock);
        Self {
            originals,
            places: Places::new(base.tag),
            domains: Domains::default(),
            base,
            started: AtomicBool::new(false),
            contexts: Table::default(),
            queue_pairs: Table::default(),
            completion_queues: Table::default(),
            free_cqs: Mutex::default(),
            devices: Mutex::default(),
            session: Mutex::default(),
            socket: AtomicI32::new(-1),
            lost_at_ns: AtomicU64::new(0),
            parent: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The queue pair, if it is paced.
    #[inline]
    pub fn queue_pair(&self, qp: *mut ibv_qp) -> Option<&'static QueuePair> {
        self.queue_pairs.find(qp.addr())
    }

    /// The completion queue, if its device is served.
    #[inline]
    pub fn completion_queue(&self, cq: *mut ibv_cq) -> Option<&'static CompletionQueue> {
        self.completion_queues.find(cq.addr())
    }

    /// Handles a newly opened context: begins the session if there is none. Replaces the tables if the device is served
    /// and the process is not of the latency class.
    ///
    /// # Safety
    /// `context` was just opened.
    pub unsafe fn adopt(&'static self, context: *mut ibv_context, hooks: &Hooks) {
        if self.base.settings.disabled {
            return;
        }
        // SAFETY: open.
        let Some(name) = (unsafe { device_name(context) }) else {
            return;
        };
        let Some(device) = self.serve(&name) else {
            return;
        };
        let mut attr = ibv_device_attr::default();
        // SAFETY: open, and the attributes are ours.
        if unsafe { (self.originals.query_device)(context, &raw mut attr) } != 0 {
            return;
        }
        // SAFETY: passed on; the context is not in use yet.
        unsafe {
            let known = Box::leak(Box::new(Context::of(context, device, &attr)));
            self.contexts.insert(context.addr(), known);
            known.swap(context, hooks);
        }
    }

    /// The device's meters, if the process is paced on it.
    fn serve(&'static self, name: &str) -> Option<&'static Device> {
        let mut session = lock(&self.session);
        if session.is_none() {
            match Session::begin(&self.base.settings) {
                Ok(begun) => self.begun(&mut session, begun),
                Err(reason) => {
                    self.base.say_once(
                        Saying::NoDaemon,
                        &format!("{reason}; the program runs unpaced"),
                    );
                    return None;
                }
            }
        }
        let begun = session.as_ref()?;
        if begun.class == Class::Latency {
            // The shim does not see its data path, but other processes are paced for it only if the daemon knows its
            // device.
            let _ = begun.open(name);
            return None;
        }
        let device = self.device(name);
        if !device.is_served() {
            let Some(numbers) = begun.open(name) else {
                self.base
                    .settings
                    .debug(&format!("the daemon does not serve {name}"));
                return None;
            };
            device.connect(Some((std::sync::Arc::clone(&begun.shared), numbers)));
        }
        if !self.start_pump() {
            self.base.say_once(
                Saying::NoPump,
                "cannot start a thread; the program runs unpaced",
            );
            device.connect(None);
            return None;
        }
        Some(device)
    }

    /// The meter of READs that queue pairs of a device do at a port.
    pub fn reads_from(&self, device: &'static Device, source: PortAddress) -> &'static Meter {
        if let Some(meter) = device.source(source) {
            return meter;
        }
        let session = lock(&self.session);
        if let Some(meter) = device.source(source) {
            return meter;
        }
        let open = || session.as_ref()?.open_reads(&device.name, source);
        device.add_source(source, open)
    }

    fn begun(&self, session: &mut Option<Session>, begun: Session) {
        self.base.settings.debug(&format!(
            "session {} of class {}",
            begun.number,
            begun.class.name()
        ));
        self.socket
            .store(begun.socket().unwrap_or(-1), Ordering::Release);
        self.base.serve(Some(std::sync::Arc::clone(&begun.shared)));
        *session = Some(begun);
    }

    /// Starts the pump once. False means that no thread could be started.
    pub fn start_pump(&'static self) -> bool {
        pump::start(self, &self.started)
    }

    /// Installs an existing session and one device of it; for tests.
    pub fn serve_locally(&'static self, name: &str, session: Session, numbers: [u16; 2]) {
        let device = self.device(name);
        let shared = std::sync::Arc::clone(&session.shared);
        let mut current = lock(&self.session);
        if current.is_none() {
            self.begun(&mut current, session);
        }
        device.connect(Some((shared, numbers)));
        drop(current);
        self.reconnect_queue_pairs();
    }

    fn device(&self, name: &str) -> &'static Device {
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.iter().find(|device| device.name == name) {
            return device;
        }
        let device = Box::leak(Box::new(Device::new(name.to_owned())));
        devices.push(device);
        device
    }

    /// Handles a context that will be closed.
    pub fn forget_context(&self, context: *mut ibv_context) {
        if let Some(known) = self.contexts.find(context.addr()) {
            known.address.store(0, Ordering::Release);
            self.contexts.remove(context.addr());
        }
    }

    /// The context, if its tables are replaced.
    pub fn context(&self, context: *mut ibv_context) -> Option<&'static Context> {
        self.contexts.find(context.addr())
    }

    /// Registers a queue pair under its address.
    pub fn register_queue_pair(&self, qp: *mut ibv_qp, queue_pair: &'static QueuePair) {
        self.queue_pairs.insert(qp.addr(), queue_pair);
    }

    /// Removes a queue pair.
    pub fn forget_queue_pair(&self, qp: *mut ibv_qp) {
        self.queue_pairs.remove(qp.addr());
    }

    /// Drops the stored completions of a queue pair that was destroyed or reset.
    pub fn forget_completions(&self, queues: [*mut ibv_cq; 2], qp_num: u32) {
        for cq in queues {
            if let Some(known) = self.completion_queue(cq) {
                known.forget(qp_num);
            }
        }
    }

    /// Takes a place for a completion queue and registers it under its address.
    pub fn register_completion_queue(
        &self,
        cq: *mut ibv_cq,
        context: &'static Context,
        spare: u32,
    ) -> &'static CompletionQueue {
        let known = lock(&self.free_cqs)
            .pop()
            .unwrap_or_else(|| Box::leak(Box::new(CompletionQueue::default())));
        known.attach(cq, context, spare);
        self.completion_queues.insert(cq.addr(), known);
        known
    }

    /// Hides a completion queue that will be destroyed.
    pub fn hide_completion_queue(&self, cq: *mut ibv_cq) {
        self.completion_queues.remove(cq.addr());
    }

    /// Shows it again after a failed destruction.
    pub fn show_completion_queue(&self, cq: *mut ibv_cq, known: &'static CompletionQueue) {
        self.completion_queues.insert(cq.addr(), known);
    }

    /// Makes its place available again.
    pub fn recycle_completion_queue(&self, known: &'static CompletionQueue) {
        lock(&self.free_cqs).push(known);
    }

    /// Posts waiting datagrams before an address handle that they may use is destroyed. Gives up after `FLUSH_ROUNDS`
    /// attempts on full queues.
    pub fn flush_datagrams(&'static self) {
        if !self.base.has_waiting_messages() {
            return;
        }
        let places = self.places.all();
        for queue_pair in places.filter(|queue_pair| queue_pair.holds_datagrams()) {
            for _ in 0..FLUSH_ROUNDS {
                if queue_pair.flush() {
                    break;
                }
                self.drain_behind(queue_pair);
                std::thread::yield_now();
            }
        }
    }

    /// Releases all messages from pacing.
    pub fn release(&self, why: &str) {
        for device in lock(&self.devices).iter() {
            device.connect(None);
        }
        self.reconnect_queue_pairs();
        self.base.settings.say(why);
    }

    /// Removes completions from the queue in which `queue_pair` waits for room. Returns whether there were any.
    fn drain_behind(&self, queue_pair: &QueuePair) -> bool {
        let cq = queue_pair.blocked_at();
        cq.and_then(|cq| self.completion_queue(cq))
            .is_some_and(|cq| cq.drain(&self.places))
    }

    fn reconnect_queue_pairs(&self) {
        for queue_pair in self.places.all() {
            queue_pair.reconnect();
        }
    }
}

impl Driven for Process {
    fn base(&self) -> &Base {
        &self.base
    }

    fn drive(&self) -> Left {
        let devices: Vec<&'static Device> = lock(&self.devices).clone();
        devices
            .iter()
            .flat_map(|device| device.all_meters())
            .map(|meter| {
                if meter.has_waiting() {
                    meter.pump()
                } else {
                    Left::default()
                }
            })
            .fold(Left::default(), Left::and)
    }

    fn has_waiting(&self) -> bool {
        let devices = lock(&self.devices);
        let mut meters = devices.iter().flat_map(|device| device.all_meters());
        meters.any(Meter::has_waiting)
    }

    fn drain_blocked(&self) -> bool {
        let mut moved = false;
        for queue_pair in self.places.all() {
            moved |= self.drain_behind(queue_pair);
        }
        moved
    }

    fn socket(&self) -> Option<RawFd> {
        let socket = self.socket.load(Ordering::Acquire);
        (socket >= 0).then_some(socket)
    }

    fn listen(&self) -> bool {
        let mut current = match self.session.try_lock() {
            Ok(current) => current,
            Err(_) => return true,
        };
        let Some(session) = current.as_ref() else {
            return false;
        };
        if session.listen() {
            return true;
        }
        session.shared.lost.store(true, Ordering::Relaxed);
        self.socket.store(-1, Ordering::Release);
        self.base.serve(None);
        *current = None;
        drop(current);
        self.lost_at_ns.store(self.base.now_ns(), Ordering::Relaxed);
        self.release("the daemon is gone; the program runs on unpaced");
        false
    }

    fn find_daemon_again(&self) {
        let Ok(begun) = Session::begin(&self.base.settings) else {
            return;
        };
        let mut current = lock(&self.session);
        if begun.class != Class::Latency {
            for device in lock(&self.devices).iter() {
                let numbers = begun.open(&device.name);
                let shared = || std::sync::Arc::clone(&begun.shared);
                device.connect(numbers.map(|numbers| (shared(), numbers)));
                if numbers.is_some() {
                    let open = |source| begun.open_reads(&device.name, source);
                    device.connect_sources(&begun.shared, open);
                }
            }
        }
        self.begun(&mut current, begun);
        drop(current);
        self.reconnect_queue_pairs();
        self.base
            .settings
            .say("the daemon is back; the program is paced again");
    }
}

/// The name of a context's device.
///
/// # Safety
/// `context` is open.
unsafe fn device_name(context: *mut ibv_context) -> Option<String> {
    // SAFETY: an open context has a device, whose name is an array that ends with a zero.
    let name = unsafe { (*(*context).device).name };
    let bytes: Vec<u8> = name
        .iter()
        .take_while(|character| **character != 0)
        .map(|character| *character as u8)
        .collect();
    String::from_utf8(bytes)
        .ok()
        .filter(|name| !name.is_empty())
}
