//! The reference flow and other machines' daemons: what this host learns from the network.
//!
//! Problem: Justitia's rate follows the latency of small messages to the tenants' remote machines, and its guarantees
//! follow those machines' reports about their senders (justitia 4.3.2, 4.5). Method: one thread per device (`flow`)
//! sends and times reference messages and exchanges reports over reliable queue pairs. One thread per peer (`keeper`)
//! connects by a short authenticated exchange over TCP ([`handshake`]). The event loop sends orders and receives events
//! through [`Peers`] without waiting for a thread.
//!
//! * `port` - the device as the daemon itself uses it;
//! * [`exchange`] - which report goes to whom, and their sum;
//! * [`oracle`] - measures the idle latency, from which a target follows;
//! * [`report`] - the daemons' reports.
//!
//! Limits: one reference flow per device, to its peers in turn; the policy's window covers all of them.

pub mod exchange;
mod failures;
mod flow;
pub mod handshake;
mod keeper;
pub mod oracle;
mod port;
pub mod report;

use crate::attachment::Attachment;
use crate::config::PolicyName;
use crate::governor::Governor;
use crate::order::Order;
use crate::settings::{Place, Settings};
use flow::{Bell, Command, Event, Handle};
use isolane_common_linux::key;
use isolane_common_linux::key::{Key, KeyError};
use isolane_rdma_verbs_sys::{Library, Lookup};
use keeper::Notes;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub use port::LINKS_MAX;

/// Largest part of a reference period spent polling for the completion: 1/50.
const SPIN_PART: u32 = 50;
/// Longest polling: twice the latency of the fastest networks over a few switches.
const SPIN_MAX: Duration = Duration::from_micros(20);

/// The event loop's view of reference flows and peers.
#[derive(Debug)]
pub struct Peers {
    /// By the device's place in the configuration; `None` for a device without peers.
    flows: Vec<Option<Handle>>,
    events: Receiver<(usize, Event)>,
    bell: Arc<Bell>,
    /// Target as a multiple of the idle latency, per device.
    factors: Vec<u32>,
    targets: Targets,
    /// Prints a line for people.
    say: fn(&str),
}

/// Measured targets by device; shared with the reload.
pub type Targets =
    std::rc::Rc<std::cell::RefCell<Vec<Option<isolane_common_quantities::units::Duration>>>>;

