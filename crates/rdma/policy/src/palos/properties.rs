//! What holds for all weights, sizes and patterns of activity.

use super::tests::{MTU, unlabelled};
use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Member {
    weight: u32,
    sizes: Vec<u64>,
}

fn members() -> impl Strategy<Value = Vec<(u32, Vec<Member>)>> {
    let sizes = prop::collection::vec(prop_oneof![1u64..2_000, 1u64..200_000], 1..5);
    let member = (1u32..50, sizes).prop_map(|(weight, sizes)| Member { weight, sizes });
    prop::collection::vec((1u32..50, prop::collection::vec(member, 0..6)), 1..6)
        .prop_filter("a group has work", |groups| {
            groups.iter().any(|group| !group.1.is_empty())
        })
}

/// One backlogged queue pair: which message of its list it is at.
struct Sender {
    sizes: Vec<u64>,
    message: usize,
    offset: u64,
    sent: u64,
    /// The slow and obvious model: its exact share of all bytes.
    share: f64,
    chunk: f64,
}

fn senders(palos: &mut Palos, groups: &[(u32, Vec<Member>)]) -> Vec<Sender> {
    let weights: u32 = groups
        .iter()
        .filter(|group| !group.1.is_empty())
        .map(|group| group.0)
        .sum();
    let pairs: usize = groups.iter().map(|group| group.1.len()).sum();
    let mut senders = Vec::new();
    for (weight, members) in groups {
        let group = palos.create_group(*weight).unwrap();
        let sum: u32 = members.iter().map(|member| member.weight).sum();
        for member in members {
            palos
                .create_queue_pair(group, member.weight, Label::None)
                .unwrap();
            let share =
                f64::from(*weight) / f64::from(weights) * f64::from(member.weight) / f64::from(sum);
            senders.push(Sender {
                sizes: member.sizes.clone(),
                message: 0,
                offset: 0,
                sent: 0,
                share,
                chunk: share * (pairs as u64 * MTU.get()) as f64,
            });
        }
    }
    senders
}

impl Sender {
    fn message(&self) -> Message {
        Message {
            size: Bytes::new(self.sizes[self.message]),
            sent: Bytes::new(self.offset),
        }
    }

    fn take(&mut self, bytes: u64) {
        self.sent += bytes;
        self.offset += bytes;
        if self.offset == self.sizes[self.message] {
            self.offset = 0;
            self.message = (self.message + 1) % self.sizes.len();
        }
    }
}

/// One turn; the number of whose it was, and what it sent.
fn turn(
    palos: &mut Palos,
    senders: &mut [Sender],
    left: impl Fn(usize) -> bool,
) -> Option<(usize, u64)> {
    let now = Instant::ZERO;
    let turn = palos.next(now)?;
    let number = turn.pair.0 as usize;
    let sender = &mut senders[number];
    let mut sent = 0;
    loop {
        let bytes = palos.slice(now, turn.pair, sender.message(), MTU).get();
        if bytes == 0 {
            break;
        }
        sender.take(bytes);
        sent += bytes;
    }
    let rest = if left(number) {
        Rest::Ready(sender.message().size)
    } else {
        Rest::Idle
    };
    palos.finish(now, turn.pair, rest);
    Some((number, sent))
}

proptest! {
    /// Against the fluid model: no queue pair is ever further from its exact share than one chunk and one packet of its
    /// own, and its part of all others'.
    #[test]
    fn backlogged_pairs_follow_the_fluid_model(groups in members()) {
        let mut palos = unlabelled();
        let mut senders = senders(&mut palos, &groups);
        for (number, sender) in senders.iter().enumerate() {
            palos.activate(Instant::ZERO, QueuePairId(number as u32), sender.message().size);
        }
        let mut total = 0;
        let slack: f64 = senders.iter().map(|sender| sender.chunk + 1_501.0).sum();
        for _ in 0..2_000 {
            let (_, sent) = turn(&mut palos, &mut senders, |_| true).unwrap();
            total += sent;
            for sender in &senders {
                let exact = total as f64 * sender.share;
                let bound = sender.chunk + 1_501.0 + sender.share * slack;
                // The rounding of granularities: less than a byte per turn.
                prop_assert!(
                    (sender.sent as f64 - exact).abs() <= bound + 2_000.0 * sender.share,
                    "{} instead of {exact}, bound {bound}", sender.sent
                );
            }
        }
    }

    /// Equation 2 and the tables differ by less than one granularity unit per unit of weight.
    #[test]
    fn a_planned_round_is_within_one_granularity_unit_of_equation_2(groups in members()) {
        let mut palos = unlabelled();
        let senders = senders(&mut palos, &groups);
        let mut first = 0;
        for (number, (_, members)) in groups.iter().enumerate() {
            let exact: f64 = senders[first..first + members.len()]
                .iter()
                .map(|sender| sender.chunk)
                .sum();
            first += members.len();
            let weight: u32 = members.iter().map(|member| member.weight).sum();
            match palos.tables.planned_round(number as u32) {
                Ok(units) => {
                    let difference = exact * f64::from(1u32 << FRACTION_BITS) - units as f64;
                    prop_assert!((-0.1..=f64::from(weight) + 0.1).contains(&difference), "{difference}");
                }
                Err(error) => {
                    prop_assert_eq!(error, PalosError::NoMembers { group: number as u32 });
                }
            }
        }
    }

    /// A backlogged group gets its part under any events of the other groups' pairs: leave, return, send anything.
    #[test]
    fn a_backlogged_group_never_falls_behind_its_part(
        groups in members(),
        comings in prop::collection::vec((0usize..40, prop::bool::ANY), 3_000),
    ) {
        let mut palos = unlabelled();
        let mut senders = senders(&mut palos, &groups);
        let own = groups.iter().position(|group| !group.1.is_empty()).unwrap();
        let mine = groups[own].1.len();
        let weights: u32 = groups.iter().filter(|group| !group.1.is_empty()).map(|group| group.0).sum();
        let part = f64::from(groups[own].0) / f64::from(weights);
        let round = (senders.len() as u64 * MTU.get()) as f64;
        for (number, sender) in senders.iter().enumerate().take(mine) {
            palos.activate(Instant::ZERO, QueuePairId(number as u32), sender.message().size);
        }
        let (mut total, mut sent_by_own) = (0, 0);
        for (number, stays) in comings {
            let number = number % senders.len();
            palos.activate(Instant::ZERO, QueuePairId(number as u32), senders[number].message().size);
            let (whose, sent) = turn(&mut palos, &mut senders, |other| other < mine || stays).unwrap();
            total += sent;
            sent_by_own += if whose < mine { sent } else { 0 };
            // Each pair's chunk of one round, and a packet that each may have sent in advance.
            let bound = 2.0 * round + 1_501.0 * senders.len() as f64;
            prop_assert!(
                sent_by_own as f64 >= total as f64 * part - bound,
                "{sent_by_own} of {total}, part {part}"
            );
        }
    }
}
