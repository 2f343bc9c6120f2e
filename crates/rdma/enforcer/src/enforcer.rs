//! Enforcement on one host: combines the other modules of this crate.
//!
//! Method: the [`Supervisor`] delays control verbs in its own thread, and a second thread receives listeners from the
//! guardian. The owner of an [`Enforcer`] calls [`Enforcer::step`] about every [`PAUSE`]: a step reads the counters,
//! runs the [`Law`] and sends notifications. Once a second, a step also reads the kernel's inventory.
//! [`Enforcer::status`] returns holdings, usage, verdicts and actions per tenant.
//!
//! Where a daemon runs, [`Pacing`] sends it the rates; it applies them to tenants under the shim. In shadow mode
//! everything is counted and reported, and nothing is delayed, sent or capped.
//!
//! Units end the names of numbers. Limits: one enforcer per guardian; only the devices of this network namespace.

use crate::caps::{self, SetCap};
use crate::cnp::sender::Sender;
use crate::cnp::target::{LocalPort, Target};
use crate::control::supervisor::{Calls, Mode, Supervisor};
use crate::error::EnforceError;
use crate::guardian::table::SLOTS;
use crate::guardian::{Link, OnDeath};
use crate::law::{Law, Seen, Traffic};
use crate::pacing::{Pacing, Table};
use crate::status::{self, Status, Unsupervised};
use crate::tenants::Tenants;
use isolane_common_linux::Root;
use isolane_common_linux::{open_files, say_error};
use isolane_common_quantities::units;
use isolane_rdma_inventory::counters;
use isolane_rdma_inventory::counters::{Counter, Extra, Snapshot};
use isolane_rdma_inventory::inventory::{GroupHoldings, Inventory, by_tenant};
use isolane_rdma_inventory::rdma::Connection;
use isolane_rdma_policy::harmonic::Batch;
use isolane_rdma_scenario::enforcement::Enforcement;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two steps.
pub const PAUSE: Duration = Duration::from_millis(10);
/// Time between two readings of the inventory.
const INVENTORY: Duration = Duration::from_secs(1);

/// Limit of open files: all listeners, plus counters, sockets and notifications of the devices.
const FILES: u64 = SLOTS as u64 + 1_024;

/// What to enforce, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The enforcement file.
    pub file: Enforcement,
    /// Directory of the guardian's sockets.
    pub directory: PathBuf,
    /// Command line that starts a guardian for that directory.
    pub guardian: Vec<OsString>,
    /// Enforce, or only report (shadow).
    pub mode: Mode,
    /// Restricts enforcement to one device; `None` means all devices.
    pub device: Option<String>,
    /// Interface for the notifications of each device. A device without an entry gets no notifications.
    pub notify: BTreeMap<String, String>,
    /// Socket of the daemon that receives the rates.
    pub daemon: PathBuf,
    /// Whether a machine without RDMA devices is an error.
    pub needs_device: bool,
}

/// Result of one reading of the inventory.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Device name and port number of each port.
    pub(crate) ports: Vec<(String, u32)>,
    /// Objects held, by the tenant's place.
    pub(crate) groups: BTreeMap<usize, GroupHoldings>,
    /// Places that can send, by device.
    senders: BTreeMap<String, BTreeSet<usize>>,
    /// Flows that can be slowed, by place and device.
    targets: BTreeMap<usize, Vec<(String, Target)>>,
    /// Rates and process assignments for the daemon.
    limits: Table,
    /// Processes that hold objects and have no filter.
    pub(crate) unsupervised: Vec<Unsupervised>,
}

/// Enforcement on this host.
#[derive(Debug)]
pub struct Enforcer {
    root: Root,
    mode: Mode,
    on_death: OnDeath,
    device: Option<String>,
    supervisor: Arc<Supervisor>,
    tenants: Arc<Mutex<Tenants>>,
    arrivals: Option<JoinHandle<()>>,
    link: Arc<Link>,
    guarded: Arc<AtomicBool>,
    connection: Option<Connection>,
    law: Law,
    holding: Holding,
    snapshots: BTreeMap<String, Snapshot>,
    senders: BTreeMap<String, Sender>,
    caps: Vec<SetCap>,
    /// `None` in shadow mode.
    pacing: Option<Pacing>,
    begun: Instant,
    looked: Option<Instant>,
    earlier: Option<(Instant, Vec<Calls>)>,
}

