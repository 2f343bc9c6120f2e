//! What one receiving host decides: the grants, and the priorities of its senders.
//!
//! Priorities (Homa 3.4): of the `n` levels, unscheduled packets get the part that matches their part in the bytes
//! received, at least one and at most `n - 1`. Among message sizes the unscheduled levels are cut so that each carries
//! as many unscheduled bytes; the smallest sizes get level 0. The remaining levels are for granted packets: of k active
//! messages the one with the least left gets the highest of the *lowest* k levels, so that a new, shorter message
//! finds a higher level free.

/// Levels of a network at most.
const LEVELS_MAX: usize = isolane_network_scenario::model::CLASSES_MAX;

/// A message that waits for grants: packets left, age, flow.
pub(super) type Entry = (u32, u32, u32);

/// One receiving host.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// Messages not yet granted to their end, the least left first.
    pub(super) waiting: Vec<Entry>,
    /// Sizes of the messages seen since cutoffs were computed.
    sizes: Vec<u32>,
    /// Largest size of each unscheduled level but the last.
    cutoffs: [u32; LEVELS_MAX],
    unscheduled_levels: u8,
}

impl Receiver {
    /// A receiver that has seen nothing: half of the `levels` are unscheduled, cut evenly by size.
    pub(super) fn new(levels: u8, unscheduled_bytes: u64) -> Self {
        let unscheduled_levels = levels / 2;
        let mut cutoffs = [u32::MAX; LEVELS_MAX];
        for (index, cutoff) in cutoffs.iter_mut().enumerate() {
            let part = unscheduled_bytes * (index as u64 + 1) / u64::from(unscheduled_levels);
            *cutoff = narrow(part);
        }
        Self {
            waiting: Vec::new(),
            sizes: Vec::new(),
            cutoffs,
            unscheduled_levels,
        }
    }

    /// Level of the unscheduled packets of a message of `size`.
    pub(super) fn unscheduled_level(&self, size: u64) -> u8 {
        let last = self.unscheduled_levels - 1;
        let cutoffs = &self.cutoffs[..usize::from(last)];
        cutoffs
            .iter()
            .position(|&cutoff| size <= u64::from(cutoff))
            .map_or(last, |level| level as u8)
    }

    /// Levels for granted packets, which is how many messages are granted at once.
    pub(super) fn scheduled_levels(&self, levels: u8) -> usize {
        usize::from(levels - self.unscheduled_levels)
    }

    /// Level of the active message of `rank` (0 has the least left) of `active`.
    pub(super) fn scheduled_level(levels: u8, rank: usize, active: usize) -> u8 {
        levels - (active - rank) as u8
    }

    /// A message of `size` has begun to arrive; after `samples` of them the levels are divided again.
    pub(super) fn saw(&mut self, size: u64, samples: usize, levels: u8, unscheduled_bytes: u64) {
        self.sizes.push(narrow(size));
        if self.sizes.len() >= samples {
            self.divide(levels, unscheduled_bytes);
            self.sizes.clear();
        }
    }

    fn divide(&mut self, levels: u8, unscheduled_bytes: u64) {
        self.sizes.sort_unstable();
        let at_once = |&size: &u32| u64::from(size).min(unscheduled_bytes);
        let unscheduled: u64 = self.sizes.iter().map(at_once).sum();
        let all: u64 = self.sizes.iter().map(|&size| u64::from(size)).sum();
        // Rounded to the nearest level.
        let part = (2 * unscheduled * u64::from(levels) + all) / (2 * all);
        self.unscheduled_levels = (part as u8).clamp(1, levels - 1);
        let count = u64::from(self.unscheduled_levels);
        let (mut level, mut sum) = (0, 0);
        for size in &self.sizes {
            sum += at_once(size);
            while level + 1 < count && sum * count >= unscheduled * (level + 1) {
                self.cutoffs[level as usize] = *size;
                level += 1;
            }
        }
    }

    /// Puts a message into the order, or moves it from `old` packets left to `new`.
    pub(super) fn place(&mut self, old: Option<u32>, new: u32, serial: u32, flow: u32) {
        if let Some(old) = old {
            self.withdraw(old, serial, flow);
        }
        let entry = (new, serial, flow);
        let place = self
            .waiting
            .binary_search(&entry)
            .unwrap_or_else(|place| place);
        self.waiting.insert(place, entry);
    }

    /// Takes a message out.
    pub(super) fn withdraw(&mut self, left: u32, serial: u32, flow: u32) {
        if let Ok(place) = self.waiting.binary_search(&(left, serial, flow)) {
            self.waiting.remove(place);
        }
    }
}

fn narrow(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_only_leave_one_level_for_grants() {
        let mut receiver = Receiver::new(8, 50_800);
        for size in 0..100 {
            receiver.saw(100 + size, 100, 8, 50_800);
        }
        assert_eq!(receiver.scheduled_levels(8), 1);
        assert_eq!(receiver.unscheduled_level(100), 0);
        assert_eq!(receiver.unscheduled_level(1_000_000), 6);
        let levels: Vec<u8> = (100..200)
            .map(|size| receiver.unscheduled_level(size))
            .collect();
        assert!(levels.is_sorted());
        for level in 0..7 {
            let sizes = (100..200).zip(&levels);
            let own = sizes.filter(|&(_, &other)| other == level);
            let bytes: u64 = own.map(|(size, _)| size).sum();
            // A seventh of 14,950, give or take one message.
            assert!((1_935..=2_336).contains(&bytes), "level {level}: {bytes} B");
        }
    }

    #[test]
    fn large_messages_leave_one_level_for_what_is_unscheduled() {
        let mut receiver = Receiver::new(8, 50_800);
        for _ in 0..100 {
            receiver.saw(10_000_000, 100, 8, 50_800);
        }
        assert_eq!(receiver.scheduled_levels(8), 7);
        assert_eq!(receiver.unscheduled_level(1), 0);
    }

    #[test]
    fn active_messages_use_the_lowest_levels() {
        let levels = |active| {
            (0..active)
                .map(|rank| Receiver::scheduled_level(8, rank, active))
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(1), [7]);
        assert_eq!(levels(3), [5, 6, 7]);
    }
}
