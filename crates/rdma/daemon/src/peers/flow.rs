//! The thread of one device: it sends and times reference messages, and exchanges reports with peers.
//!
//! Problem: reference latencies need precise timing, and a loop that serves thousands of processes cannot wait for a
//! completion. Method: a separate thread. After a post it polls for at most `spin`, because waking up takes longer than
//! a fast device; then it sleeps until the completion event. Results go to the event loop through a channel and an
//! event counter. Several messages may be in flight: if the network stops for 30 ms, 30 messages are late and not one,
//! as with the tenants' messages. Units: CLOCK_MONOTONIC, from just before the post to just after the completion was
//! seen. Limits: the latency of a message that took longer than `spin` includes the time to wake this thread.

use super::exchange::{Exchange, Said, Way};
use super::oracle::Oracle;
use super::port::{Link, Port, REFERENCES_MAX, Work, work_of};
use super::report::decode;
use crate::order::{Grant, PeerId, Reads};
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region::Service;
use isolane_rdma_verbs_sys::safe::VerbsError;
use isolane_rdma_verbs_sys::{IBV_WC_SUCCESS, ibv_wc};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// An order to a flow.
#[derive(Debug)]
pub(super) enum Command {
    /// Send one reference message.
    Reference,
    /// Send reference messages in this class.
    Serve(Service),
    /// Send this host's state to the peers.
    Tell(RemoteState),
    /// Send these weights of READs, each to the peer that is read.
    TellReads(Reads),
    /// Add a connected link.
    Add(Box<Link>),
    /// Remove the link with that number, which has ended.
    Remove(u64),
    /// Measure the idle latency once a link exists.
    Measure,
}

/// A message of a flow to the event loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// Latency of a reference message.
    Latency(Duration),
    /// Sum of the peers' states, and what each grants.
    Heard(RemoteState, Vec<Grant>),
    /// 99th percentile of the idle device.
    Idle(Duration),
    /// A line for people.
    Note(String),
}

/// An event counter that wakes a sleeping thread.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> std::io::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(Self(eventfd(0, flags)?)))
    }

    /// Wakes the sleeper. A full counter wakes too.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the counter; an unset counter is not an error.
    pub(super) fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The other threads' handle of a flow.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    commands: Sender<Command>,
    bell: Arc<Bell>,
    pub(super) port: Arc<Port>,
}

impl Handle {
    /// Sends an order. A flow that has ended ignores it.
    pub(super) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}

/// Starts the thread of a device. It ends when all handles are dropped or the device fails. Fails if no thread or event
/// counter can be made.
pub(super) fn start(
    port: Arc<Port>,
    device: usize,
    spin: Duration,
    events: Sender<(usize, Event)>,
    loop_bell: Arc<Bell>,
) -> std::io::Result<Handle> {
    let (sender, commands) = channel();
    let bell = Bell::new()?;
    let flow = Flow {
        port: Arc::clone(&port),
        device,
        spin,
        commands,
        bell: Arc::clone(&bell),
        events,
        loop_bell,
        links: Exchange::default(),
        turn: 0,
        oracle: None,
        armed: false,
        spin_until: Instant::now(),
    };
    std::thread::Builder::new()
        .name(format!("reference-{device}"))
        .spawn(move || flow.run())?;
    Ok(Handle {
        commands: sender,
        bell,
        port,
    })
}

struct Connected {
    link: Box<Link>,
    /// Post time of each reference message in flight.
    posted: VecDeque<Instant>,
}

impl Way for Connected {
    fn peer(&self) -> Option<(PeerId, Vec<PortAddress>)> {
        let theirs = self.link.theirs.as_ref()?;
        Some((theirs.peer(), theirs.addresses.clone()))
    }

    fn carries_reports(&self) -> bool {
        self.link.reports
    }

    fn send(&mut self, report: &RemoteState) -> Result<(), String> {
        let sent = self.link.send_report(report);
        sent.map_err(|error| error.to_string())
    }
}

struct Flow {
    port: Arc<Port>,
    device: usize,
    spin: Duration,
    commands: Receiver<Command>,
    bell: Arc<Bell>,
    events: Sender<(usize, Event)>,
    loop_bell: Arc<Bell>,
    links: Exchange<Connected>,
    /// Number of the link of the last reference message.
    turn: u64,
    oracle: Option<Oracle>,
    /// Whether the completion queue will signal.
    armed: bool,
    spin_until: Instant,
}

impl Flow {
    fn run(mut self) {
        if let Err(error) = self.work() {
            let text = format!(
                "{}: its reference flow has ended: {error}",
                self.port.name()
            );
            self.links.retain(|_| false);
            self.pass_on();
            self.say(Event::Note(text));
        }
    }

    /// Runs until the handles are dropped.
    fn work(&mut self) -> Result<(), VerbsError> {
        loop {
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            let has_come = self.completions()?;
            let now = Instant::now();
            if !has_come {
                self.measure(now);
            }
            self.pass_on();
            if has_come {
                continue;
            }
            let under_way = self
                .links
                .ways()
                .any(|(_, connected)| !connected.posted.is_empty());
            if under_way && now < self.spin_until {
                std::hint::spin_loop();
                continue;
            }
            if !self.armed {
                self.port.queue.request_event()?;
                self.armed = true;
                // A completion may have arrived before the queue was armed.
                continue;
            }
            self.sleep(now)?;
        }
    }

