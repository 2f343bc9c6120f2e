//! Tokens, and how active flows come by them; shared by the policies that pace in software.
//!
//! Problem: give the tokens of one rate to the active flows, by weight, each token to one flow, without drift, without
//! a visit to idle flows and without allocating. Method: a [`Pool`] integrates the rate, [`Turns`] orders the flows
//! that can take a token. A flow that has nothing waiting at its turn saves the token: otherwise a flow that keeps one
//! message outstanding would lose its turns to a flow that always has more, and one that another slows down would lose
//! its share just because of that (justitia 4.3.4 hands tokens to active applications, not only to waiting ones). A
//! flow with full savings whose messages are in the device is being slowed down by others: its turn lapses, so that
//! they do not gain by slowing it further. With full savings and nothing under way it takes no more, and the others get
//! the tokens. A flow spends a token on what it has waiting: it is granted bytes and operations as they come to wait,
//! until either resource of the token is used up, and then waits for its next turn; the other resource's rest lapses
//! (justitia 4.4: batch pacing, one token for many small messages). A flow that falls idle gives the rest of its token
//! back.
//!
//! Units: bytes, messages ("operations"). Limits: see [`Turns`] and [`Pool`].

mod pool;
mod quiet;
mod turns;

pub(crate) use pool::{Capacity, Pool, Token};
pub(crate) use quiet::QuietList;
pub(crate) use turns::Turns;

use super::{Action, FlowId};
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    waiting: Token,
    /// What is left of the last token.
    credit: Token,
    /// Whole tokens put aside.
    saved: u32,
    /// Operations granted whose completion has not been seen.
    in_device: u64,
    /// How many times it has been found quiet with work in the device, since its last sign of life.
    stalls: u32,
    /// Has requested something and was not dropped as idle since.
    active: bool,
}

impl Slot {
    /// Whether a token has a use, or must not go to others.
    fn takes_turns(&self) -> bool {
        let active = self.active && (self.saved < SAVED_MAX || self.in_device > 0);
        self.waiting != Token::default() || active
    }
}

/// One stream of tokens and the flows that share it.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    pool: Pool,
    turns: Turns,
    quiet: QuietList,
    slots: Vec<Slot>,
}

impl Pacer {
    /// A stream at the full rate of `device`, with tokens of `token_bytes`, at most `backlog_max` of them kept without
    /// an owner. Panics as [`Pool::new`] does.
    pub(crate) fn new(device: Capacity, token_bytes: Bytes, backlog_max: u32) -> Self {
        Self {
            pool: Pool::new(device, token_bytes, backlog_max),
            turns: Turns::default(),
            quiet: QuietList::default(),
            slots: Vec::new(),
        }
    }

    /// One more flow, numbered in order of joining. The only method that allocates. Panics if `weight` is not in
    /// `1..=`[`Turns::WEIGHT_MAX`].
    pub(crate) fn join(&mut self, weight: u32) {
        self.turns.join(weight);
        self.quiet.join();
        self.slots.push(Slot::default());
    }

    /// `flow` has this much waiting in total. Grants what its token still covers.
    pub(crate) fn want(
        &mut self,
        now: Instant,
        flow: FlowId,
        bytes: Bytes,
        operations: u64,
        actions: &mut VecDeque<Action>,
    ) {
        let slot = &mut self.slots[flow.0 as usize];
        slot.waiting = Token {
            bytes: bytes.get(),
            operations,
        };
        slot.active = true;
        slot.stalls = 0;
        self.quiet.touch(now, flow.0);
        self.spend(flow, actions);
    }

    /// A message of `flow` completed that counted for `operations`; whether that changes when the next token is due.
    #[inline]
    pub(crate) fn completed(&mut self, now: Instant, flow: FlowId, operations: u64) -> bool {
        if self.quiet.contains(flow.0) {
            self.quiet.touch(now, flow.0);
        }
        let slot = &mut self.slots[flow.0 as usize];
        slot.stalls = 0;
        slot.in_device = slot.in_device.saturating_sub(operations);
        if slot.in_device > 0 || slot.takes_turns() {
            return false;
        }
        self.turns.stop(flow.0);
        true
    }

    /// Forgets what `flow` wants and takes back the rest of its token.
    pub(crate) fn forget(&mut self, now: Instant, flow: FlowId) {
        self.turns.stop(flow.0);
        self.quiet.remove(flow.0);
        let slot = std::mem::take(&mut self.slots[flow.0 as usize]);
        self.pool.fill(now);
        self.pool.give_back(slot.credit);
    }

