//! Aequitas 2 with grants: a caller sends a request before each call, and the called host grants the class by the calls that it has in flight.
//!
//! Problem: callers that decide alone admit calls that arrive together, and a call misses behind three others at the port. Evidence that
//! comes with responses is older than an objective.
//! Method: a request reaches the called host after half of `ask_us`. The host grants the class if it has less than `grants` granted calls in
//! flight there, else the lowest class; the answer arrives after the other half, and the call begins. The request counts in the call's
//! latency. A call holds its grant until its sender has the last acknowledgement.
//! Limits: requests and answers use no bandwidth, and are not lost.

use super::groups::Peer;
use super::slab::Call;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::Duration;
use isolane_network_scenario::model::{FabricPolicyKind, FabricScenario};

/// Timers of a request, beside those of generators.
pub(super) const REQUESTED: u8 = 1;
pub(super) const ANSWERED: u8 = 2;

/// Calls that have no answer yet, and grants of each called host.
#[derive(Debug)]
pub(super) struct Grants {
    /// Granted calls of one class that a host may have in flight.
    most: u32,
    /// Half of a round trip.
    half: Duration,
    /// The lowest class, which needs no grant.
    lowest: u8,
    /// By called host, then class.
    granted: Vec<u32>,
    waiting: Vec<(Call, Peer)>,
    free: Vec<u32>,
}

impl Grants {
    /// The grants of `scenario`'s policy on a network of `hosts`; none if it has none. Fails for parameters that do not
    /// act together.
    pub(super) fn new(
        scenario: &FabricScenario,
        hosts: usize,
    ) -> Result<Option<Self>, OptionError> {
        let parameter = |name: &str| scenario.policy.parameters.get(name).copied();
        if scenario.policy.kind != FabricPolicyKind::Aequitas2 {
            return Ok(None);
        }
        let most = parameter("grants").unwrap_or(0.0);
        if most == 0.0 {
            return match parameter("ask_us") {
                Some(us) => Err(OptionError::new("ask_us", us, "drop it, or add grants = 2")),
                None => Ok(None),
            };
        }
        if most.fract() != 0.0 {
            return Err(OptionError::new("grants", most, "give a whole number"));
        }
        for name in LEARNING {
            if let Some(value) = parameter(name) {
                let remedy = "drop it: with grants no caller learns";
                return Err(OptionError::new(name, value, remedy));
            }
        }
        let lowest = scenario.classes.len() - 1;
        Ok(Some(Self {
            most: most as u32,
            half: Duration::from_secs_f64(parameter("ask_us").unwrap_or(ASK_US) / 2e6),
            lowest: lowest as u8,
            granted: vec![0; hosts * lowest],
            waiting: Vec::new(),
            free: Vec::new(),
        }))
    }

    /// Half of a round trip.
    pub(super) fn half(&self) -> Duration {
        self.half
    }

    /// Whether a call of this class needs a grant.
    pub(super) fn gates(&self, class: u8) -> bool {
        class < self.lowest
    }

    /// Keeps a call until its answer: the number of its request.
    pub(super) fn request(&mut self, call: Call, peer: Peer) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.waiting[index as usize] = (call, peer);
                index
            }
            None => {
                self.waiting.push((call, peer));
                self.waiting.len() as u32 - 1
            }
        }
    }

    /// A request has reached the called host.
    pub(super) fn decide(&mut self, index: u32) {
        let (call, peer) = &mut self.waiting[index as usize];
        let place = usize::from(peer.to.0) * usize::from(self.lowest) + usize::from(call.asked);
        call.ran = self.lowest;
        if self.granted[place] < self.most {
            self.granted[place] += 1;
            call.ran = call.asked;
        }
    }

    /// The answer is back: the call with the class in which it runs.
    pub(super) fn answer(&mut self, index: u32) -> (Call, Peer) {
        self.free.push(index);
        self.waiting[index as usize]
    }

    /// A call has ended.
    pub(super) fn end(&mut self, call: &Call) {
        if self.gates(call.ran) {
            let place = usize::from(call.to.0) * usize::from(self.lowest) + usize::from(call.ran);
            self.granted[place] -= 1;
        }
    }

    /// Whether no request is without an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.waiting.len()
    }
}

/// Default of `ask_us`.
const ASK_US: f64 = 1.0;

/// Parameters of callers that learn.
const LEARNING: [&str; 6] = [
    "cut",
    "floor",
    "idle_after_us",
    "shared",
    "exchange_us",
    "processes",
];
