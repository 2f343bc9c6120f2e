//! Which class of a port sends its next packet (stage 3).
//!
//! A class is a hardware queue: a priority, a traffic class, a virtual lane. Problem: choose one among those that
//! have something to send and may. Three ways, as NICs offer them:
//!
//! - **strict priority**: the lowest number first;
//! - **weighted**: deficit round robin by bytes, as enhanced transmission selection (IEEE 802.1Q) shares a link.
//!   A class may overdraw by one packet and pays it back, so shares are exact over time; a class with nothing to
//!   send loses what it has saved, so others get it (work-conserving). Some classes may go before all others, as
//!   strict priority does beside enhanced transmission selection;
//! - **tables**: virtual lane arbitration (IB specification, volume 1, 7.6.9): a high and a low table of lanes with
//!   weights in units of 64 B. The high table goes first until it has sent `high_limit` bytes; then the low table
//!   may send one packet. An entry sends while any of its weight is left, so a packet may exceed it, and that is
//!   not paid back.
//!
//! Units: bytes on the wire. Method: a mask of the classes that can send comes in, a class and its *rank* come out;
//! data that a worse rank has read ahead of the wire waits for a better rank. A decision costs a few steps over at most
//! [`CLASSES_MAX`] classes, and allocates nothing.

/// Classes of one port at most (IB has 16 virtual lanes, IEEE 802.1Q eight priorities).
pub const CLASSES_MAX: usize = 16;
/// Bytes in a unit of a table entry's weight.
const WEIGHT_UNIT: i64 = 64;

/// A choice: the class, and the rank its packet has on the wire, 0 first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The class.
    pub class: u8,
    /// Its packet's place on the wire: data that was read ahead for a worse rank waits for it.
    pub rank: u8,
}

/// How a port is shared, as a setup says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// So many classes, the first one first.
    Priority(usize),
    /// Bytes each class may send in its turn; the classes in `first` (bit by class) before all others
    /// while they stay within their share.
    Weighted {
        /// Classes before all others, bit by class.
        first: u16,
        /// Bytes of each class's turn.
        quanta: Vec<u64>,
    },
    /// Classes with weights in units of 64 B, and the high table's limit in bytes (none: no limit).
    Tables {
        /// The high table.
        high: Vec<(u8, u16)>,
        /// The low table.
        low: Vec<(u8, u16)>,
        /// Bytes the high table may send before the low one has its chance.
        high_limit: Option<u64>,
    },
}

/// The arbiter of one port.
///
/// ```
/// use isolane_rdma_simulator::rnic::arbiter::{Arbiter, Sharing};
/// let mut arbiter = Arbiter::new(&Sharing::weighted(vec![4096, 8192]));
/// let mut sent = [0; 2];
/// for _ in 0..300 {
///     let choice = arbiter.choose(0b11).expect("both classes have work");
///     arbiter.charge(choice.class, 4096);
///     sent[usize::from(choice.class)] += 1;
/// }
/// assert_eq!(sent, [100, 200]);
/// ```
#[derive(Clone, Debug)]
pub struct Arbiter(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Priority,
    Weighted(Weighted),
    Tables(Tables),
}

impl Sharing {
    /// Classes that share by the bytes of their turns, none of them before the others.
    pub const fn weighted(quanta: Vec<u64>) -> Self {
        Self::Weighted { first: 0, quanta }
    }

    /// Classes it knows.
    pub fn classes(&self) -> usize {
        match self {
            Self::Priority(classes) => *classes,
            Self::Weighted { quanta, .. } => quanta.len(),
            Self::Tables { high, low, .. } => {
                let entries = high.iter().chain(low);
                entries
                    .map(|entry| usize::from(entry.0) + 1)
                    .max()
                    .unwrap_or(1)
            }
        }
    }

    /// Ranks its choices have.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Priority(classes) => *classes,
            Self::Weighted { first, .. } => 1 + usize::from(*first != 0),
            Self::Tables { .. } => 2,
        }
    }
}

impl Arbiter {
    /// An arbiter that has sent nothing yet. Panics if there are no classes, more than [`CLASSES_MAX`], or one of
    /// weight zero.
    pub fn new(sharing: &Sharing) -> Self {
        assert!(
            (1..=CLASSES_MAX).contains(&sharing.classes()),
            "a port has 1 to {CLASSES_MAX} classes"
        );
        Self(match sharing {
            Sharing::Priority(_) => Kind::Priority,
            Sharing::Weighted { first, quanta } => Kind::Weighted(Weighted::new(*first, quanta)),
            Sharing::Tables {
                high,
                low,
                high_limit,
            } => Kind::Tables(Tables {
                high: Table::new(high),
                low: Table::new(low),
                high_limit: *high_limit,
                sent_high: 0,
                from_high: false,
            }),
        })
    }