/// Why reference flows cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PeersError {
    #[error(transparent)]
    Verbs(#[from] isolane_rdma_verbs_sys::safe::VerbsError),
    #[error(transparent)]
    Library(#[from] isolane_rdma_verbs_sys::LibraryError),
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A thread or a listening socket cannot be made.
    #[error("cannot {what}: {error}")]
    System { what: String, error: std::io::Error },
}

impl Peers {
    /// Opens the devices that have peers and starts connecting them. `say` prints one line for people. A peer that
    /// cannot be reached is not an error: the connection is retried.
    pub fn start(settings: &Settings, targets: Targets, say: fn(&str)) -> Result<Self, PeersError> {
        let devices = &settings.config.devices;
        let bell = Bell::new().map_err(system("make an event counter"))?;
        let (sender, events) = channel();
        let mut flows: Vec<Option<Handle>> = vec![None; devices.len()];
        let key = match &settings.peering {
            Some(peering) => Some((peering, Key::read(&peering.key_file)?)),
            None => None,
        };
        let listens = key
            .as_ref()
            .is_some_and(|(peering, _)| peering.listen.is_some());
        let used = |device: usize| {
            let named = |place: &Place| matches!(place, Place::Here(other) if *other == device);
            listens
                || settings
                    .peers
                    .iter()
                    .any(|peer| peer.device == device || named(&peer.place))
        };
        let mut daemon = [0; 16];
        key::random(&mut daemon).map_err(system("get random bytes"))?;
        if (0..devices.len()).any(used) {
            let library = Library::open(Lookup::Library)?;
            for (index, device) in devices.iter().enumerate().filter(|(index, _)| used(*index)) {
                let port =
                    port::Port::open(&library, &device.name, &settings.ports[index], daemon)?;
                let period = device.reference_period.unwrap_or(settings.config.period());
                let spin = SPIN_MAX.min(Duration::from_nanos(period.as_ps() / 1_000) / SPIN_PART);
                let handle = flow::start(port, index, spin, sender.clone(), Arc::clone(&bell));
                flows[index] = Some(handle.map_err(system("start a thread"))?);
            }
        }
        let notes = Notes {
            events: sender,
            bell: Arc::clone(&bell),
        };
        if let Some((peering, key)) = &key
            && let Some(address) = peering.listen
        {
            let listener = TcpListener::bind(address)
                .map_err(system(&format!("listen for peers at {address}")))?;
            let listens_at = listener
                .local_addr()
                .map_err(system("read the address of peers"))?;
            say(&format!("listens for peers at {listens_at}"));
            let all = flows.iter().enumerate();
            let handles = all
                .filter_map(|(index, handle)| Some((index, handle.clone()?)))
                .collect();
            keeper::answer_all(listener, handles, key.clone(), notes.clone())
                .map_err(system("start a thread"))?;
        }
        let key = key.map(|(_, key)| key);
        keep_all(settings, &flows, key.as_ref(), &notes).map_err(system("start a thread"))?;
        for (index, device) in devices.iter().enumerate() {
            let measured = targets.borrow().get(index).copied().flatten();
            let is_paced = device.policy != PolicyName::None;
            if let (Some(flow), None, None, true) =
                (&flows[index], device.target, measured, is_paced)
            {
                flow.tell(Command::Measure);
            }
        }
        targets.borrow_mut().resize(devices.len(), None);
        Ok(Self {
            flows,
            events,
            bell,
            factors: settings
                .ports
                .iter()
                .map(|port| port.target_factor)
                .collect(),
            targets,
            say,
        })
    }
}

fn system(what: &str) -> impl FnOnce(std::io::Error) -> PeersError {
    let what = what.to_owned();
    move |error| PeersError::System { what, error }
}

/// Starts a thread for each configured peer, which connects to it again and again.
fn keep_all(
    settings: &Settings,
    flows: &[Option<Handle>],
    key: Option<&Key>,
    notes: &Notes,
) -> std::io::Result<()> {
    let flow = |device: usize| flows[device].clone().expect("a peer's device has a flow");
    for peer in &settings.peers {
        let ours = (peer.device, flow(peer.device));
        match &peer.place {
            Place::Here(other) => keeper::keep_here(ours, flow(*other), notes.clone()),
            Place::There { address, device } => {
                let key = key.expect("the file was checked: an address needs a key");
                keeper::keep_there(ours, *address, device.clone(), key.clone(), notes.clone())
            }
        }?;
    }
    Ok(())
}

impl Attachment for Peers {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        self.bell.hush();
        while let Ok((device, event)) = self.events.try_recv() {
            match event {
                Event::Latency(took) => governor.reference_latency(now_ns, device, duration(took)),
                Event::Heard(state, grants) => {
                    governor.granted(device, grants);
                    governor.remote(now_ns, device, state);
                }
                Event::Idle(tail) => {
                    let target = duration(tail * self.factors[device]);
                    self.targets.borrow_mut()[device] = Some(target);
                    let name = &governor.config().devices[device].name;
                    (self.say)(&format!(
                        "{name}: the idle 99th percentile of the reference flow is {}, the target {target}",
                        duration(tail)
                    ));
                    if let Err(error) = governor.set_target(now_ns, device, target) {
                        (self.say)(&format!("the measured target cannot be used: {error}"));
                    }
                }
                Event::Note(text) => (self.say)(&text),
            }
        }
    }

    fn order(&mut self, _now_ns: u64, device: usize, order: &Order) {
        let Some(Some(flow)) = self.flows.get(device) else {
            return;
        };
        flow.tell(match order {
            Order::SendReference => Command::Reference,
            Order::Serve(service) => Command::Serve(*service),
            Order::Tell(state) => Command::Tell(*state),
            Order::TellReads(reads) => Command::TellReads(reads.clone()),
        });
    }
}

/// Converts to the policy's unit; at most 200 days, far beyond any timeout.
fn duration(duration: Duration) -> isolane_common_quantities::units::Duration {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    isolane_common_quantities::units::Duration::from_ps(ns.saturating_mul(1_000))
}

#[cfg(test)]
mod tests;