impl Enforcer {
    /// Starts supervision. Fails without a device, a privilege, a guardian or a cgroup for a cap, for another enforcer,
    /// and for guarantees beyond the capacity.
    pub fn start(options: Options) -> Result<Self, EnforceError> {
        let root = Root::machine();
        let file = options.file;
        let law = Law::new(&file.tenants, file.capacity)?;
        let connection = devices(options.device.as_deref(), options.needs_device)?;
        let (connection, names) = match connection {
            Some((connection, names)) => (Some(connection), names),
            None => (None, Vec::new()),
        };
        let mut senders = BTreeMap::new();
        for (device, interface) in &options.notify {
            if !names.contains(device) {
                return Err(EnforceError::BadInput(format!(
                    "--notify {device}={interface}: no RDMA device is named `{device}`"
                )));
            }
            senders.insert(device.clone(), Sender::open(&root, interface)?);
        }
        let acts = options.mode == Mode::Enforce;
        let caps = caps::set(&root, &file.tenants, &names, acts)?;
        open_files::raise(FILES).map_err(|source| EnforceError::System {
            action: "hold the listeners of every tenant",
            source,
        })?;
        let (link, table) = Link::open(&options.directory, &options.guardian, file.on_death)?;
        let tenants = Tenants::new(root.clone(), file.tenants);
        let supervisor = Supervisor::start(tenants.supervised(), options.mode, Some(table));
        let supervisor = supervisor.map_err(|source| EnforceError::System {
            action: "start the thread that holds control verbs",
            source,
        })?;
        let mut enforcer = Self {
            root,
            mode: options.mode,
            on_death: file.on_death,
            device: options.device,
            supervisor: Arc::new(supervisor),
            tenants: Arc::new(Mutex::new(tenants)),
            arrivals: None,
            link: Arc::new(link),
            guarded: Arc::new(AtomicBool::new(true)),
            connection,
            law,
            holding: Holding::default(),
            snapshots: BTreeMap::new(),
            senders,
            caps,
            pacing: acts.then(|| Pacing::new(options.daemon)),
            begun: Instant::now(),
            looked: None,
            earlier: None,
        };
        enforcer.arrivals = Some(enforcer.receive_arrivals()?);
        Ok(enforcer)
    }

    /// The thread that takes listeners from the guardian.
    fn receive_arrivals(&self) -> Result<JoinHandle<()>, EnforceError> {
        let (link, supervisor) = (Arc::clone(&self.link), Arc::clone(&self.supervisor));
        let (tenants, guarded) = (Arc::clone(&self.tenants), Arc::clone(&self.guarded));
        let receive = move || {
            while let Ok(Some(handed)) = link.receive() {
                let mut tenants = tenants.lock().unwrap_or_else(PoisonError::into_inner);
                let (place, _) = tenants.of_arrival(&handed);
                drop(tenants);
                supervisor.watch(handed.listener, place, Some(handed.slot));
            }
            guarded.store(false, Ordering::Relaxed);
        };
        std::thread::Builder::new()
            .name("isolane-arrive".to_owned())
            .spawn(receive)
            .map_err(|source| EnforceError::System {
                action: "start the thread that takes listeners",
                source,
            })
    }

    /// Reads the counters, once a second also the inventory, and slows tenants that use too much. Fails if the
    /// inventory cannot be read any more.
    pub fn step(&mut self) -> Result<(), EnforceError> {
        let now = Instant::now();
        for slot in self.supervisor.take_shed() {
            // [`Enforcer::status`] reports a guardian that has ended.
            let _ = self.link.shed(slot);
        }
        if self.looked.is_none_or(|looked| now - looked >= INVENTORY) {
            self.looked = Some(now);
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            tenants.forget_ended();
            drop(tenants);
            self.look()?;
        }
        if let Some(pacing) = &mut self.pacing {
            pacing.step(now, &self.holding.limits);
        }
        let since = (now - self.begun).as_nanos();
        let elapsed_ns = u64::try_from(since).unwrap_or(u64::MAX);
        let seen = self.count(elapsed_ns);
        // u64 picoseconds last 213 days; later in a run the clock stops and no tenant is slowed.
        let at = units::Instant::from_ps(elapsed_ns.saturating_mul(1_000));
        for batch in self.law.poll(at, &seen) {
            self.notify(elapsed_ns, &batch);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), EnforceError> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let inventory = Inventory::read(connection, self.device.as_deref())?;
        let processes = inventory.by_process(&self.root);
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place_of = BTreeMap::new();
        for entry in &processes {
            let place = tenants.of(&entry.process, false, &crate::arrival::Arrival::default());
            place_of.insert(entry.process.id, place);
        }
        let mut holding = Holding {
            ports: inventory
                .links
                .iter()
                .map(|link| (link.device.clone(), link.port))
                .collect(),
            unsupervised: status::unsupervised(&self.root, &processes, &place_of, &tenants),
            ..Holding::default()
        };
        for place in 0..tenants.unlisted() {
            if let Some(rate) = self.law.allowed(place) {
                holding.limits.limit(place, rate.as_bps() / 8);
            }
        }
        for (&process, &place) in &place_of {
            holding.limits.assign(process, place);
        }
        drop(tenants);
        let named = by_tenant(&processes, |process| {
            place_of.get(&process.id).map(usize::to_string)
        });
        let place = |name: &String| name.parse::<usize>().ok();
        holding.groups = named
            .iter()
            .filter_map(|(name, group)| Some((place(name)?, group.clone())))
            .collect();
        self.flows(&inventory, &place_of, &mut holding);
        self.holding = holding;
        Ok(())
    }