    fn sleep(&mut self, now: Instant) -> Result<(), VerbsError> {
        let due = self
            .oracle
            .as_ref()
            .map(Oracle::due)
            .filter(|_| self.has_way());
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(now);
            Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let channel = Arc::clone(&self.port.channel);
        let mut wanted = [
            PollFd::new(&*self.bell, PollFlags::IN),
            PollFd::new(&*channel, PollFlags::IN),
        ];
        // An interrupted sleep only ends early.
        let _ = poll(&mut wanted, timeout.as_ref());
        let [rung, completed] = wanted.map(|wanted| !wanted.revents().is_empty());
        if rung {
            self.bell.hush();
        }
        if completed && channel.wait(Duration::ZERO)? {
            self.armed = false;
        }
        Ok(())
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Reference => self.reference(Instant::now()),
            Command::Serve(service) => self.serve(service),
            Command::Tell(state) => self.links.tell(state),
            Command::TellReads(reads) => self.links.tell_reads(reads),
            Command::Add(link) => {
                let number = link.number;
                let posted = VecDeque::new();
                self.links.add(number, Connected { link, posted });
            }
            Command::Remove(number) => self.links.remove(number),
            Command::Measure => self.oracle = Some(Oracle::new(Instant::now())),
        }
    }

    /// Ends the links that carry reference messages in another class; their keepers connect them again.
    fn serve(&mut self, service: Service) {
        if self.port.set_service(service) == service {
            return;
        }
        self.say(Event::Note(format!(
            "{}: reference messages take service level {} and traffic class {}, as the latency flows do",
            self.port.name(),
            service.level,
            service.traffic_class
        )));
        self.links
            .retain(|connected| !connected.link.carries_reference);
    }

    /// Sends a reference message to the next peer in turn, if a link has room.
    fn reference(&mut self, now: Instant) {
        let free = |connected: &Connected| {
            connected.link.carries_reference && connected.posted.len() < REFERENCES_MAX
        };
        let ways = || self.links.ways().filter(|(_, connected)| free(connected));
        let next = ways().find(|(number, _)| *number > self.turn);
        let Some((number, _)) = next.or_else(|| ways().next()) else {
            return;
        };
        self.turn = number;
        let connected = self.links.way(number).expect("just found");
        match connected.link.send_reference() {
            Ok(()) => {
                connected.posted.push_back(now);
                self.spin_until = now + self.spin;
            }
            Err(error) => self.links.lose(number, error.to_string()),
        }
    }

    fn measure(&mut self, now: Instant) {
        if self.has_way()
            && self
                .oracle
                .as_mut()
                .is_some_and(|oracle| oracle.wants_message(now))
        {
            self.reference(now);
        }
    }

    /// Whether a peer for reference messages exists.
    fn has_way(&self) -> bool {
        self.links
            .ways()
            .any(|(_, connected)| connected.link.carries_reference)
    }

    /// Handles completions. Returns whether there were any.
    fn completions(&mut self) -> Result<bool, VerbsError> {
        let mut batch = [ibv_wc::default(); 16];
        let count = self.port.queue.poll(&mut batch)?;
        let now = Instant::now();
        for completion in &batch[..count] {
            let (number, work) = work_of(completion.wr_id);
            let Some(connected) = self.links.way(number) else {
                continue;
            };
            if completion.status != IBV_WC_SUCCESS {
                let reason = format!("a message failed with status {}", completion.status);
                self.links.lose(number, reason);
                continue;
            }
            match work {
                Work::Reference => {
                    let posted = connected.posted.pop_front();
                    let took = posted.map(|posted| now.saturating_duration_since(posted));
                    if let Some(took) = took {
                        self.took(now, took);
                    }
                }
                Work::Sent => self.links.arrived(number),
                Work::Came(buffer) => {
                    let bytes = self.port.report(buffer, completion.byte_len as usize);
                    match (decode(&bytes), connected.link.receive(buffer)) {
                        (Ok(state), Ok(())) => self.links.came(number, state),
                        (Err(error), _) => self.links.lose(number, error.to_string()),
                        (_, Err(error)) => self.links.lose(number, error.to_string()),
                    }
                }
            }
        }
        Ok(count > 0)
    }

    fn took(&mut self, now: Instant, took: Duration) {
        self.say(Event::Latency(took));
        let idle = self
            .oracle
            .as_mut()
            .and_then(|oracle| oracle.took(now, took));
        if let Some(idle) = idle {
            self.oracle = None;
            self.say(Event::Idle(idle));
        }
    }

    /// Passes on what has changed. A lost link ends here.
    fn pass_on(&mut self) {
        while let Some(said) = self.links.said() {
            self.say(match said {
                Said::Heard(total, grants) => Event::Heard(total, grants),
                Said::Lost(lost, reason) => {
                    let theirs = lost.link.theirs.as_ref();
                    let peer = theirs.map_or("?", |theirs| theirs.device.as_str());
                    Event::Note(format!(
                        "{}: lost its peer {peer}: {reason}",
                        self.port.name()
                    ))
                }
            });
        }
    }

    fn say(&self, event: Event) {
        let _ = self.events.send((self.device, event));
        self.loop_bell.ring();
    }
}
