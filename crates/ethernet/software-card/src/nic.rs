//! The software NIC as a thread: two lanes, a wire each, and a handle that controls it from outside.
//!
//! Problem: one thread is driver, card, wire and receiver, on a machine that also runs sender and receiver. Method: a
//! loop reads the waiting frames, sends as much as the wire had room for, delivers the packets of a due interrupt, and
//! then sleeps until the next interrupt (busy) or until a frame arrives (idle). It never spins. Acknowledgements return
//! on the queue on which the kernel sends their flow: without a steering program TUN sends a flow to the queue of its
//! answers, which keeps the kernel's own choice, a hash. Units: the types say them. Limits: the wire's time is exact,
//! delivery is as late as the machine is busy.

use crate::card::{Discipline, QueueCount};
use crate::error::SoftNicError;
use crate::lane::{Lane, LaneCount, LaneOptions, Passed, Port};
use crate::record::{Seen, WireRecord};
use crate::tun::Tun;
use isolane_common_linux::command::run_words;
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use isolane_ethernet_policy::titan::weights::{QueueWeights, WeightOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

/// How long an idle software NIC sleeps at most before it reads commands.
const IDLE_SLEEP_NS: i64 = 5_000_000;
/// Of the card's thread, as `nice` counts.
const PRIORITY: i32 = -15;
/// Before everything that has none; the least there is.
const REAL_TIME_PRIORITY: &str = "1";
/// Least time between two looks at the queues' loads.
const WEIGHT_INTERVAL: Duration = Duration::from_ms(1);

/// How the card works.
#[derive(Clone, Copy, Debug)]
pub struct NicOptions {
    /// Line rate, in both directions.
    pub rate: BitRate,
    /// How queues are served.
    pub discipline: Discipline,
    /// Least time between two deliveries.
    pub interrupt: Duration,
    /// Deliver packet by packet with complete checksums.
    pub complete_checksums: bool,
    /// The processor that the thread is bound to.
    pub processor: Option<usize>,
}

/// Returns the flow weight on each queue, for the NIC's weights; called once a millisecond.
pub type Loads = Box<dyn FnMut() -> Vec<u64> + Send>;

/// A running card; stopped when dropped.
#[derive(Debug)]
pub struct Nic {
    commands: Sender<Command>,
    thread: Option<JoinHandle<Result<(), SoftNicError>>>,
}

/// What was counted until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicCounts {
    /// Of each transmit queue.
    pub queues: Vec<QueueCount>,
    /// Its weights.
    pub weights: Vec<u32>,
    /// Writes of weights.
    pub weight_writes: u64,
    /// From sender to receiver.
    pub forward: LaneCount,
    /// Back.
    pub back: LaneCount,
}

enum Command {
    Count(Sender<NicCounts>),
    Weights(Vec<u32>),
    Record,
    Recorded(Sender<Option<(WireRecord, Duration)>>),
    Stop,
}

impl Nic {
    /// Starts a card between two devices. Fails if the thread cannot be started.
    pub fn start(
        sender: Tun,
        receiver: Tun,
        options: NicOptions,
        loads: Option<Loads>,
    ) -> Result<Self, SoftNicError> {
        Self::start_from(sender, receiver, options, loads)
    }

    /// Starts a card between a sender of any kind and a device.
    pub(crate) fn start_from(
        sender: impl Port + Send + 'static,
        receiver: Tun,
        options: NicOptions,
        loads: Option<Loads>,
    ) -> Result<Self, SoftNicError> {
        let (commands, inbox) = channel();
        let engine = Engine::new(sender, receiver, options, loads);
        let body = move || engine.run(&inbox);
        let thread = std::thread::Builder::new()
            .name("soft-nic".to_owned())
            .spawn(body)
            .map_err(|error| {
                SoftNicError::Machine(format!(
                    "starting the thread of the NIC in user space: {error}"
                ))
            })?;
        Ok(Self {
            commands,
            thread: Some(thread),
        })
    }

    /// What was counted until now. Fails if the card has stopped, with its reason.
    pub fn counts(&mut self) -> Result<NicCounts, SoftNicError> {
        let (answer, inbox) = channel();
        self.tell(Command::Count(answer))?;
        inbox.recv().map_err(|_| self.reason())
    }

    /// Sets the weights of the queues. Fails if the card has stopped, with its reason.
    pub fn set_weights(&mut self, weights: Vec<u32>) -> Result<(), SoftNicError> {
        self.tell(Command::Weights(weights))
    }

    /// Begins to record what passes the wire. Fails if the card has stopped, with its reason.
    pub fn record(&mut self) -> Result<(), SoftNicError> {
        self.tell(Command::Record)
    }

    /// Ends the recording; returns it with its length. Fails if the card has stopped, with its reason.
    pub fn recorded(&mut self) -> Result<Option<(WireRecord, Duration)>, SoftNicError> {
        let (answer, inbox) = channel();
        self.tell(Command::Recorded(answer))?;
        inbox.recv().map_err(|_| self.reason())
    }

    fn tell(&mut self, command: Command) -> Result<(), SoftNicError> {
        self.commands.send(command).map_err(|_| self.reason())
    }