    /// Returns the places that can send, by device, and the flows that can be slowed.
    fn flows(&self, inventory: &Inventory, place_of: &BTreeMap<u32, usize>, holding: &mut Holding) {
        let ports: BTreeMap<(String, u32), LocalPort> = holding
            .ports
            .iter()
            .filter(|(device, _)| self.senders.contains_key(device))
            .filter_map(|key| Some((key.clone(), LocalPort::read(&self.root, &key.0, key.1)?)))
            .collect();
        for pair in &inventory.queue_pairs {
            let Some(&place) = pair.holder.process().and_then(|id| place_of.get(&id)) else {
                continue;
            };
            if status::can_send(pair) {
                let senders = holding.senders.entry(pair.device.clone()).or_default();
                senders.insert(place);
            }
            let identifiers = inventory.connection_identifiers.iter();
            let peer = identifiers
                .filter(|entry| entry.device == pair.device)
                .find(|entry| entry.queue_pair == Some(pair.number))
                .and_then(|entry| Some(entry.destination?.ip()));
            let key = (pair.device.clone(), pair.port.unwrap_or(1));
            let target = ports
                .get(&key)
                .and_then(|port| Target::of(pair, *port, peer));
            if let Some(target) = target {
                let targets = holding.targets.entry(place).or_default();
                targets.push((pair.device.clone(), target));
            }
        }
    }

    /// Returns the traffic since the last step.
    fn count(&mut self, now_ns: u64) -> Seen {
        let mut seen = Seen::default();
        for (device, port) in &self.holding.ports {
            let snapshot = counters::read(&self.root, device, *port, &Extra::default(), now_ns);
            let key = format!("{device}/{port}");
            let before = self.snapshots.insert(key, snapshot.clone());
            let window = before.and_then(|before| counters::Window::between(&before, &snapshot));
            let Some(window) = window else { continue };
            let rise = |counters: &[Counter]| {
                let known = counters
                    .iter()
                    .find_map(|counter| window.rises.get(counter));
                known.copied().unwrap_or(0)
            };
            let traffic = Traffic {
                sent_bytes: rise(&[Counter::TxBytes, Counter::NetdevTxBytes]),
                received_bytes: rise(&[Counter::RxBytes, Counter::NetdevRxBytes]),
                sent_packets: rise(&[Counter::TxPackets]),
                received_packets: rise(&[Counter::RxPackets]),
            };
            let holders = self
                .holding
                .senders
                .get(device)
                .cloned()
                .unwrap_or_default();
            let entry = seen.devices.entry(device.clone());
            let entry = entry.or_insert_with(|| (Traffic::default(), holders));
            entry.0.add(&traffic);
        }
        seen
    }

    /// Sends notifications to the senders of a tenant's data on this host.
    fn notify(&mut self, now_ns: u64, batch: &Batch) {
        if self.mode == Mode::Shadow {
            return;
        }
        let targets = self.holding.targets.get(&batch.tenant);
        for (device, target) in targets.into_iter().flatten() {
            if let Some(sender) = self.senders.get_mut(device)
                && let Err(error) = sender.send(now_ns, target, batch.notifications)
            {
                say_error(&format!(
                    "isolane: a notification for {device} was not sent: {error}"
                ));
                return;
            }
        }
    }

    /// Holdings, usage, verdicts and actions. Rates are over the time since the last status.
    pub fn status(&mut self) -> Status {
        let (now, calls) = (Instant::now(), self.supervisor.calls());
        let (since, before) = self
            .earlier
            .replace((now, calls.clone()))
            .unwrap_or((self.begun, Vec::new()));
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        status::Reading {
            mode: self.mode,
            on_death: self.on_death,
            guarded: self.guarded.load(Ordering::Relaxed),
            elapsed: now - self.begun,
            window: now - since,
            tenants: &tenants,
            holding: &self.holding,
            law: &self.law,
            calls: &calls,
            before: &before,
            caps: &self.caps,
            notifications: self.senders.values().map(|sender| sender.counts().0).sum(),
            pacing: self.pacing.as_ref(),
        }
        .status()
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        // Read the calls before the connection: the guardian answers from then on.
        self.supervisor.stop();
        let _ = rustix::net::shutdown(&*self.link, rustix::net::Shutdown::Both);
        if let Some(thread) = self.arrivals.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the kernel's inventory and its devices.
fn devices(
    device: Option<&str>,
    needed: bool,
) -> Result<Option<(Connection, Vec<String>)>, EnforceError> {
    let listed = || -> Result<(Connection, Vec<String>), EnforceError> {
        let mut connection = Connection::open()?;
        let names = match device {
            Some(name) => vec![connection.device(name)?.name],
            None => connection
                .devices()?
                .into_iter()
                .map(|device| device.name)
                .collect(),
        };
        Ok((connection, names))
    };
    match listed() {
        Ok((_, names)) if names.is_empty() && needed => Err(EnforceError::NoDevice),
        Ok(found) => Ok(Some(found)),
        Err(error) if needed || device.is_some() => Err(error),
        Err(_) => Ok(None),
    }
}
