//! Times after which a request is tried again: the other end had no receive, or did not answer.
//!
//! Units: picoseconds of the model. Limits: timers of requests that are over stay until their time, up to
//! [`TIMERS_OVER_MAX`] and twice the number of pairs.

use crate::fabric::{Fabric, Timer};
use crate::transfer::Outcome;
use isolane_common_quantities::units::Instant;
use isolane_rdma_verbs_sys::*;
use std::cmp::Reverse;

/// Retries after receiver-not-ready that mean "for ever".
const FOR_EVER: u32 = 7;
/// Largest number of retries after a time without acknowledgement: 3 bits on the wire.
const RETRIES_MAX: u32 = 7;
/// Timers of requests that are over are kept up to this number and twice that of the pairs.
const TIMERS_OVER_MAX: usize = 1 << 10;
/// Unit of the time to an acknowledgement, ps: 4.096 us times a power of two.
const TIMEOUT_UNIT: u64 = 4_096_000;
/// Times of the RNR timer by code, in units of 10 us (IB specification, table of RNR NAK timer field encodings).
const RNR_TIMES: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];
/// 10 us, ps.
const RNR_UNIT: u64 = 10_000_000;

impl Fabric {
    pub(crate) fn wait_for_receive(&mut self, now: Instant, number: u32, tries: u32) {
        let pair = &self.pairs[&number];
        let limit = pair.attributes.rnr_retry;
        if limit < FOR_EVER && tries >= limit {
            return self.fail_pair(number, Some(IBV_WC_RNR_RETRY_EXC_ERR));
        }
        let other = self.pairs.get(&pair.attributes.dest_qp_num);
        let code = other.map_or(0, |other| other.attributes.min_rnr_timer) as usize;
        self.wait(
            now,
            number,
            RNR_UNIT * RNR_TIMES[code % RNR_TIMES.len()],
            false,
        );
    }

    pub(crate) fn wait_for_answer(&mut self, now: Instant, number: u32) {
        let attributes = &self.pairs[&number].attributes;
        let tries = u64::from(attributes.retry_count.min(RETRIES_MAX)) + 1;
        // Code 0 waits for ever.
        match attributes.timeout & 31 {
            0 => self.pairs.get_mut(&number).expect("just found").waits = true,
            code => self.wait(now, number, tries * (TIMEOUT_UNIT << code), true),
        }
    }

    /// Tries the current request again after `time` ps.
    fn wait(&mut self, now: Instant, number: u32, time: u64, last: bool) {
        let pair = self.pairs.get_mut(&number).expect("the caller found it");
        pair.waits = true;
        let work = &mut pair.work[pair.executed];
        work.tries += 1;
        let timer = Timer {
            pair: number,
            sequence: work.sequence,
            last,
        };
        self.timers.push(Reverse((now.as_ps() + time, timer)));
        if self.timers.len() > 2 * self.pairs.len() + TIMERS_OVER_MAX {
            let pairs = &self.pairs;
            self.timers.retain(|Reverse((_, timer))| {
                let pair = pairs.get(&timer.pair);
                pair.is_some_and(|pair| pair.waits_for(timer.sequence))
            });
        }
    }

    /// Takes the timers that are due.
    pub(crate) fn take_timers(&mut self, now: Instant) {
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if at > now.as_ps() {
                return;
            }
            self.timers.pop();
            self.timed_out(now, timer);
        }
    }

    fn timed_out(&mut self, now: Instant, timer: Timer) {
        let Some(pair) = self.pairs.get_mut(&timer.pair) else {
            return;
        };
        if !pair.waits_for(timer.sequence) {
            return;
        }
        pair.waits = false;
        if timer.last {
            let request = pair.work[pair.executed].request.clone();
            match self.attempt(now, timer.pair, &request) {
                Outcome::Silent => return self.fail_pair(timer.pair, Some(IBV_WC_RETRY_EXC_ERR)),
                Outcome::Over(IBV_WC_SUCCESS) => {
                    let pair = self
                        .pairs
                        .get_mut(&timer.pair)
                        .expect("a success keeps the pair");
                    pair.executed += 1;
                }
                Outcome::Over(status) => return self.fail_pair(timer.pair, Some(status)),
                Outcome::NotReady => {}
            }
        }
        self.advance(now, timer.pair);
    }
}
