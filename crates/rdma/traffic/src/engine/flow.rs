//! The account of one queue pair: posted and completed messages, and when more may be posted.

use crate::worker::Arrival;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Duration;
use std::collections::VecDeque;

/// Most lists that wait in the application; further arrivals are dropped.
const BACKLOG_MAX: usize = 65_536;

/// The account of a queue pair.
#[derive(Debug)]
pub(crate) struct Flow {
    depth: u64,
    post_list: u64,
    iterations: u64,
    /// Number of posted messages.
    pub(crate) posted: u64,
    /// Number of completed messages; they complete in order.
    pub(crate) completed: u64,
    /// Due time of each outstanding message, by sequence number.
    due_ns: Vec<u64>,
    /// Closed loop with pauses: when each free place of the queue may be used again.
    places: VecDeque<u64>,
    think_ns: u64,
    /// Open loop: due times of lists that arrived and are not posted.
    backlog: VecDeque<u64>,
    next_arrival_ns: u64,
    interval_ns: u64,
    poisson: bool,
    /// Ping-pong: whether the answer has not arrived.
    pub(crate) awaiting: bool,
    ping_pong: bool,
    /// Whether a request failed; nothing more is posted.
    pub(crate) dead: bool,
    random: Stream,
}

impl Flow {
    pub(crate) fn new(
        arrival: Arrival,
        depth: u32,
        capacity: u32,
        post_list: u32,
        iterations: Option<u64>,
        random: Stream,
    ) -> Self {
        let (think_ns, interval_ns, poisson) = match arrival {
            Arrival::Closed { think_ns } => (think_ns, 0, false),
            Arrival::Open {
                interval_ns,
                poisson,
            } => (0, interval_ns.max(1), poisson),
            Arrival::PingPong | Arrival::Paced { .. } => (0, 0, false),
        };
        let places = match think_ns {
            0 => VecDeque::new(),
            _ => vec![0; depth as usize].into(),
        };
        Self {
            depth: depth.into(),
            post_list: post_list.into(),
            iterations: iterations.unwrap_or(u64::MAX),
            posted: 0,
            completed: 0,
            due_ns: vec![0; capacity.max(depth) as usize],
            places,
            think_ns,
            backlog: VecDeque::new(),
            next_arrival_ns: 0,
            interval_ns,
            poisson,
            awaiting: false,
            ping_pong: arrival == Arrival::PingPong,
            dead: false,
            random,
        }
    }

    /// How many messages may be posted now as one list, and their due time.
    pub(crate) fn offer(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        if self.dead || self.posted >= self.iterations {
            return None;
        }
        let list = self.post_list.min(self.iterations - self.posted);
        let outstanding = self.posted - self.completed;
        if self.ping_pong {
            let room = outstanding < self.due_ns.len() as u64;
            return (!self.awaiting && room).then_some((1, now_ns));
        }
        if outstanding + list > self.depth {
            self.arrive(now_ns);
            return None;
        }
        if self.think_ns > 0 {
            let last = self.places.get(list as usize - 1)?;
            return (*last <= now_ns).then_some((list, now_ns));
        }
        if self.interval_ns > 0 {
            self.arrive(now_ns);
            return self.backlog.front().map(|&due_ns| (list, due_ns));
        }
        Some((list, now_ns))
    }

    /// Records that a list of `count` messages was posted after `offer`.
    pub(crate) fn taken(&mut self, count: u64, due_ns: u64) {
        for _ in 0..count {
            let index = (self.posted % self.due_ns.len() as u64) as usize;
            self.due_ns[index] = due_ns;
            self.posted += 1;
            if self.think_ns > 0 {
                self.places.pop_front();
            }
        }
        self.backlog.pop_front();
        self.awaiting = self.ping_pong;
    }

