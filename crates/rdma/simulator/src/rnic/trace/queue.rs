//! The schedule queue: what holds a transmitter, and whom a message that waits for it has in front of it.
//!
//! Each lane in which the victim waits has an account: every interval between two steps of the transmitter is
//! charged to what held it. A message's wait is the difference of two states of the account.

use super::attribution::{Piece, split};
use super::record::{Hold, Place, Timeline, Tracer};
use super::story::Phase;
use super::{Part, Resource, Stage};

impl Tracer {
    /// `host` has too much in its buffer and pauses `paused`, or the switch in front of it.
    pub(crate) fn pauses(&mut self, host: usize, paused: usize) {
        self.nics[paused].pauser = host;
    }

    /// Classes of the transmitter of `host` are paused, or may go on.
    pub(crate) fn paused(&mut self, host: usize, classes: u16, stop: bool) {
        self.settle(host);
        let paused = &mut self.nics[host].paused;
        *paused = if stop {
            *paused | classes
        } else {
            *paused & !classes
        };
    }

    /// The rate limiter of a lane stops it, or lets it go on.
    pub(crate) fn limits(&mut self, host: usize, lane: usize, stop: bool) {
        self.settle(host);
        let limited = &mut self.nics[host].limited;
        if stop {
            limited.insert(lane);
        } else {
            limited.remove(&lane);
        }
    }

    /// The transmitter's next step waits for `hold`.
    pub(crate) fn holds(&mut self, host: usize, hold: Hold) {
        self.settle(host);
        self.nics[host].hold = hold;
    }

    /// Charges the time since the last step to what held the transmitter.
    pub(super) fn settle(&mut self, host: usize) {
        let (tenants, now, victim) = (self.tenants, self.now, self.victim);
        let (since, hold) = (self.nics[host].since, self.nics[host].hold);
        if now <= since {
            return;
        }
        self.nics[host].since = now;
        let mut accounts = std::mem::take(&mut self.nics[host].held);
        for (place, held) in &mut accounts {
            let nic = &self.nics[host];
            let mut charge = |at: usize, piece: Piece| {
                held[slot(at, piece.resource, piece.tenant, tenants)] += piece.ps;
            };
            let whole = |resource| Piece {
                resource,
                tenant: victim,
                ps: now - since,
            };
            if nic.limited.contains(&place.lane) {
                charge(host, whole(Resource::RateLimiter));
            } else if nic.paused & (1 << place.class) != 0 {
                let pauser = nic.pauser;
                self.drains(pauser, since, now, charge);
            } else if let Hold::Timeline(timeline, ahead) = hold {
                nic.cut(timeline, since + ahead, now + ahead, victim, |piece| {
                    charge(host, piece);
                });
            } else {
                charge(host, whole(Resource::Way));
            }
        }
        self.nics[host].held = accounts;
    }

    /// What kept the receive buffer of `host` from draining from `from` to `to`: its units while they were behind,
    /// else the bus; a time in which neither worked is split by the bytes that tenants had in the buffer.
    pub(super) fn drains(
        &mut self,
        host: usize,
        from: u64,
        to: u64,
        mut each: impl FnMut(usize, Piece),
    ) {
        self.leave_buffer(host);
        let nic = &self.nics[host];
        let each = std::cell::RefCell::new(&mut each);
        let bus = |from, to, _| {
            nic.logs[Timeline::ToHost.index()].cut(
                from,
                to,
                |piece| each.borrow_mut()(host, piece),
                |from, to, _| {
                    split(to - from, &nic.buffered, self.victim, |tenant, ps| {
                        let resource = Resource::ReceiveBuffer;
                        each.borrow_mut()(
                            host,
                            Piece {
                                resource,
                                tenant,
                                ps,
                            },
                        );
                    });
                },
            );
        };
        nic.logs[Timeline::Responder.index()].cut(
            from,
            to,
            |piece| each.borrow_mut()(host, piece),
            bus,
        );
    }

    /// What has kept contexts at `place` waiting until now.
    pub(super) fn held(&mut self, host: usize, place: Place) -> &Vec<u64> {
        self.settle(host);
        let size = self.nics.len() * Resource::ALL.len() * self.tenants;
        let held = self.nics[host].held.entry(place);
        held.or_insert_with(|| vec![0; size])
    }

    /// A pair begins to wait in a schedule queue of `host`.
    pub(crate) fn queued(&mut self, host: usize, pair: u32, response: bool, place: Place) {
        if !self.follows(pair, response) {
            return;
        }
        let held = self.held(host, place).clone();
        let (now, tenant) = (self.now, self.tenant_of[pair as usize]);
        if let Some(story) = &mut self.stories[pair as usize] {
            if let Some(probe) = &mut story.probe {
                let part = Part::waited(Stage::Post, host, Resource::ReadLimit, tenant);
                probe.until(now, part);
            }
            (story.place, story.held) = ((host, place), held);
        }
    }

    /// Whether `pair` has a message at the stage in which it waits for this transmitter.
    pub(super) fn follows(&self, pair: u32, response: bool) -> bool {
        let phase = if response {
            Phase::Answering
        } else {
            Phase::Sending
        };
        self.stories[pair as usize]
            .as_ref()
            .and_then(|story| story.probe.as_ref())
            .is_some_and(|probe| probe.phase == phase)
    }

    /// The transmitter takes a packet of `pair`: what follows is done for it.
    pub(crate) fn takes(&mut self, host: usize, pair: u32, response: bool, place: Place) {
        self.acts(pair);
        if !self.follows(pair, response) {
            return;
        }
        let held = self.held(host, place).clone();
        let (now, tenants, own) = (self.now, self.tenants, self.tenant_of[pair as usize]);
        let Some(story) = &mut self.stories[pair as usize] else {
            return;
        };
        let Some(probe) = &mut story.probe else {
            return;
        };
        // A pair that was moved to another lane, or that answers at the other host, has no account of the first one.
        if story.place == (host, place) && story.held.len() == held.len() {
            let total: u64 = held.iter().sum::<u64>() - story.held.iter().sum::<u64>();
            // Time before the message was posted is not its own.
            let mut skip = total.saturating_sub(now.saturating_sub(probe.cursor()));
            for (index, (after, before)) in held.iter().zip(&story.held).enumerate() {
                let ps = after - before;
                let skipped = skip.min(ps);
                skip -= skipped;
                let (at, resource, tenant) = unslot(index, tenants);
                let part = Part::waited(Stage::Schedule, at, resource, tenant);
                probe.add(part, ps - skipped);
            }
        }
        probe.until(now, Part::waited(Stage::Schedule, host, Resource::Way, own));
        (story.place, story.held) = ((host, place), held);
    }
}

/// Index of a host, a resource and a tenant in an account of what held a transmitter.
fn slot(host: usize, resource: Resource, tenant: u16, tenants: usize) -> usize {
    (host * Resource::ALL.len() + resource as usize) * tenants + usize::from(tenant)
}

/// The host, resource and tenant of an index.
fn unslot(index: usize, tenants: usize) -> (usize, Resource, u16) {
    let (rest, tenant) = (index / tenants, index % tenants);
    let resource = Resource::ALL[rest % Resource::ALL.len()];
    (rest / Resource::ALL.len(), resource, tenant as u16)
}
