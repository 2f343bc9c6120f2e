//! Faults on request: what devices and networks do rarely, as often as a test of a program's error handling needs.
//!
//! Requests of reliable queue pairs fail as if the peer did not answer, and messages of unreliable ones are lost. Each
//! has a random stream of its own, by the seed: whether the n-th request of a run fails does not depend on messages.
//! Programs post in an order that depends on real time, so that two runs of several programs differ.

use isolane_common_quantities::rng::Stream;

/// Parts in which chances are given.
pub const PARTS: u32 = 1_000_000;

/// How often something goes wrong, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chances {
    /// A request of a reliable queue pair fails with `IBV_WC_RETRY_EXC_ERR` and has no effect.
    pub failed_requests: u32,
    /// A message of an unreliable queue pair does not arrive.
    pub lost_messages: u32,
}

/// Decides what goes wrong.
#[derive(Debug)]
pub struct Faults {
    chances: Chances,
    requests: Stream,
    messages: Stream,
}

impl Faults {
    /// Faults of a run with this seed.
    pub fn new(chances: Chances, seed: u64) -> Self {
        Self {
            chances,
            requests: Stream::named(seed, "emulator.failed-requests"),
            messages: Stream::named(seed, "emulator.lost-messages"),
        }
    }

    /// Whether the next request of a reliable queue pair fails.
    pub fn request_fails(&mut self) -> bool {
        falls(&mut self.requests, self.chances.failed_requests)
    }

    /// Whether the next message of an unreliable queue pair is lost.
    pub fn message_is_lost(&mut self) -> bool {
        falls(&mut self.messages, self.chances.lost_messages)
    }
}

fn falls(stream: &mut Stream, chance: u32) -> bool {
    chance > 0 && stream.chance(u64::from(chance), u64::from(PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_which_requests_fail() {
        let chances = Chances {
            failed_requests: PARTS / 10,
            lost_messages: 0,
        };
        let run = |seed| {
            let mut faults = Faults::new(chances, seed);
            assert!(!faults.message_is_lost());
            (0..1000)
                .filter(|_| faults.request_fails())
                .collect::<Vec<u32>>()
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        assert!((60..140).contains(&first.len()), "{} of 1000", first.len());
    }
}