    /// Completes the oldest outstanding message. Returns its sequence number and its due time.
    pub(crate) fn retire(&mut self, now_ns: u64) -> (u64, u64) {
        let sequence = self.completed;
        let due_ns = self.due_ns[(sequence % self.due_ns.len() as u64) as usize];
        self.completed += 1;
        if self.think_ns > 0 {
            let mean = Duration::from_ns(self.think_ns);
            let pause = self.random.exponential(mean).as_ps() / 1_000;
            self.places.push_back(now_ns + pause);
        }
        (sequence, due_ns)
    }

    /// Due time of message `sequence`.
    pub(crate) fn due_of(&self, sequence: u64) -> u64 {
        self.due_ns[(sequence % self.due_ns.len() as u64) as usize]
    }

    /// Whether all requested messages have completed.
    pub(crate) fn finished(&self) -> bool {
        self.dead || (self.posted >= self.iterations && self.completed >= self.iterations)
    }

    /// The time of the next post that needs no completion; `None` if only a completion helps.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if self.dead {
            return None;
        }
        if self.interval_ns > 0 {
            return Some(self.next_arrival_ns);
        }
        self.places.front().copied()
    }

    /// Open loop: moves arrived lists into the backlog.
    fn arrive(&mut self, now_ns: u64) {
        if self.interval_ns == 0 {
            return;
        }
        while self.next_arrival_ns <= now_ns {
            if self.backlog.len() < BACKLOG_MAX {
                self.backlog.push_back(self.next_arrival_ns);
            }
            let pause = match self.poisson {
                true => {
                    let mean = Duration::from_ns(self.interval_ns);
                    (self.random.exponential(mean).as_ps() / 1_000).max(1)
                }
                false => self.interval_ns,
            };
            self.next_arrival_ns += pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(arrival: Arrival, depth: u32, list: u32, iterations: Option<u64>) -> Flow {
        Flow::new(
            arrival,
            depth,
            depth,
            list,
            iterations,
            Stream::named(1, "test"),
        )
    }

    const CLOSED: Arrival = Arrival::Closed { think_ns: 0 };

    #[test]
    fn a_closed_loop_never_exceeds_its_depth() {
        let mut flow = flow(CLOSED, 8, 4, None);
        let mut lists = 0;
        while let Some((count, due)) = flow.offer(5) {
            assert_eq!((count, due), (4, 5));
            flow.taken(count, due);
            lists += 1;
        }
        assert_eq!(lists, 2);
        assert_eq!(flow.retire(9), (0, 5));
        assert_eq!(flow.offer(9), None, "three free places are no list of four");
    }

    #[test]
    fn the_last_list_is_as_long_as_what_is_left() {
        let mut flow = flow(CLOSED, 8, 4, Some(6));
        for expected in [4, 2] {
            let (count, due) = flow.offer(0).expect("room");
            assert_eq!(count, expected);
            flow.taken(count, due);
        }
        assert_eq!(flow.offer(0), None);
        assert!(!flow.finished());
        (0..6).for_each(|_| {
            flow.retire(1);
        });
        assert!(flow.finished());
    }

    #[test]
    fn open_arrivals_are_due_when_they_arrive_not_when_they_are_posted() {
        let arrival = Arrival::Open {
            interval_ns: 10,
            poisson: false,
        };
        let mut flow = flow(arrival, 1, 1, None);
        let (count, due) = flow.offer(35).expect("an arrival");
        assert_eq!((count, due), (1, 0));
        flow.taken(count, due);
        assert_eq!(flow.offer(36), None);
        flow.retire(36);
        assert_eq!(flow.offer(36), Some((1, 10)));
    }

    #[test]
    fn a_pause_follows_each_completion() {
        let mut flow = flow(Arrival::Closed { think_ns: 1_000 }, 1, 1, None);
        let (count, due) = flow.offer(0).expect("the first needs no pause");
        flow.taken(count, due);
        flow.retire(100);
        let next = flow.next_due_ns().expect("a pause");
        assert_eq!(flow.offer(next - 1), None);
        assert!(flow.offer(next).is_some());
    }
}
