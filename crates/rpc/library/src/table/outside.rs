//! Calls that another program decides with the table's probabilities, and latencies that are known between two bounds.
//!
//! Problem: the kernel decides on a message before any packet of it leaves, and reports the message at its end. Its
//! acknowledgement may be late, so only an interval of the latency is known. Method: [`Table::record`] counts the
//! decision and makes the ticket; [`Table::complete_between`] learns where both ends of the interval agree. Limits: the
//! probability of Aequitas only, because Aequitas 2 decides by time.

use super::{Ask, Table, Ticket, TicketError};

impl Table {
    /// Records a call that was decided with the probability of this table. `admitted` is the decision, `class` the class
    /// in which the call ran. Panics if the settings do not have a class.
    pub fn record(&self, ask: Ask<'_>, admitted: bool, class: u8, now_ns: u64) -> Ticket {
        assert!(
            usize::from(ask.class.max(class)) < self.classes,
            "no such class"
        );
        let slot = match self.index.find(self.keys.hash(ask.destination)) {
            Some(slot) => slot,
            None => self.newcomer(ask.destination, now_ns),
        };
        let cell = self.cell(slot, ask.class);
        cell.touch(now_ns, self.parameters.idle_after_ns());
        match admitted {
            true => cell.count_admitted(),
            false => cell.count_downgraded(),
        }
        let mtus = self.parameters.mtus(ask.bytes);
        Ticket::new(slot, cell.generation(), class, ask.class, mtus)
    }

    /// Reports the end of a call whose latency is from `shortest_ns` to `longest_ns`. It counts as met if the longest
    /// latency meets the objective, and as a miss if the shortest one does not. Otherwise nothing is learned. Returns
    /// whether the call met its objective, if that is known; a class without an objective has no misses. Fails as
    /// [`Table::complete`] does.
    pub fn complete_between(
        &self,
        ticket: Ticket,
        (shortest_ns, longest_ns): (u64, u64),
        now_ns: u64,
    ) -> Result<Option<bool>, TicketError> {
        let rule = self.parameters.rule(ticket.run_class());
        let met = |ns| rule.is_none_or(|rule| rule.is_met(ns, ticket.mtus()));
        let (latency_ns, met) = match (met(shortest_ns), met(longest_ns)) {
            (_, true) => (longest_ns, true),
            (false, false) => (shortest_ns, false),
            (true, false) => return Ok(None),
        };
        self.complete(ticket, latency_ns, now_ns)?;
        Ok(Some(met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    /// A table with an objective of 15 us for each packet of 1,460 bytes in class 0 of 2.
    fn table(mode: &str) -> Table {
        let text = format!(
            "mode = \"{mode}\"\n{}",
            include_str!("../../tests/data/two-classes.toml")
        );
        Table::new(&parse("t", &text).expect("settings"), 1, 0)
    }

    fn ask(class: u8) -> Ask<'static> {
        Ask {
            destination: b"host:1",
            class,
            bytes: 2_000,
        }
    }

    #[test]
    fn an_interval_counts_where_both_ends_agree() {
        let learned = |interval: (u64, u64)| {
            let table = table("enforce");
            let ticket = table.record(ask(0), true, 0, 1);
            let met = table.complete_between(ticket, interval, 1).expect("known");
            let counts = table.counts(b"host:1", 0).expect("known");
            (met, counts.ended(), counts.missed)
        };
        assert_eq!(learned((0, 29_999)), (Some(true), 1, 0));
        assert_eq!(learned((30_000, 90_000)), (Some(false), 1, 1));
        assert_eq!(learned((29_999, 30_000)), (None, 0, 0));
    }

    /// A message that was downgraded is one of the class that it asked for, and its time changes no probability.
    #[test]
    fn a_downgraded_call_is_counted_where_it_asked() {
        let table = table("enforce");
        let ticket = table.record(ask(0), false, 1, 1);
        let met = table.complete_between(ticket, (1 << 40, 1 << 40), 1);
        assert_eq!(met, Ok(Some(true)), "the lowest class has no objective");
        let counts = |class| table.counts(b"host:1", class).expect("known");
        assert_eq!((counts(0).issued(), counts(0).admitted), (1, 0));
        assert_eq!((counts(0).ended(), counts(1).ended()), (0, 1));
        let probability = table.probability(b"host:1", 0).expect("known");
        assert!((probability.as_f64() - 1.0).abs() < 1e-9);
    }
}
