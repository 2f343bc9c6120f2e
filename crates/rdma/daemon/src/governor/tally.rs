//! The weight of latency flows: each tenant or session with one counts once, by its weight.

/// All latency flows of a device, in [`super::device::Device::latency`].
pub(super) const ALL: usize = 0;
/// Those of them that READ. The device from which they READ delays their answers.
pub(super) const READERS: usize = 1;

/// Flows by the number of their tenant or session.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Number of flows, and the weight that counts.
    by_number: Vec<(u32, u32)>,
    /// Sum of the weights of numbers with a flow.
    pub(super) weight: u64,
}

impl Tally {
    /// Counts one more flow. Returns whether the weight changed.
    pub(super) fn add(&mut self, number: u32, weight: u32) -> bool {
        let at = number as usize;
        if self.by_number.len() <= at {
            self.by_number.resize(at + 1, (0, 0));
        }
        let (count, held) = &mut self.by_number[at];
        *count += 1;
        let is_first = *count == 1;
        if is_first {
            *held = weight;
            self.weight += u64::from(weight);
        }
        is_first
    }

    /// Counts one flow less. Returns whether the weight changed.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let (count, held) = &mut self.by_number[number as usize];
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.weight -= u64::from(*held);
        }
        is_last
    }

    /// Changes the weight of a number.
    pub(super) fn set_weight(&mut self, number: u32, weight: u32) {
        if let Some((count, held)) = self.by_number.get_mut(number as usize)
            && *count > 0
        {
            self.weight = self.weight - u64::from(*held) + u64::from(weight);
            *held = weight;
        }
    }
}
