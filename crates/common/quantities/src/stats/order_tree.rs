//! A multiset of `u64` that answers "which value has rank r": a counted B+ tree in one preallocated pool.
//!
//! Distinct values are in leaves with their multiplicity; a branch stores, for each child, a lower bound of its values
//! and the number of samples below it. Full nodes split and thin nodes refill on the way down, so insertion, removal
//! and selection are each one descent: O(log N) with nodes of 32 entries, which a window of 10,000 samples holds in
//! three levels. Nodes never move and freed ones are reused, so nothing is allocated after construction.
//!
//! Limits: at most 2^32 - 1 samples (counts are 32 bits wide).

/// The multiset.
#[derive(Clone, Debug)]
pub(super) struct OrderTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    /// Levels above the leaves.
    height: u32,
    /// Samples held, repeats included.
    total: u32,
}

impl OrderTree {
    /// An empty multiset with room for `capacity` samples.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let room = nodes_for(capacity);
        let mut tree = Self {
            nodes: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
            root: 0,
            height: 0,
            total: 0,
        };
        tree.clear();
        tree
    }

    /// Forgets all samples and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.free.clear();
        self.nodes.push(Node::EMPTY);
        self.root = 0;
        self.height = 0;
        self.total = 0;
    }

    /// Adds one sample.
    pub(super) fn insert(&mut self, value: u64) {
        if self.node(self.root).is_full() {
            self.grow();
        }
        self.total += 1;
        let mut at = self.root;
        for _ in 0..self.height {
            let mut slot = self.node(at).child_for(value);
            if self.node(self.node(at).children[slot]).is_full() {
                self.split_child(at, slot);
                slot += usize::from(self.node(at).keys[slot + 1] <= value);
            }
            let node = self.node_mut(at);
            node.counts[slot] += 1;
            at = node.children[slot];
        }
        let leaf = self.node_mut(at);
        let slot = leaf.slot_for(value);
        if slot < leaf.len() && leaf.keys[slot] == value {
            leaf.counts[slot] += 1;
        } else {
            leaf.insert_value(slot, value);
        }
    }

    /// Takes away one sample. Panics if `value` is not held.
    pub(super) fn remove(&mut self, value: u64) {
        self.total -= 1;
        let mut at = self.root;
        for _ in 0..self.height {
            let mut slot = self.node(at).child_for(value);
            if self.node(self.node(at).children[slot]).len() <= MIN_ENTRIES {
                self.refill_child(at, slot);
                slot = self.node(at).child_for(value);
            }
            let node = self.node_mut(at);
            node.counts[slot] -= 1;
            at = node.children[slot];
        }
        let leaf = self.node_mut(at);
        let slot = leaf.slot_for(value);
        assert!(
            slot < leaf.len() && leaf.keys[slot] == value,
            "the window holds {value}"
        );
        leaf.counts[slot] -= 1;
        if leaf.counts[slot] == 0 {
            leaf.remove_value(slot);
        }
        while self.height > 0 && self.node(self.root).len() == 1 {
            let only = self.node(self.root).children[0];
            self.free.push(self.root);
            self.root = only;
            self.height -= 1;
        }
    }

    /// The value with `rank` samples before it in sorted order. Panics if `rank` is not below the number of samples.
    pub(super) fn select(&self, rank: u32) -> u64 {
        assert!(rank < self.total, "rank {rank} of {}", self.total);
        let mut rank = rank;
        let mut at = self.root;
        for _ in 0..self.height {
            let node = self.node(at);
            at = node.children[node.slot_of_rank(&mut rank)];
        }
        let leaf = self.node(at);
        leaf.keys[leaf.slot_of_rank(&mut rank)]
    }

    /// Puts a new root with one child above the old one.
    fn grow(&mut self) {
        let old = self.root;
        let mut root = Node::EMPTY;
        // The lowest bound there is, so that every value has a child to go to.
        root.insert(0, 0, self.total, old);
        self.root = self.allocate(root);
        self.height += 1;
        self.split_child(self.root, 0);
    }

    /// Splits the full child at `slot` of `parent` in two halves.
    fn split_child(&mut self, parent: u32, slot: usize) {
        let child = self.node(parent).children[slot];
        let mut right = Node::EMPTY;
        self.node_mut(child).move_tail_to(CAPACITY / 2, &mut right);
        let (bound, moved) = (right.keys[0], right.samples());
        let right = self.allocate(right);
        let parent = self.node_mut(parent);
        parent.counts[slot] -= moved;
        parent.insert(slot + 1, bound, moved, right);
    }

    /// Gives the thin child at `slot` of `parent` entries of a neighbour, or joins the two.
    fn refill_child(&mut self, parent: u32, slot: usize) {
        let left_slot = slot.saturating_sub(1);
        let right_slot = left_slot + 1;
        let left_id = self.node(parent).children[left_slot];
        let right_id = self.node(parent).children[right_slot];
        let mut right = *self.node(right_id);
        let left = self.node_mut(left_id);
        let sum = left.len() + right.len();
        if sum <= JOINED_ENTRIES {
            let moved = right.samples();
            right.move_head_to(right.len(), left);
            self.free.push(right_id);
            let parent = self.node_mut(parent);
            parent.counts[left_slot] += moved;
            parent.remove(right_slot);
            return;
        }
        // The thin side gets the odd one.
        let left_target = if slot == left_slot {
            sum.div_ceil(2)
        } else {
            sum / 2
        };
        if left.len() > left_target {
            left.move_tail_to(left_target, &mut right);
        } else {
            right.move_head_to(left_target - left.len(), left);
        }
        let left_samples = left.samples();
        *self.node_mut(right_id) = right;
        let parent = self.node_mut(parent);
        let both = parent.counts[left_slot] + parent.counts[right_slot];
        parent.counts[left_slot] = left_samples;
        parent.counts[right_slot] = both - left_samples;
        parent.keys[right_slot] = right.keys[0];
    }

    fn allocate(&mut self, node: Node) -> u32 {
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.nodes[id as usize]
    }
}

