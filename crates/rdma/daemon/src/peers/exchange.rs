//! Reports between this device and its peers: what goes to whom and when, and what their reports sum up to.
//!
//! Method: a state machine without clock and device. A link is behind the trait [`Way`]; the flow of a device implements it with
//! queue pairs, and `crates/tools/models` with a simulated network under random faults. At most [`REPORTS_MAX`] reports are
//! in flight on a link; of the states that come meanwhile, the last one is sent. A peer with several links counts once.

use super::report::{for_peer, total};
use crate::order::{Grant, PeerId, Reads};
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use std::collections::{BTreeMap, VecDeque};

/// Reports in flight to one peer; a further report replaces the last waiting one.
pub const REPORTS_MAX: usize = 4;

/// A link to a peer.
pub trait Way {
    /// Who is at the other end, with the addresses of its port; `None` before it is connected.
    fn peer(&self) -> Option<(PeerId, Vec<PortAddress>)>;
    /// Whether it carries reports.
    fn carries_reports(&self) -> bool;
    /// Sends a report. The error ends the link.
    fn send(&mut self, report: &RemoteState) -> Result<(), String>;
}

/// A change for others.
#[derive(Debug)]
pub enum Said<W> {
    /// Sum of the peers' states, and what each grants.
    Heard(RemoteState, Vec<Grant>),
    /// This link has failed, for this reason.
    Lost(Box<W>, String),
}

struct Connected<W> {
    way: W,
    under_way: usize,
    /// The report that was sent last; none before the first.
    sent: Option<RemoteState>,
    heard: Option<RemoteState>,
}

/// The links of one daemon, and what their peers reported.
pub struct Exchange<W> {
    links: BTreeMap<u64, Connected<W>>,
    state: RemoteState,
    reads: Reads,
    /// The last report of each peer.
    heard: BTreeMap<PeerId, (Vec<PortAddress>, RemoteState)>,
    said: VecDeque<Said<W>>,
}

impl<W> Default for Exchange<W> {
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            state: RemoteState::default(),
            reads: Reads::default(),
            heard: BTreeMap::new(),
            said: VecDeque::new(),
        }
    }
}

impl<W: Way> Exchange<W> {
    /// Adds a connected link, which gets a report.
    pub fn add(&mut self, number: u64, way: W) {
        let connected = Connected {
            way,
            under_way: 0,
            sent: None,
            heard: None,
        };
        self.links.insert(number, connected);
        self.send();
    }

    /// Removes a link that has ended.
    pub fn remove(&mut self, number: u64) {
        if self.links.remove(&number).is_some() {
            self.hear();
        }
    }

    /// Ends a link that has failed.
    pub fn lose(&mut self, number: u64, reason: String) {
        if let Some(connected) = self.links.remove(&number) {
            self.said
                .push_back(Said::Lost(Box::new(connected.way), reason));
            self.hear();
        }
    }

    /// Ends the links that are not `wanted`.
    pub fn retain(&mut self, wanted: impl Fn(&W) -> bool) {
        self.links.retain(|_, connected| wanted(&connected.way));
        self.hear();
    }

    /// Sends this host's state to the peers.
    pub fn tell(&mut self, state: RemoteState) {
        self.state = state;
        self.send();
    }

    /// Sends these weights of READs, each to the peer that is read.
    pub fn tell_reads(&mut self, reads: Reads) {
        self.reads = reads;
        self.send();
    }

    /// A report over this link has arrived.
    pub fn arrived(&mut self, number: u64) {
        if let Some(connected) = self.links.get_mut(&number) {
            connected.under_way = connected.under_way.saturating_sub(1);
            self.send();
        }
    }

    /// A report has come over this link.
    pub fn came(&mut self, number: u64, report: RemoteState) {
        if let Some(connected) = self.links.get_mut(&number) {
            connected.heard = Some(report);
            self.hear();
        }
    }

    /// The link of this number, unless the link has ended.
    pub fn way(&mut self, number: u64) -> Option<&mut W> {
        self.links
            .get_mut(&number)
            .map(|connected| &mut connected.way)
    }

    /// All links by number.
    pub fn ways(&self) -> impl DoubleEndedIterator<Item = (u64, &W)> {
        self.links
            .iter()
            .map(|(number, connected)| (*number, &connected.way))
    }

    /// Takes out the oldest change that the caller has not seen.
    pub fn said(&mut self) -> Option<Said<W>> {
        self.said.pop_front()
    }

    fn send(&mut self) {
        let mut lost = Vec::new();
        let weight = |heard: Option<&(_, RemoteState)>| {
            heard.map_or(0, |(_, state)| state.reading_hungry_weight)
        };
        let each = self.heard.values().map(|heard| weight(Some(heard)));
        let all = each.fold(0, u64::saturating_add);
        for (number, connected) in &mut self.links {
            let Some((theirs, _)) = connected.way.peer() else {
                continue;
            };
            let reads = self.reads.by_peer.get(&theirs);
            let reads = *reads.unwrap_or(&self.reads.unknown);
            let report = for_peer(&self.state, reads, weight(self.heard.get(&theirs)), all);
            let is_news = connected.way.carries_reports() && connected.sent != Some(report);
            if !is_news || connected.under_way >= REPORTS_MAX {
                continue;
            }
            match connected.way.send(&report) {
                Ok(()) => {
                    connected.sent = Some(report);
                    connected.under_way += 1;
                }
                Err(error) => lost.push((*number, error)),
            }
        }
        for (number, reason) in lost {
            self.lose(number, reason);
        }
    }

    /// Says the sum of the peers' last states, and their grants, if they changed.
    fn hear(&mut self) {
        let last = |connected: &Connected<W>| {
            let (theirs, ports) = connected.way.peer()?;
            Some((theirs, (ports, connected.heard?)))
        };
        let heard: BTreeMap<_, _> = self.links.values().filter_map(last).collect();
        if heard == self.heard {
            return;
        }
        let grants = heard.iter().map(|(peer, (ports, state))| Grant {
            peer: peer.clone(),
            ports: ports.clone(),
            rate: state.read_rate,
        });
        let total = total(heard.values().map(|(_, state)| state));
        self.said.push_back(Said::Heard(total, grants.collect()));
        self.heard = heard;
        // What each peer is granted depends on the weights of all.
        self.send();
    }
}