    /// The next flow without a request, a grant or any activity for `idle_after`. The flow is dropped as idle. Work in
    /// the device is activity, on a slow network too, unless no completion arrives for `STALLS_MAX` times as long.
    pub(crate) fn pop_idle(&mut self, now: Instant, idle_after: Duration) -> Option<FlowId> {
        loop {
            let (flow, since) = self.quiet.quietest()?;
            if now.saturating_since(since) < idle_after {
                return None;
            }
            let slot = &mut self.slots[flow as usize];
            if slot.waiting == Token::default() {
                slot.stalls += 1;
                if slot.in_device == 0 || slot.stalls >= STALLS_MAX {
                    self.forget(now, FlowId(flow));
                    return Some(FlowId(flow));
                }
            }
            self.quiet.touch(now, flow);
        }
    }

    /// When the quietest flow was last active.
    #[inline]
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.quiet.quietest().map(|(_, since)| since)
    }

    /// The rate of the stream from `now` on.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        if rate != self.pool.rate() {
            self.pool.set_rate(now, rate);
        }
    }

    /// The size of tokens from `now` on; the rests that flows hold shrink to it.
    pub(crate) fn set_token_bytes(&mut self, now: Instant, bytes: Bytes) {
        self.pool.set_token_bytes(now, bytes);
    }

    /// Messages per second at the device's full rate, from `now` on.
    pub(crate) fn set_messages_per_s(&mut self, now: Instant, messages_per_s: u64) {
        self.pool.set_messages_per_s(now, messages_per_s);
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.pool.rate()
    }

    pub(crate) fn token(&self) -> Token {
        self.pool.token()
    }

    /// Tokens handed out since the start.
    pub(crate) fn tokens_taken(&self) -> u64 {
        self.pool.taken()
    }

    /// Flows that take turns: they wait for a token, can save one more, or are being slowed down.
    pub(crate) fn waiting_flows(&self) -> u32 {
        self.turns.waiting()
    }

    /// When to call [`Self::advance`]; `None` while no flow waits or the rate is zero.
    #[inline]
    pub(crate) fn next_token(&self) -> Option<Instant> {
        if self.turns.waiting() == 0 {
            return None;
        }
        self.pool.next()
    }

    /// Hands out the tokens that are due.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.pool.fill(now);
        while self.turns.waiting() > 0 {
            let Some(token) = self.pool.take() else {
                return;
            };
            let flow = self.turns.serve().expect("a flow waits");
            let slot = &mut self.slots[flow as usize];
            if slot.waiting == Token::default() {
                slot.saved = (slot.saved + 1).min(SAVED_MAX);
            } else {
                slot.credit = token;
                slot.stalls = 0;
                self.quiet.touch(now, flow);
            }
            self.spend(FlowId(flow), actions);
        }
    }

    /// Grants what `flow` has both waiting and on credit, and queues it when it needs a token for the rest.
    #[inline]
    fn spend(&mut self, flow: FlowId, actions: &mut VecDeque<Action>) {
        let whole = self.pool.token();
        let slot = &mut self.slots[flow.0 as usize];
        let mut granted = Token::default();
        loop {
            // A token of the time before the last change of size may be larger than today's; the carried
            // operation makes up to one more than the rounded figure.
            slot.credit.bytes = slot.credit.bytes.min(whole.bytes);
            slot.credit.operations = slot.credit.operations.min(whole.operations + 1);
            let bytes = slot.waiting.bytes.min(slot.credit.bytes);
            let operations = slot.waiting.operations.min(slot.credit.operations);
            slot.waiting.bytes -= bytes;
            slot.waiting.operations -= operations;
            slot.credit.bytes -= bytes;
            slot.credit.operations -= operations;
            granted.bytes += bytes;
            granted.operations += operations;
            if slot.waiting == Token::default() || slot.saved == 0 {
                break;
            }
            slot.saved -= 1;
            slot.credit = whole;
        }
        slot.in_device += granted.operations;
        if granted != Token::default() {
            actions.push_back(Action::Grant {
                flow,
                bytes: Bytes::new(granted.bytes),
                operations: granted.operations,
            });
        }
        if slot.takes_turns() {
            self.turns.start(flow.0);
        } else {
            self.turns.stop(flow.0);
        }
    }
}

/// Tokens a flow saves: one bridges the pause between two messages; more would be sent in one burst after a longer
/// pause, in front of latency flows.
const SAVED_MAX: u32 = 1;

/// How many successive checks may find a flow quiet with work in the device before it is idle: with 10 ms per check, a
/// second. A congested network delays a message for tens of milliseconds; a message waits longer than a second only if
/// the application does not poll its completion or the peer is gone.
const STALLS_MAX: u32 = 100;

#[cfg(test)]
mod tests;
