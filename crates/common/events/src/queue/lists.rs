//! Lists of events in one slab.
//!
//! Problem: thousands of lists grow and shrink all the time, most of them hold no event or one, and nothing may be allocated for
//! one. Method: a list is the number of its newest node, from which each node leads to the next older; free nodes form a
//! list of their own. Limits: 2^32 - 1 nodes.

/// The end of a list, or an empty one.
pub(super) const NIL: u32 = u32::MAX;

/// The slab that holds the events of all lists.
#[derive(Clone, Debug)]
pub(super) struct Lists<E> {
    pub(super) nodes: Vec<Node<E>>,
    /// First node that is in no list.
    pub(super) free: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node<E> {
    pub(super) time: u64,
    /// The next older of the list; while the open slot is sorted, the place in its list.
    pub(super) next: u32,
    pub(super) event: E,
}

impl<E> Default for Lists<E> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
        }
    }
}

impl<E: Copy> Lists<E> {
    /// Puts an event in front of the list that begins with `newest`. There is a free node.
    #[inline(always)]
    pub(super) fn push(&mut self, newest: &mut u32, time: u64, event: E) {
        let node = &mut self.nodes[self.free as usize];
        let next = std::mem::replace(newest, self.free);
        self.free = node.next;
        *node = Node { time, next, event };
    }

    /// Keeps an event in a node that is in no list yet. Panics if 2^32 - 1 nodes are in use.
    #[inline(always)]
    pub(super) fn keep(&mut self, time: u64, event: E) -> u32 {
        let index = self.free;
        if index == NIL {
            let next = NIL;
            self.nodes.push(Node { time, next, event });
            return self.last();
        }
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.time = time;
        node.event = event;
        index
    }

    /// The number of the newest node of the slab.
    #[cold]
    #[inline(never)]
    fn last(&self) -> u32 {
        let index = u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 pending events");
        assert!(index != NIL, "more than 2^32 - 1 pending events");
        index
    }

    /// Puts a node in front of the list that begins with `newest`.
    #[inline(always)]
    pub(super) fn put_in_front(&mut self, newest: &mut u32, index: u32) {
        self.nodes[index as usize].next = std::mem::replace(newest, index);
    }

    /// The nodes of a list from `newest` to `oldest` are free.
    #[inline]
    pub(super) fn release(&mut self, newest: u32, oldest: u32) {
        self.nodes[oldest as usize].next = self.free;
        self.free = newest;
    }

    /// Lets each node of a list lead to the next newer; the first of them, the oldest.
    pub(super) fn reverse(&mut self, newest: u32) -> u32 {
        let (mut index, mut newer) = (newest, NIL);
        while index != NIL {
            let older = std::mem::replace(&mut self.nodes[index as usize].next, newer);
            newer = index;
            index = older;
        }
        newer
    }

    /// The earliest time of the list that begins with `newest`.
    pub(super) fn earliest(&self, newest: u32) -> u64 {
        let mut index = newest;
        let mut earliest = u64::MAX;
        while index != NIL {
            let node = &self.nodes[index as usize];
            earliest = earliest.min(node.time);
            index = node.next;
        }
        earliest
    }
}