    fn reason(&mut self) -> SoftNicError {
        let thread = self.thread.take();
        match thread.map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            _ => SoftNicError::Machine("the thread of the NIC in user space has ended".to_owned()),
        }
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Engine<S> {
    sender: S,
    receiver: Tun,
    forward: Lane,
    back: Lane,
    record: Option<(WireRecord, Instant)>,
    loads: Option<Loads>,
    weights: QueueWeights,
    looked_at: Instant,
    options: NicOptions,
    epoch: std::time::Instant,
}

impl<S: Port> Engine<S> {
    fn new(sender: S, receiver: Tun, options: NicOptions, loads: Option<Loads>) -> Self {
        let lane = |queues, discipline| {
            let options = LaneOptions {
                rate: options.rate,
                discipline,
                interrupt: options.interrupt,
                complete_checksums: options.complete_checksums,
            };
            Lane::new(queues, options)
        };
        let queues = sender.queues();
        Self {
            forward: lane(queues, options.discipline),
            back: lane(receiver.queues(), Discipline::RoundRobin),
            sender,
            receiver,
            record: None,
            loads,
            weights: QueueWeights::new(queues as u16, WeightOptions::default()),
            looked_at: Instant::ZERO,
            options,
            epoch: std::time::Instant::now(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.epoch.elapsed().as_nanos() as u64 * 1_000)
    }

    fn run(mut self, inbox: &Receiver<Command>) -> Result<(), SoftNicError> {
        self.settle_on_processor()?;
        loop {
            let now = self.now();
            if self.obey(inbox, now) {
                return Ok(());
            }
            self.step(now)?;
            self.steer(now);
            self.sleep();
        }
    }

    fn settle_on_processor(&self) -> Result<(), SoftNicError> {
        let nanosecond = std::num::NonZeroU64::MIN;
        // Sleeps of a few tens of microseconds would otherwise be rounded up by as much again; harmless if refused.
        let _ = rustix::thread::set_current_timer_slack(Some(nanosecond));
        // A card does not wait for a processor: the thread goes before others, by real-time priority, since `nice` counts
        // within a session only where the kernel divides processors among sessions. It sleeps most of the time; harmless
        // if refused.
        let thread = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(thread), PRIORITY);
        let number = thread.as_raw_nonzero().to_string();
        let _ = run_words("chrt", &["--rr", "--pid", REAL_TIME_PRIORITY, &number]);
        self.options.processor.map_or(Ok(()), bind)
    }

    fn step(&mut self, now: Instant) -> Result<(), SoftNicError> {
        let record = &mut self.record;
        self.forward.step(&self.sender, now, &mut |passed| {
            if let Some((record, _)) = record {
                see(record, passed);
            }
        })?;
        self.back.step(&self.receiver, now, &mut |_| {})?;
        if self.forward.is_due(now) {
            self.forward.interrupt(&self.receiver, now, |_| 0);
        }
        if self.back.is_due(now) {
            let forward = &self.forward;
            let queue_for =
                |key: &crate::frame::FlowKey| forward.queue_of(&key.reversed()).unwrap_or(0);
            self.back.interrupt(&self.sender, now, queue_for);
        }
        Ok(())
    }

    /// Passes the weights of the queues to the scheduler.
    fn steer(&mut self, now: Instant) {
        let Some(loads) = &mut self.loads else {
            return;
        };
        if now.saturating_since(self.looked_at) < WEIGHT_INTERVAL {
            return;
        }
        self.looked_at = now;
        let loads = loads();
        if self.options.discipline == Discipline::RoundRobin {
            return;
        }
        if let Some(weights) = self.weights.poll(now, &loads) {
            self.forward.card().set_weights(weights);
        }
    }

    fn sleep(&self) {
        if self.forward.is_busy() || self.back.is_busy() {
            let ns = self.options.interrupt.as_ps() / 1_000;
            std::thread::sleep(std::time::Duration::from_nanos(ns));
            return;
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: IDLE_SLEEP_NS,
        };
        let files = self.sender.files().into_iter().chain(self.receiver.files());
        let mut waits: Vec<PollFd<'_>> = files
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        // A signal or a refusal ends the sleep early, which is harmless.
        let _ = poll(&mut waits, Some(&timeout));
    }

    /// Executes a command; true to stop.
    fn obey(&mut self, inbox: &Receiver<Command>, now: Instant) -> bool {
        loop {
            match inbox.try_recv() {
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) | Ok(Command::Stop) => return true,
                Ok(Command::Count(answer)) => {
                    let _ = answer.send(self.counts());
                }
                Ok(Command::Weights(weights)) => self.forward.card().set_weights(&weights),
                Ok(Command::Record) => self.record = Some((WireRecord::new(now), now)),
                Ok(Command::Recorded(answer)) => {
                    let done = self.record.take();
                    let done = done.map(|(record, from)| (record, now.saturating_since(from)));
                    let _ = answer.send(done);
                }
            }
        }
    }

    fn counts(&mut self) -> NicCounts {
        NicCounts {
            forward: self.forward.count(),
            back: self.back.count(),
            weight_writes: self.weights.writes(),
            queues: self.forward.card().counts().collect(),
            weights: self.forward.card().weights().collect(),
        }
    }
}

/// Binds this thread to a processor.
fn bind(processor: usize) -> Result<(), SoftNicError> {
    let none = || {
        SoftNicError::Input(format!(
            "--processor {processor}: this process may use no processor of that number; `taskset -cp $$` lists those it may"
        ))
    };
    if processor >= CpuSet::MAX_CPU {
        return Err(none());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(|error| match error {
        rustix::io::Errno::INVAL => none(),
        _ => SoftNicError::Machine(format!(
            "binding the thread of the NIC in user space to processor {processor}: {error}"
        )),
    })
}

fn see(record: &mut WireRecord, passed: Passed) {
    let Some(flow) = passed.flow else {
        return;
    };
    let seen = Seen {
        at: passed.departure.at,
        bytes: passed.departure.bytes,
        queue: passed.departure.queue,
        data: passed.data,
    };
    record.see(flow, passed.key, seen);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_not_there_is_named() {
        for processor in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            let said = bind(processor).expect_err("there is none").to_string();
            assert!(said.contains(&format!("--processor {processor}")), "{said}");
        }
    }
}
