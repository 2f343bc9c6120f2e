//! Hosts whose network is elsewhere: what drives them, and where frames leave.

use super::{Ask, Border, Frame};
use crate::rnic::event::Event;
use crate::rnic::policies::SimError;
use crate::rnic::world::World;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_scenario::model::{Scenario, Topology};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use std::collections::VecDeque;

/// A world whose network is elsewhere.
pub struct Leaf {
    world: World,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf")
            .field("now", &self.world.queue.now())
            .finish_non_exhaustive()
    }
}

impl Leaf {
    /// The hosts of `scenario` on the device `profile` describes, `way` apart without traffic. Fails as
    /// [`crate::rnic::run`] does.
    pub fn new(scenario: &Scenario, profile: &Profile, way: Duration) -> Result<Self, SimError> {
        let mut world = <World>::build(scenario, profile)?;
        // Frames that come back are past every switch.
        world.topology = Topology::BackToBack;
        world.border = Some(Box::new(Border {
            way: way.as_ps(),
            events: Vec::new(),
            free: Vec::new(),
            leaving: VecDeque::new(),
            asks: VecDeque::new(),
        }));
        Ok(Self { world })
    }

    /// When the next event of the hosts is due.
    pub fn next_time(&self) -> Option<Instant> {
        self.world.queue.peek_time()
    }

    /// Takes one event; false at the end of the run.
    pub fn step(&mut self) -> bool {
        self.world.step()
    }

    /// The next frame that has left a host.
    pub fn leaving(&mut self) -> Option<Frame> {
        self.border().leaving.pop_front()
    }

    /// The next pause or release that a host requested.
    pub fn asks(&mut self) -> Option<Ask> {
        self.border().asks.pop_front()
    }

    /// The frame `id` has wholly reached its host at `at`. Panics if `at` is before the hosts' time, or no such frame
    /// is under way: our own mistakes.
    pub fn arrive(&mut self, at: Instant, id: u32, marked: bool) {
        let border = self.border();
        let mut event = border.events[id as usize];
        border.free.push(id);
        if let Event::Packet { pair, packet } = &mut event
            && marked
        {
            packet.marked = true;
            let host = self.world.receiver(*pair, packet.kind);
            self.world.nics[host].count.marks += 1;
        }
        self.world.queue.schedule(at, event);
    }

    /// The network's switch stops the port of `host` at `at`, or lets it go on.
    pub fn pause(&mut self, at: Instant, host: u8, stop: bool) {
        let event = Event::Pause {
            host,
            classes: u16::MAX,
            stop,
        };
        self.world.queue.schedule(at, event);
    }

    /// Frames that have left and not arrived.
    pub fn under_way(&self) -> usize {
        let border = self.world.border.as_ref().expect("a leaf has a border");
        border.events.len() - border.free.len()
    }

    /// The result of the finished run.
    pub fn result(&self, scenario: &Scenario, profile: &Profile) -> RunResult {
        self.world.result(scenario, profile)
    }

    fn border(&mut self) -> &mut Border {
        self.world.border.as_mut().expect("a leaf has a border")
    }
}

impl<const RECORDS: bool> World<RECORDS> {
    /// `event` is what a frame of `bytes` does when it arrives at `arrives` on an empty network: schedules it, or hands
    /// the frame out.
    #[inline(always)]
    pub(crate) fn send_frame(
        &mut self,
        ends: (usize, usize),
        bytes: u64,
        arrives: u64,
        event: Event,
    ) {
        if self.border.is_none() || ends.0 == ends.1 {
            self.schedule(arrives, event);
        } else {
            self.hand_out(ends, bytes, arrives, event);
        }
    }

    /// A frame goes to the network behind the border.
    #[inline(never)]
    fn hand_out(&mut self, (from, to): (usize, usize), bytes: u64, arrives: u64, event: Event) {
        let marks = self.device.congestion && matches!(event, Event::Packet { .. });
        let border = self.border.as_mut().expect("frames leave over a border");
        let id = border.free.pop().unwrap_or_else(|| {
            border.events.push(event);
            border.events.len() as u32 - 1
        });
        border.events[id as usize] = event;
        border.leaving.push_back(Frame {
            id,
            from: from as u8,
            to: to as u8,
            bytes: bytes as u32,
            leaves: Instant::from_ps(arrives - border.way),
            marks,
        });
    }

    /// One-way time through the network behind the border, if there is one, ps.
    #[inline]
    pub(crate) fn border_way(&self) -> Option<u64> {
        self.border.as_ref().map(|border| border.way)
    }

    /// Sends the request to the network's port towards `host`; false without a border.
    pub(crate) fn ask_network(&mut self, now: u64, host: usize, stop: bool) -> bool {
        let Some(border) = &mut self.border else {
            return false;
        };
        border.asks.push_back(Ask {
            host: host as u8,
            stop,
            at: Instant::from_ps(now),
        });
        true
    }
}
