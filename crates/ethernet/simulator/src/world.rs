//! The state of a run, and the event loop.

use crate::card::WeightWrite;
use crate::host::Host;
use crate::measure::Measure;
use crate::network::Network;
use crate::ping::Pings;
use crate::segment::{Acks, Segments};
use crate::settings::Settings;
use crate::tcp::flow::Flow;
use isolane_common_events::EventQueue;
use isolane_common_quantities::units::{Duration, Instant};

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A card writes back the descriptors of a vector.
    WriteBack { host: u16, vector: u16 },
    /// A card has fetched a packet, and more wait.
    Fetched { host: u16 },
    /// A card has sent a packet.
    Wire { host: u16 },
    /// A vector's interrupt.
    Interrupt { host: u16, vector: u16 },
    /// A processor is free.
    Processor { host: u16, processor: u16 },
    /// A packet has left the trunk's port of this switch.
    Trunk { from: u16 },
    /// Weights written to a card are in force.
    Weights { host: u16 },
    /// A weight's write selects its queue on a card.
    Select { host: u16, write: WeightWrite },
    /// The weight of the queue that is selected on a card.
    Weight { host: u16, weight: u16 },
    /// A paced flow's time has come.
    Paced { host: u16, queue: u16 },
    /// A flow begins.
    Begin { flow: u32 },
    /// A retransmission timer may be due.
    Timer { flow: u32 },
    /// A delayed acknowledgement may be due.
    AckTimer { flow: u32 },
    /// The next ping.
    Ping,
}

/// A run's state.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) events: EventQueue<Event>,
    pub(crate) now: Instant,
    /// What the running job has cost so far.
    pub(crate) spent: Duration,
    pub(crate) hosts: Vec<Host>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) segments: Segments,
    pub(crate) acks: Acks,
    pub(crate) network: Network,
    pub(crate) pings: Pings,
    pub(crate) measure: Measure,
    /// Reused for what queues drop.
    pub(crate) drops: Vec<u32>,
}

impl World {
    #[inline]
    pub(crate) fn handle(&mut self, now: Instant, event: Event) {
        self.now = now;
        match event {
            Event::WriteBack { host, vector } => self.flush(host, vector),
            Event::Fetched { host } => self.fetched(host),
            Event::Wire { host } => self.wire(host),
            Event::Interrupt { host, vector } => self.interrupt(host, vector),
            Event::Processor { host, processor } => self.next_job(host, processor),
            Event::Trunk { from } => self.trunk(from),
            Event::Weights { host } => self.weights_in_force(host),
            Event::Select { host, write } => self.select(host, write),
            Event::Weight { host, weight } => {
                self.hosts[usize::from(host)].card.set_selected(weight);
            }
            Event::Paced { host, queue } => self.paced(host, queue),
            Event::Begin { flow } => self.begin(flow),
            Event::Timer { flow } => self.timer(flow),
            Event::AckTimer { flow } => self.ack_timer(flow),
            Event::Ping => self.ping_due(),
        }
    }
}
