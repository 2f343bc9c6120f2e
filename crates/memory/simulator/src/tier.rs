//! One tier: channels that serve requests, and a queue with finitely many entries.
//!
//! Units: nanoseconds, requests per nanosecond. Method: requests spread over the channels at random; a channel is a server
//! whose service time varies (rows, turns of the bus), so that a request waits as in an M/G/1 queue. At most `entries`
//! requests are inside; the next one waits at the door, and keeps its request slot meanwhile.
//! Limits: reads and writes are alike.
//! Source: Mercury 5.3.2, figure 5.5.

/// Bytes of a request: one cache line.
pub(crate) const LINE: f64 = 64.0;

/// A tier's numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Memory, bytes.
    pub capacity: f64,
    /// Of an idle tier, nanoseconds.
    pub latency: f64,
    /// All channels, requests per nanosecond.
    pub rate: f64,
    /// Wait at a utilisation of one half, nanoseconds: service time of a channel, times half of one plus its variation.
    pub wait: f64,
    /// Response when all entries are in use, nanoseconds.
    pub full: f64,
    /// Rate then, requests per nanosecond.
    pub most: f64,
}

impl Tier {
    /// A tier of `bandwidth` GB/s over `channels`, whose service times have the squared variation `variation`.
    pub(crate) fn new(
        capacity: f64,
        latency: f64,
        (bandwidth, channels): (f64, f64),
        variation: f64,
        entries: f64,
    ) -> Self {
        let rate = bandwidth / LINE;
        let wait = channels / rate * (1.0 + variation) / 2.0;
        let mut tier = Self {
            capacity,
            latency,
            rate,
            wait,
            full: f64::INFINITY,
            most: rate,
        };
        // The rate grows with the response, so that there is one response at which `entries` requests are inside.
        let (mut low, mut high) = (latency, latency + entries / rate);
        while tier.served(high) * high < entries {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            match tier.served(middle) * middle < entries {
                true => low = middle,
                false => high = middle,
            }
        }
        tier.most = tier.served(high);
        tier.full = high;
        tier
    }

    /// Requests per nanosecond that the tier serves when they take `response` from the door on.
    pub(crate) fn served(&self, response: f64) -> f64 {
        if response >= self.full {
            return self.most;
        }
        let waited = (response - self.latency).max(0.0);
        self.rate * waited / (waited + self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier() -> Tier {
        Tier::new(1e9, 100.0, (128.0, 4.0), 1.0, 1_000.0)
    }

    #[test]
    fn half_of_the_rate_costs_the_wait_of_one_half() {
        let tier = tier();
        assert_eq!((tier.rate, tier.wait), (2.0, 2.0));
        assert_eq!(tier.served(100.0), 0.0);
        assert!((tier.served(102.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_more_requests_are_inside_than_there_are_entries() {
        let tier = tier();
        assert!((tier.most * tier.full - 1_000.0).abs() < 1e-6);
        assert_eq!(tier.served(1e9), tier.most);
        assert!(tier.most < tier.rate);
    }
}
