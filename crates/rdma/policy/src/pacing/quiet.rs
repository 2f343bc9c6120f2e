//! Which flow has been quiet the longest.
//!
//! Problem: find flows that did nothing for a while, among thousands, without a timer per flow or a scan.
//! Method: a doubly linked list in order of last activity, kept inside one array. Time only moves forward, so
//! an active flow goes to the tail and the head is the quietest. Every operation is O(1).

use isolane_common_quantities::units::Instant;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    since: Instant,
    listed: bool,
}

/// Flows numbered from zero, in order of last activity.
#[derive(Clone, Debug)]
pub(crate) struct QuietList {
    links: Vec<Link>,
    head: u32,
    tail: u32,
}

impl Default for QuietList {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            head: NONE,
            tail: NONE,
        }
    }
}

impl QuietList {
    /// One more flow exists; it is not listed.
    pub(crate) fn join(&mut self) {
        self.links.push(Link {
            previous: NONE,
            next: NONE,
            since: Instant::ZERO,
            listed: false,
        });
    }

    /// True while `flow` is listed.
    pub(crate) fn contains(&self, flow: u32) -> bool {
        self.links[flow as usize].listed
    }

    /// `flow` did something: it is listed, as the most active.
    #[inline]
    pub(crate) fn touch(&mut self, now: Instant, flow: u32) {
        if self.tail != flow {
            self.remove(flow);
            let tail = self.tail;
            match self.links.get_mut(tail as usize) {
                Some(last) => last.next = flow,
                None => self.head = flow,
            }
            let link = &mut self.links[flow as usize];
            (link.previous, link.next, link.listed) = (tail, NONE, true);
            self.tail = flow;
        }
        self.links[flow as usize].since = now;
    }

    /// Takes `flow` off the list, if it is there.
    #[inline]
    pub(crate) fn remove(&mut self, flow: u32) {
        let Link {
            previous,
            next,
            listed,
            ..
        } = self.links[flow as usize];
        if !listed {
            return;
        }
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => self.head = next,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = previous,
            None => self.tail = previous,
        }
        self.links[flow as usize].listed = false;
    }

    /// The quietest flow, and when it was last active.
    #[inline]
    pub(crate) fn quietest(&self) -> Option<(u32, Instant)> {
        let link = self.links.get(self.head as usize)?;
        Some((self.head, link.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle is a vector in order of activity.
        #[test]
        fn the_list_agrees_with_a_vector(steps in prop::collection::vec((0u32..5, 0u8..3), 1..200)) {
            let mut list = QuietList::default();
            (0..5).for_each(|_| list.join());
            let mut model: Vec<(u32, Instant)> = Vec::new();
            for (time, (flow, step)) in steps.into_iter().enumerate() {
                let now = Instant::from_ps(time as u64);
                model.retain(|&(other, _)| other != flow);
                if step == 0 {
                    list.remove(flow);
                } else {
                    list.touch(now, flow);
                    model.push((flow, now));
                }
                prop_assert_eq!(list.quietest(), model.first().copied());
                for flow in 0..5 {
                    prop_assert_eq!(list.contains(flow), model.iter().any(|&(other, _)| other == flow));
                }
            }
        }
    }
}