    /// Whether classes are strict priorities.
    #[inline]
    pub fn is_priority(&self) -> bool {
        matches!(self.0, Kind::Priority)
    }

    /// The class that sends next among those in `ready` (bit by class); `None` exactly when there are none.
    #[inline]
    pub fn choose(&mut self, ready: u16) -> Option<Choice> {
        if ready == 0 {
            return None;
        }
        if self.is_priority() {
            let class = ready.trailing_zeros() as u8;
            return Some(Choice { class, rank: class });
        }
        Some(self.choose_by_share(ready))
    }

    #[inline(never)]
    fn choose_by_share(&mut self, ready: u16) -> Choice {
        match &mut self.0 {
            Kind::Priority => unreachable!("priorities have no shares"),
            Kind::Weighted(weighted) => match weighted.favoured(ready) {
                0 => Choice {
                    class: weighted.choose(ready),
                    rank: weighted.last_rank(),
                },
                favoured => Choice {
                    class: weighted.richest(favoured),
                    rank: 0,
                },
            },
            Kind::Tables(tables) => tables.choose(ready),
        }
    }

    /// The chosen `class` has sent `bytes`; none when its packet had to wait after all.
    #[inline]
    pub fn charge(&mut self, class: u8, bytes: u64) {
        match &mut self.0 {
            Kind::Priority => {}
            Kind::Weighted(weighted) => weighted.credit[usize::from(class)] -= bytes as i64,
            Kind::Tables(tables) => tables.charge(bytes),
        }
    }

    /// The best rank among the classes in `ready`, which must not be empty.
    #[inline]
    pub fn best_rank(&self, ready: u16) -> u8 {
        match &self.0 {
            Kind::Priority => ready.trailing_zeros() as u8,
            Kind::Weighted(weighted) => weighted.rank(ready),
            Kind::Tables(tables) => u8::from(ready & tables.high.classes == 0),
        }
    }
}

/// Deficit round robin with overdraft.
#[derive(Clone, Debug)]
struct Weighted {
    /// Classes that go before all others.
    first: u16,
    quanta: [i64; CLASSES_MAX],
    credit: [i64; CLASSES_MAX],
    classes: usize,
    current: usize,
}

impl Weighted {
    fn new(first: u16, quanta: &[u64]) -> Self {
        let mut weighted = Self {
            first,
            quanta: [1; CLASSES_MAX],
            credit: [0; CLASSES_MAX],
            classes: quanta.len(),
            current: quanta.len() - 1,
        };
        for (class, &quantum) in quanta.iter().enumerate() {
            assert!(quantum > 0, "class {class} would never send");
            weighted.quanta[class] = quantum as i64;
        }
        weighted
    }

    /// Those of the classes that go first which are within their share: one that has overdrawn its credit by a turn has
    /// used up its precedence, and takes its turns like the others until it has earned it back.
    #[inline]
    fn favoured(&self, ready: u16) -> u16 {
        let mut left = self.first & ready;
        let mut favoured = 0;
        while left != 0 {
            let class = left.trailing_zeros() as usize;
            left &= left - 1;
            favoured |= u16::from(self.credit[class] > -self.quanta[class]) << class;
        }
        favoured
    }

    /// The class with most credit among those in `classes`, the lowest number of several.
    fn richest(&self, classes: u16) -> u8 {
        let members = (0..self.classes).filter(|class| classes >> class & 1 == 1);
        let best = members.min_by_key(|&class| (-self.credit[class], class));
        best.expect("the mask is not empty") as u8
    }

    /// The rank of a class without precedence.
    #[inline]
    fn last_rank(&self) -> u8 {
        u8::from(self.first != 0)
    }

    /// 0 where a class with precedence has something to send, and for all where no class has any.
    #[inline]
    fn rank(&self, ready: u16) -> u8 {
        u8::from(self.first != 0 && self.favoured(ready) == 0)
    }

    #[inline]
    fn choose(&mut self, ready: u16) -> u8 {
        loop {
            let class = self.current;
            if ready & (1 << class) != 0 {
                if self.credit[class] > 0 {
                    return class as u8;
                }
            } else {
                self.credit[class] = self.credit[class].min(0);
            }
            self.current = if class + 1 == self.classes {
                0
            } else {
                class + 1
            };
            if ready & (1 << self.current) != 0 {
                self.credit[self.current] += self.quanta[self.current];
            } else if self.first & (1 << self.current) != 0 {
                // Its share of this round pays for what it has sent out of turn.
                let earned = self.credit[self.current] + self.quanta[self.current];
                self.credit[self.current] = earned.min(0);
            }
        }
    }
}

