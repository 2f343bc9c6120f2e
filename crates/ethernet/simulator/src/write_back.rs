//! How the card tells the host what it has finished.
//!
//! A descriptor is finished when its data is in the card's packet buffer; the last one of a segment asks for a report. Method: from
//! that one on the card counts what it finishes of a queue, and writes all of it back to the host's memory once there is enough. It
//! also writes everything of a vector's queues back before an interrupt of the vector, and when its timer is over, which begins with
//! the first report that waits and takes the vector's pause between interrupts. So the last segment of a queue that runs dry is
//! processed late.
//! Source: `ixgbe_configure_tx_ring` of Titan's driver (`WTHRESH`: 8, unless the vector may interrupt more than 100,000 times a second);
//! Intel's data sheet of the 82598, the same family: 3.5.3.3.1 (report), 3.5.3.3.4 (when it is written), 3.5.2.7 (before an interrupt;
//! it says so of received packets); Intel's manual of Gigabit controllers, 13.4.43 (counting begins after a report is asked
//! for). Limits: what a fetch finishes counts from its beginning, so a poll may see it one fetch early.

use crate::host::TxQueue;
use crate::world::{Event, World};
use isolane_common_quantities::units::Instant;

impl World {
    /// A packet of `queue` is fetched at `at`.
    pub(crate) fn finished(&mut self, host: u16, queue: u16, at: Instant) {
        let vector = self.settings.vector_of(queue);
        let entry = &mut self.hosts[usize::from(host)];
        let tx = &mut entry.queues[usize::from(queue)];
        let timer = &mut entry.vectors[usize::from(vector)];
        if tx.finished >= self.settings.write_back {
            if tx.write_back() {
                self.arm(host, vector, at);
            }
        } else if tx.sent.len() > tx.written_back && timer.flush == Instant::MAX {
            timer.flush = at + timer.moderation.pause;
            let event = Event::WriteBack { host, vector };
            self.events.schedule(timer.flush, event);
        }
    }

    /// The card's timer of a vector may be over.
    pub(crate) fn flush(&mut self, host: u16, vector: u16) {
        let timer = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)].flush;
        if *timer == self.now && self.write_back(host, vector) {
            self.arm(host, vector, self.now);
        }
    }

    /// The card writes back all that it has finished of a vector's queues. Whether there is a segment to process.
    pub(crate) fn write_back(&mut self, host: u16, vector: u16) -> bool {
        let entry = &mut self.hosts[usize::from(host)];
        entry.vectors[usize::from(vector)].flush = Instant::MAX;
        let mut any = false;
        for queue in 0..self.settings.queues {
            if self.settings.vector_of(queue) == vector {
                any |= entry.queues[usize::from(queue)].write_back();
            }
        }
        any
    }
}

impl TxQueue {
    /// The card writes back all that it has finished. Whether there is a segment to process.
    fn write_back(&mut self) -> bool {
        self.finished = 0;
        let before = std::mem::replace(&mut self.written_back, self.sent.len());
        before < self.written_back
    }
}

#[cfg(test)]
mod tests {
    use crate::run;
    use isolane_common_quantities::units::Duration;
    use isolane_ethernet_scenario::config::named;
    use isolane_ethernet_scenario::model::NicStudy;
    use isolane_ethernet_scenario::profile::NicProfile;

    /// At every event: what has ended and is not written back has fewer than eight descriptors after it, and a timer of one
    /// pause at most runs for it.
    #[test]
    fn nothing_waits_longer_than_the_pause_between_interrupts() {
        let config = named("C7").expect("a small byte limit");
        let mut study = NicStudy::of_paper(*config, 3, 1);
        study.warmup = Duration::from_ms(10);
        study.duration = Duration::from_ms(10);
        let mut world = run::world(&study, &NicProfile::of_paper());
        let (mut waited, mut flushed) = (0, 0);
        while let Some((now, event)) = world.events.pop_until(world.measure.until) {
            flushed += u32::from(matches!(event, crate::world::Event::WriteBack { .. }));
            world.handle(now, event);
            for host in &world.hosts {
                for (queue, tx) in host.queues.iter().enumerate() {
                    assert!(tx.finished < 8);
                    let Some(waiting) = tx.sent.len().checked_sub(tx.written_back) else {
                        panic!("more is written back than was sent");
                    };
                    if waiting > 0 {
                        waited += 1;
                        let vector = world.settings.vector_of(queue as u16);
                        let vector = &host.vectors[usize::from(vector)];
                        // The fetch that ends the segment takes 2 us at most; an interrupt may have changed the pause since.
                        let latest = now + Duration::from_us(84 + 2);
                        assert!(vector.flush <= latest);
                    }
                }
            }
        }
        assert!(waited > 0 && flushed > 0, "{waited} {flushed}");
    }
}
