//! Enforcers: they take calls, record them in the guardian's table, and answer; and their connection.

use super::kernel::{Call, Filter};
use isolane_common_quantities::rng::Stream;
use isolane_rdma_enforcer::guardian::custody::Successor;
use isolane_rdma_enforcer::guardian::kept::Trap;
use isolane_rdma_enforcer::guardian::table::Table;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

#[derive(Default)]
struct Pipe {
    messages: RefCell<VecDeque<(usize, Filter)>>,
    /// So many more listeners fit.
    room: Cell<Option<usize>>,
    loses: bool,
    sent: Cell<u64>,
}

/// A connection; each end has a copy.
#[derive(Clone)]
pub(super) struct Connection(Rc<Pipe>);

impl Connection {
    /// With `loses` it confirms one listener of three that it loses.
    pub(super) fn new(loses: bool) -> Self {
        Self(Rc::new(Pipe {
            loses,
            ..Pipe::default()
        }))
    }
}

impl Successor<Filter> for Connection {
    fn hand(&self, message: &[u8], listener: &Filter) -> bool {
        let room = self.0.room.get();
        if room == Some(0) {
            return false;
        }
        self.0.room.set(room.map(|room| room - 1));
        self.0.sent.set(self.0.sent.get() + 1);
        if self.0.loses && self.0.sent.get().is_multiple_of(3) {
            return true;
        }
        let slot = u32::from_le_bytes(message[1..5].try_into().expect("four bytes"));
        let handed = (slot as usize, listener.clone());
        self.0.messages.borrow_mut().push_back(handed);
        true
    }
}

/// A listener of an enforcer.
struct Watched {
    filter: Filter,
    /// Calls that it has received and not answered.
    open: BTreeSet<u64>,
    latest: Option<u64>,
    /// Whether the first call of the listener is recorded.
    is_recorded: bool,
}

/// What it does next with a listener.
#[derive(Clone, Copy)]
enum Next {
    /// The two words of the row are written one after the other.
    Oldest,
    Latest,
    /// With the defect: a call that is recorded as answered.
    Answer(u64),
}

pub(super) struct Enforcer {
    table: Table,
    connection: Connection,
    watched: BTreeMap<usize, Watched>,
    /// What a listener needs before its next call.
    next: VecDeque<(usize, Next)>,
    sheds: VecDeque<usize>,
}

impl Enforcer {
    pub(super) fn new(table: Table, connection: Connection) -> Self {
        Self {
            table,
            connection,
            watched: BTreeMap::new(),
            next: VecDeque::new(),
            sheds: VecDeque::new(),
        }
    }

    /// From now on `room` listeners fit into the connection, for a time.
    pub(super) fn fill(&self, room: usize) {
        self.connection.0.room.set(Some(room));
    }

    /// The next listener that it reports.
    pub(super) fn sheds(&mut self) -> Option<usize> {
        self.sheds.pop_front()
    }

    /// Calls that it has and will not answer. A first call that is not recorded is the documented exception.
    pub(super) fn orphans(self) -> u64 {
        let mut count = 0;
        for watched in self.watched.values() {
            count += watched.open.len() as u64;
            if !watched.is_recorded {
                let excused = watched.open.iter();
                excused.for_each(|&id| watched.filter.mark(id, Call::Excused));
            }
        }
        count
    }

    /// One step; a kill comes between two.
    pub(super) fn step(&mut self, stream: &mut Stream, records_early: bool) {
        if let Some((slot, next)) = self.next.pop_front() {
            self.go_on(slot, next);
            return;
        }
        if stream.chance(1, 100) {
            self.connection.0.room.set(None);
        }
        let handed = self.connection.0.messages.borrow_mut().pop_front();
        if let Some((slot, filter)) = handed {
            self.adopt(slot, filter);
            return;
        }
        let count = self.watched.len() as u64;
        let at = stream.below(count.max(1)) as usize;
        let Some((&slot, watched)) = self.watched.iter_mut().nth(at) else {
            return;
        };
        if !watched.filter.is_alive() {
            self.watched.remove(&slot);
            return;
        }
        let answers = stream.chance(1, 2);
        match watched.open.first().copied().filter(|_| answers) {
            Some(id) => {
                watched.open.remove(&id);
                self.next.push_back((slot, Next::Oldest));
                self.next.push_back((slot, Next::Latest));
                match records_early {
                    true => self.next.push_back((slot, Next::Answer(id))),
                    false => watched.filter.resume(id),
                }
            }
            None => match watched.filter.receive() {
                None => {}
                Some(Err(())) => {
                    self.watched.remove(&slot);
                    self.sheds.push_back(slot);
                }
                Some(Ok(id)) => {
                    watched.open.insert(id);
                    watched.latest = Some(id);
                    self.next.push_back((slot, Next::Oldest));
                    self.next.push_back((slot, Next::Latest));
                }
            },
        }
    }

    /// Answers what its predecessor may have taken.
    fn adopt(&mut self, slot: usize, filter: Filter) {
        let taken = self.table.perhaps_taken(slot);
        let is_recorded = !taken.is_empty();
        for id in taken.filter(|&id| filter.is_waiting(id)) {
            filter.resume(id);
        }
        self.table.set(slot, None, None);
        let watched = Watched {
            filter,
            open: BTreeSet::new(),
            latest: None,
            is_recorded,
        };
        self.watched.insert(slot, watched);
    }

    fn go_on(&mut self, slot: usize, next: Next) {
        let Some(watched) = self.watched.get_mut(&slot) else {
            return;
        };
        let oldest = watched.open.first().copied();
        match next {
            // A row keeps its latest number where none is given.
            Next::Oldest => self.table.set(slot, oldest, None),
            Next::Latest => {
                self.table.set(slot, oldest, watched.latest);
                watched.is_recorded |= watched.latest.is_some();
            }
            Next::Answer(id) => watched.filter.resume(id),
        }
    }
}