/// The high and the low table.
#[derive(Clone, Debug)]
struct Tables {
    high: Table,
    low: Table,
    high_limit: Option<u64>,
    /// Bytes the high table has sent since the low one last had its chance.
    sent_high: u64,
    /// The last choice was from the high table.
    from_high: bool,
}

impl Tables {
    fn choose(&mut self, ready: u16) -> Choice {
        let (high, low) = (ready & self.high.classes, ready & self.low.classes);
        let exhausted = self
            .high_limit
            .is_some_and(|limit| self.sent_high >= limit.max(1));
        if low == 0 {
            self.sent_high = 0;
        }
        self.from_high = high != 0 && (low == 0 || !exhausted);
        if self.from_high {
            return Choice {
                class: self.high.choose(high),
                rank: 0,
            };
        }
        self.sent_high = 0;
        Choice {
            class: self.low.choose(low),
            // Its turn in front of waiting high packets is one that they do not take back.
            rank: u8::from(high == 0),
        }
    }

    fn charge(&mut self, bytes: u64) {
        if self.from_high {
            self.sent_high += bytes;
            self.high.left -= bytes as i64;
        } else {
            self.low.left -= bytes as i64;
        }
    }
}

/// One table: weighted round robin without overdraft being paid back.
#[derive(Clone, Debug)]
struct Table {
    entries: Vec<(u8, u16)>,
    classes: u16,
    at: usize,
    /// Bytes that the current entry may still send.
    left: i64,
}

impl Table {
    fn new(entries: &[(u8, u16)]) -> Self {
        for (class, weight) in entries {
            assert!(*weight > 0, "class {class} would never send");
        }
        Self {
            entries: entries.to_vec(),
            classes: entries.iter().fold(0, |mask, entry| mask | 1 << entry.0),
            at: 0,
            left: entries.first().map_or(0, |entry| Self::bytes(*entry)),
        }
    }

    fn bytes(entry: (u8, u16)) -> i64 {
        i64::from(entry.1) * WEIGHT_UNIT
    }