/// A leaf or a branch. In a leaf a key is a value, a count its multiplicity, and children are unused. In a
/// branch a key is a lower bound of the child's values (and above all values of the child before it), and a
/// count is the number of samples below the child. Unused entries hold zero.
#[derive(Clone, Copy, Debug)]
struct Node {
    keys: [u64; CAPACITY],
    counts: [u32; CAPACITY],
    children: [u32; CAPACITY],
    used: u32,
}

impl Node {
    const EMPTY: Self = Self {
        keys: [0; CAPACITY],
        counts: [0; CAPACITY],
        children: [0; CAPACITY],
        used: 0,
    };

    fn len(&self) -> usize {
        self.used as usize
    }

    fn is_full(&self) -> bool {
        self.len() == CAPACITY
    }

    fn keys(&self) -> &[u64] {
        &self.keys[..self.len()]
    }

    fn samples(&self) -> u32 {
        self.counts[..self.len()].iter().sum()
    }

    /// The child whose range has `value`; the first key of a branch is at or below every value sent to it.
    fn child_for(&self, value: u64) -> usize {
        self.count_keys(|key| key <= value) - 1
    }

    /// The position of `value` in a leaf, or the position to insert it.
    fn slot_for(&self, value: u64) -> usize {
        self.count_keys(|key| key < value)
    }

    /// Counts the first keys for which `goes_before` holds. Keys are sorted, but looking at all of them has no
    /// branch to mispredict and beats a binary search by a fifth.
    fn count_keys(&self, goes_before: impl Fn(u64) -> bool) -> usize {
        let keys = self.keys().iter();
        keys.map(|&key| usize::from(goes_before(key))).sum()
    }

    /// The entry with the sample of this rank; leaves in `rank` the rank within the entry.
    fn slot_of_rank(&self, rank: &mut u32) -> usize {
        let mut slot = 0;
        while *rank >= self.counts[slot] {
            *rank -= self.counts[slot];
            slot += 1;
        }
        slot
    }

    /// Makes room at `slot` of a branch for one more child.
    fn insert(&mut self, slot: usize, key: u64, count: u32, child: u32) {
        let len = self.len();
        self.children.copy_within(slot..len, slot + 1);
        self.children[slot] = child;
        self.insert_value(slot, key);
        self.counts[slot] = count;
    }

    fn remove(&mut self, slot: usize) {
        let len = self.len();
        self.children.copy_within(slot + 1..len, slot);
        self.remove_value(slot);
    }

    /// Makes room at `slot` of a leaf for a value that occurs once.
    fn insert_value(&mut self, slot: usize, value: u64) {
        let len = self.len();
        self.keys.copy_within(slot..len, slot + 1);
        self.counts.copy_within(slot..len, slot + 1);
        self.keys[slot] = value;
        self.counts[slot] = 1;
        self.used += 1;
    }

