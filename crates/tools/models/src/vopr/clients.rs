//! Clients of the quota server, as the product's client behaves, with a clock of their own.

use super::{CLASSES, Defect, GROUP, Sent};
use isolane_common_quantities::rng::Stream;
use isolane_rpc::quota::client::valid_until;
use isolane_rpc::quota::protocol::{Answer, Request, Want};

/// How long a client waits for an answer.
pub(super) const PATIENCE_US: u64 = 2_000_000;
/// Pause after a failure.
const FIRST_US: u64 = 400_000;

/// A lease in a client's table.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    rate: u64,
    /// By the client's clock.
    until_ns: u64,
    holds: Option<u64>,
    /// The number of the last lease that the server gave, received or not.
    given: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) tenant: &'static str,
    number: usize,
    /// How often the process was replaced.
    life: u64,
    /// Speed of its clock, thousandths.
    speed: u64,
    offset_us: u64,
    seats: [Seat; 2],
    connection: u64,
    waits: bool,
}

/// What an answer means for the client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) has_leases: bool,
    pub(super) next_round_us: Option<u64>,
}

impl Client {
    pub(super) fn new(number: usize, tenant: &'static str, stream: &mut Stream) -> Self {
        Self {
            tenant,
            number,
            life: 0,
            speed: 910 + stream.below(181),
            offset_us: stream.below(1 << 40),
            seats: [Seat::default(); 2],
            connection: 0,
            waits: false,
        }
    }

    fn name(&self) -> String {
        format!("client-{}-{}", self.number, self.life)
    }

    fn clock_us(&self, now_us: u64) -> u64 {
        self.offset_us + now_us * self.speed / 1_000
    }

    /// The rate that it may use in a class at this moment.
    pub(super) fn usable(&self, class: usize, now_us: u64) -> u64 {
        let seat = self.seats[class];
        match self.clock_us(now_us) * 1_000 < seat.until_ns {
            true => seat.rate,
            false => 0,
        }
    }

    /// The process ends and releases its leases; another one with a new name takes its place.
    pub(super) fn replace(&mut self) -> Request {
        let release = Request::Release {
            tenant: self.tenant.to_owned(),
            client: self.name(),
        };
        self.life += 1;
        self.seats = [Seat::default(); 2];
        self.connection += 1;
        release
    }

    /// A renewal with a random demand; in calm times the demand is unlimited.
    pub(super) fn request(
        &mut self,
        is_calm: bool,
        defect: Defect,
        stream: &mut Stream,
    ) -> Request {
        self.waits = true;
        let wants = CLASSES.iter().zip(&self.seats).map(|(class, seat)| Want {
            group: GROUP.to_owned(),
            class: (*class).to_owned(),
            demand_bytes_per_s: match is_calm {
                true => u64::MAX / 4,
                false => stream.below(4) * stream.below(4_000_000_000),
            },
            holds: match defect {
                Defect::NamesAnother => seat.given,
                _ => seat.holds,
            },
        });
        Request::Renew {
            tenant: self.tenant.to_owned(),
            client: self.name(),
            wants: wants.collect(),
        }
    }

    /// The connection and the time of a request that leaves now.
    pub(super) fn sent(&self, now_us: u64) -> Sent {
        Sent {
            connection: self.connection,
            asked_us: self.clock_us(now_us),
        }
    }

    /// The server answered this; it may never arrive.
    pub(super) fn granted(&mut self, answer: &Answer) {
        if let Answer::Leases(leases) = answer {
            for (seat, lease) in self.seats.iter_mut().zip(leases) {
                seat.given = Some(lease.serial);
            }
        }
    }

    /// True if it still waited on that connection: it connects again.
    pub(super) fn gives_up(&mut self, connection: u64) -> bool {
        let waited = self.waits && self.connection == connection;
        if waited {
            self.connection += 1;
            self.waits = false;
        }
        waited
    }

    /// Takes an answer, if it comes on the connection that it waits for.
    pub(super) fn receive(
        &mut self,
        sent: Sent,
        answer: &Answer,
        now_us: u64,
        from_answer: bool,
    ) -> Received {
        if !self.waits || sent.connection != self.connection {
            return Received::default();
        }
        self.waits = false;
        // The next request is another exchange.
        self.connection += 1;
        let Answer::Leases(leases) = answer else {
            return Received {
                has_leases: false,
                next_round_us: Some(FIRST_US),
            };
        };
        let from_us = match from_answer {
            true => self.clock_us(now_us),
            false => sent.asked_us,
        };
        let mut term_ms = 600_000;
        for (seat, lease) in self.seats.iter_mut().zip(leases) {
            seat.rate = lease.rate_bytes_per_s;
            seat.until_ns = valid_until(from_us * 1_000, lease);
            seat.holds = Some(lease.serial);
            term_ms = term_ms.min(lease.term_ms);
        }
        Received {
            has_leases: true,
            next_round_us: Some(term_ms * 1_000 / 3),
        }
    }
}