    fn choose(&mut self, ready: u16) -> u8 {
        let is_ready = |entry: (u8, u16)| ready & (1 << entry.0) != 0;
        if self.left <= 0 || !is_ready(self.entries[self.at]) {
            loop {
                self.at = (self.at + 1) % self.entries.len();
                if is_ready(self.entries[self.at]) {
                    break;
                }
            }
            self.left = Self::bytes(self.entries[self.at]);
        }
        self.entries[self.at].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes each class sends in `steps` steps while `ready` says who has work.
    fn sent(
        sharing: &Sharing,
        steps: u64,
        ready: impl Fn(u64) -> u16,
        size: impl Fn(u64, u8) -> u64,
    ) -> Vec<u64> {
        let mut arbiter = Arbiter::new(sharing);
        let mut sent = vec![0; sharing.classes()];
        for step in 0..steps {
            let ready = ready(step);
            let Some(choice) = arbiter.choose(ready) else {
                assert_eq!(ready, 0);
                continue;
            };
            assert!(
                ready & (1 << choice.class) != 0,
                "{choice:?} has nothing to send"
            );
            let bytes = size(step, choice.class);
            arbiter.charge(choice.class, bytes);
            sent[usize::from(choice.class)] += bytes;
        }
        sent
    }

    #[test]
    fn precedence_ends_where_the_share_does() {
        let sharing = Sharing::Weighted {
            first: 0b001,
            quanta: vec![4_096; 3],
        };
        // Now and then a small packet: it always goes first.
        let mut arbiter = Arbiter::new(&sharing);
        for step in 0..3_000_u64 {
            let ready = if step % 10 == 0 { 0b111 } else { 0b110 };
            let choice = arbiter.choose(ready).expect("two classes always have work");
            assert_eq!(
                (choice.class == 0, choice.rank),
                (step % 10 == 0, u8::from(step % 10 != 0))
            );
            arbiter.charge(choice.class, if choice.class == 0 { 100 } else { 4_096 });
        }
        // Bulk under a false label gets a third of the bytes and no more.
        let bytes = sent(&sharing, 30_000, |_| 0b111, |_, _| 1_000);
        let most = bytes.iter().max().expect("three classes");
        assert!(
            most * 100 <= bytes[0] * 101 && bytes[0] * 100 <= most * 101,
            "{bytes:?}"
        );
    }

    #[test]
    fn strict_priority_takes_the_lowest_number() {
        let mut arbiter = Arbiter::new(&Sharing::Priority(4));
        let choice =
            |arbiter: &mut Arbiter, ready| arbiter.choose(ready).map(|c| (c.class, c.rank));
        assert_eq!(choice(&mut arbiter, 0b1010), Some((1, 1)));
        assert_eq!(choice(&mut arbiter, 0b1001), Some((0, 0)));
        assert_eq!(choice(&mut arbiter, 0), None);
    }

    #[test]
    fn a_high_table_without_limit_starves_the_low_one() {
        let tables = |high_limit| Sharing::Tables {
            high: vec![(0, 64)],
            low: vec![(1, 64)],
            high_limit,
        };
        let packets = |high_limit| sent(&tables(high_limit), 1_100, |_| 0b11, |_, _| 4_096);
        assert_eq!(packets(None), [1_100 * 4_096, 0]);
        // Ten units of 4096 B are ten packets, then the low table sends one.
        assert_eq!(packets(Some(10 * 4_096)), [1_000 * 4_096, 100 * 4_096]);
        // A limit of zero lets one packet of the high table pass at a time.
        assert_eq!(packets(Some(0)), [550 * 4_096, 550 * 4_096]);
    }

    #[test]
    fn a_low_packet_in_front_of_high_ones_has_their_rank() {
        let mut arbiter = Arbiter::new(&Sharing::Tables {
            high: vec![(0, 1)],
            low: vec![(1, 1)],
            high_limit: Some(1),
        });
        let mut next = |ready| {
            let choice = arbiter.choose(ready).expect("a class is ready");
            arbiter.charge(choice.class, 100);
            (choice.class, choice.rank)
        };
        assert_eq!(next(0b11), (0, 0));
        assert_eq!(next(0b11), (1, 0));
        assert_eq!(next(0b10), (1, 1));
    }

    #[test]
    fn table_entries_share_by_weight_and_what_exceeds_a_weight_is_not_paid_back() {
        let low = |weights: [u16; 2]| Sharing::Tables {
            high: Vec::new(),
            low: vec![(0, weights[0]), (1, weights[1])],
            high_limit: Some(0),
        };
        // 64 units are 4096 B.
        assert_eq!(
            sent(&low([64, 192]), 4_000, |_| 0b11, |_, _| 4_096),
            [1_000 * 4_096, 3_000 * 4_096]
        );
        // One unit lets a whole packet pass too.
        assert_eq!(
            sent(&low([1, 64]), 4_000, |_| 0b11, |_, _| 4_096),
            [2_000 * 4_096, 2_000 * 4_096]
        );
    }

    #[test]
    #[should_panic(expected = "class 1 would never send")]
    fn a_weight_of_zero_is_refused() {
        Arbiter::new(&Sharing::weighted(vec![1, 0]));
    }

    proptest! {
        /// While the same classes always have work, none is more than two turns and a packet from its share.
        #[test]
        fn weighted_classes_get_their_share_of_bytes(
            quanta in prop::collection::vec(4_352u64..40_000, 1..9),
            mask in 1u16..512,
            sizes in prop::collection::vec(60u64..4_352, 1..20),
            steps in 1u64..5_000,
        ) {
            let mask = mask & ((1 << quanta.len()) - 1);
            prop_assume!(mask != 0);
            let sharing = Sharing::weighted(quanta.clone());
            let sent = sent(&sharing, steps, |_| mask, |step, class| {
                sizes[(step as usize + usize::from(class)) % sizes.len()]
            });
            let present = |class: usize| mask & (1 << class) != 0;
            for first in (0..quanta.len()).filter(|&class| present(class)) {
                for second in (0..quanta.len()).filter(|&class| present(class)) {
                    let rounds = |class: usize| sent[class] as f64 / quanta[class] as f64;
                    prop_assert!((rounds(first) - rounds(second)).abs() <= 3.0, "{sent:?} of {quanta:?}");
                }
            }
            for class in (0..quanta.len()).filter(|&class| !present(class)) {
                prop_assert_eq!(sent[class], 0);
            }
        }

        /// While any class has work, one class sends at every step, and only classes with work send.
        #[test]
        fn every_arbiter_conserves_work(
            masks in prop::collection::vec(0u16..16, 1..300),
            limit in prop::option::of(0u64..20_000),
            split in 0usize..5,
        ) {
            let entries: Vec<(u8, u16)> = (0..4).map(|class| (class, 30 * u16::from(class) + 1)).collect();
            let tables = Sharing::Tables {
                high: entries[..split.min(4)].to_vec(),
                low: entries[split.min(4)..].to_vec(),
                high_limit: limit,
            };
            for sharing in [tables, Sharing::Priority(4), Sharing::weighted(vec![4_352, 1, 90_000, 7])] {
                sent(&sharing, masks.len() as u64, |step| masks[step as usize], |step, _| 60 + step * 7 % 4_000);
            }
        }
    }
}