    fn remove_value(&mut self, slot: usize) {
        let len = self.len();
        self.keys.copy_within(slot + 1..len, slot);
        self.counts.copy_within(slot + 1..len, slot);
        self.used -= 1;
    }

    /// Moves the entries from `start` on to the front of `right`.
    fn move_tail_to(&mut self, start: usize, right: &mut Self) {
        let (len, moved) = (self.len(), self.len() - start);
        right.keys.copy_within(..CAPACITY - moved, moved);
        right.counts.copy_within(..CAPACITY - moved, moved);
        right.children.copy_within(..CAPACITY - moved, moved);
        right.keys[..moved].copy_from_slice(&self.keys[start..len]);
        right.counts[..moved].copy_from_slice(&self.counts[start..len]);
        right.children[..moved].copy_from_slice(&self.children[start..len]);
        right.used += moved as u32;
        self.used = start as u32;
    }

    /// Moves the first `moved` entries to the back of `left`.
    fn move_head_to(&mut self, moved: usize, left: &mut Self) {
        let at = left.len();
        left.keys[at..at + moved].copy_from_slice(&self.keys[..moved]);
        left.counts[at..at + moved].copy_from_slice(&self.counts[..moved]);
        left.children[at..at + moved].copy_from_slice(&self.children[..moved]);
        left.used += moved as u32;
        self.keys.copy_within(moved.., 0);
        self.counts.copy_within(moved.., 0);
        self.children.copy_within(moved.., 0);
        self.used -= moved as u32;
    }
}

/// An upper bound of the nodes that `capacity` samples need: every node but the root has at least
/// [`MIN_ENTRIES`] entries.
fn nodes_for(capacity: usize) -> usize {
    let mut nodes = 1;
    let mut level = capacity / MIN_ENTRIES;
    while level > 0 {
        nodes += level + 1;
        level /= MIN_ENTRIES;
    }
    nodes
}

/// Entries of a node: the keys fill four cache lines, and half of them is a short move.
const CAPACITY: usize = 32;

/// A node on the way of a removal has more entries than this. Well below half, so that a node just split is
/// not joined again at once.
const MIN_ENTRIES: usize = 10;

/// Two neighbours with no more entries than this become one, which is then neither thin nor nearly full.
const JOINED_ENTRIES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    impl OrderTree {
        /// Asserts every invariant below node `id` and returns its samples.
        fn check(&self, id: u32, level: u32, low: u64, high: Option<u64>) -> u32 {
            let node = self.node(id);
            assert!(id == self.root || node.len() >= MIN_ENTRIES, "thin node");
            assert!(node.keys().is_sorted_by(|a, b| a < b), "unsorted keys");
            assert!(node.keys().iter().all(|&key| key >= low), "below bound");
            if let Some(high) = high {
                assert!(node.keys().iter().all(|&key| key < high), "above bound");
            }
            for slot in (0..node.len()).filter(|_| level > 0) {
                let next = node.keys().get(slot + 1).copied().or(high);
                let below = self.check(node.children[slot], level - 1, node.keys[slot], next);
                assert_eq!(below, node.counts[slot]);
            }
            node.samples()
        }
    }

    #[test]
    fn invariants_and_room_hold_while_the_window_drifts() {
        let capacity = 5_000;
        let mut tree = OrderTree::with_capacity(capacity);
        let room = (tree.nodes.capacity(), tree.free.capacity());
        let mut stream = crate::rng::Stream::named(1, "tree");
        let mut window = std::collections::VecDeque::new();
        for step in 0..60_000u64 {
            if window.len() == capacity {
                tree.remove(window.pop_front().expect("the window is full"));
            }
            // Rising, falling, clustered and scattered values in turn.
            let value = match step / 7_000 % 4 {
                0 => step * 10,
                1 => 600_000 - step * 10,
                2 => stream.below(50),
                _ => stream.next_u64(),
            };
            window.push_back(value);
            tree.insert(value);
            if step % 500 == 0 {
                assert_eq!(tree.check(tree.root, tree.height, 0, None), tree.total);
            }
        }
        while let Some(value) = window.pop_front() {
            tree.remove(value);
        }
        assert_eq!((tree.total, tree.height), (0, 0));
        assert_eq!((tree.nodes.capacity(), tree.free.capacity()), room);
    }
}
