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
//! what a worse rank has read ahead of the wire gives way to a better one. A decision costs a few steps over at most
//! [`CLASSES_MAX`] classes, and allocates nothing.

/// Classes of one port at most (IB has 16 virtual lanes, IEEE 802.1Q eight priorities).
pub(crate) const CLASSES_MAX: usize = 16;
/// Bytes in a unit of a table entry's weight.
const WEIGHT_UNIT: i64 = 64;

/// A choice: the class, and the rank its packet has on the wire, 0 first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) class: u8,
    pub(crate) rank: u8,
}

/// How a port is shared, as a setup says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// So many classes, the first one first.
    Priority(usize),
    /// Bytes each class may send in its turn; the classes in `first` (bit by class) before all others.
    Weighted { first: u16, quanta: Vec<u64> },
    /// Classes with weights in units of 64 B, and the high table's limit in bytes (none: no limit).
    Tables {
        high: Vec<(u8, u16)>,
        low: Vec<(u8, u16)>,
        high_limit: Option<u64>,
    },
}

/// The arbiter of one port.
#[derive(Clone, Debug)]
pub(crate) enum Arbiter {
    Priority,
    Weighted(Weighted),
    Tables(Tables),
}

impl Sharing {
    /// Classes it knows.
    pub(crate) fn classes(&self) -> usize {
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
    pub(crate) fn ranks(&self) -> usize {
        match self {
            Self::Priority(classes) => *classes,
            Self::Weighted { first, .. } => 1 + usize::from(*first != 0),
            Self::Tables { .. } => 2,
        }
    }
}

impl Arbiter {
    /// An arbiter that has sent nothing yet.
    pub(crate) fn new(sharing: &Sharing) -> Self {
        assert!(
            (1..=CLASSES_MAX).contains(&sharing.classes()),
            "a port has 1 to {CLASSES_MAX} classes"
        );
        match sharing {
            Sharing::Priority(_) => Self::Priority,
            Sharing::Weighted { first, quanta } => Self::Weighted(Weighted::new(*first, quanta)),
            Sharing::Tables {
                high,
                low,
                high_limit,
            } => Self::Tables(Tables {
                high: Table::new(high),
                low: Table::new(low),
                high_limit: *high_limit,
                sent_high: 0,
                from_high: false,
            }),
        }
    }

    /// The class that sends next among those in `ready` (bit by class); `None` exactly when there are none.
    #[inline]
    pub(crate) fn choose(&mut self, ready: u16) -> Option<Choice> {
        if ready == 0 {
            return None;
        }
        Some(match self {
            Self::Priority => {
                let class = ready.trailing_zeros() as u8;
                Choice { class, rank: class }
            }
            Self::Weighted(weighted) => {
                let rank = weighted.rank(ready);
                let first = weighted.first;
                let ready = if first & ready == 0 {
                    ready
                } else {
                    first & ready
                };
                Choice {
                    class: weighted.choose(ready),
                    rank,
                }
            }
            Self::Tables(tables) => tables.choose(ready),
        })
    }

    /// The chosen `class` has sent `bytes`; none when its packet had to wait after all.
    #[inline]
    pub(crate) fn charge(&mut self, class: u8, bytes: u64) {
        match self {
            Self::Priority => {}
            Self::Weighted(weighted) => weighted.credit[usize::from(class)] -= bytes as i64,
            Self::Tables(tables) => tables.charge(bytes),
        }
    }

    /// The best rank among the classes in `ready`, which must not be empty.
    #[inline]
    pub(crate) fn best_rank(&self, ready: u16) -> u8 {
        match self {
            Self::Priority => ready.trailing_zeros() as u8,
            Self::Weighted(weighted) => weighted.rank(ready),
            Self::Tables(tables) => u8::from(ready & tables.high.classes == 0),
        }
    }
}

/// Deficit round robin with overdraft.
#[derive(Clone, Debug)]
pub(crate) struct Weighted {
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

    /// 0 for the classes that go first, and for all where none does.
    #[inline]
    fn rank(&self, ready: u16) -> u8 {
        u8::from(self.first != 0 && ready & self.first == 0)
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
            }
        }
    }
}

/// The high and the low table.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    high: Table,
    low: Table,
    high_limit: Option<u64>,
    /// Bytes the high table has sent since the low one last had its chance.
    sent_high: u64,
    /// The last choice came from the high table.
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
    /// Bytes the entry at hand may still send.
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
