//! Datagram queue pairs that send to several peers.
//!
//! Problem: a thread of an application on datagrams has one queue pair for all its peers, so it waits for one turn where
//! a connection to each peer would wait for several. Method: each peer's part is a pair of the model, with its own ring
//! and receiver. At most one part of a queue pair waits in the schedule queue or is served. After each message the turn
//! passes to the part whose next message was posted first. Limits: each part has a context in the caches, and a part
//! that waits for a cache miss does not hold up the others; where a policy schedules chunks, parts are separate.

use super::lanes::Served;
use super::world::World;

impl<const RECORDS: bool> World<RECORDS> {
    /// Makes `parts` one datagram queue pair.
    pub(crate) fn share_datagrams(&mut self, parts: Vec<u32>) {
        let number = self.datagrams.len() as u32;
        for &part in &parts {
            let part = &mut self.pairs[part as usize];
            part.shares = true;
            part.datagrams = number;
        }
        self.datagrams.push(parts);
    }

    /// Whether another part of this pair's queue pair has its place in the schedule queue.
    #[cold]
    pub(crate) fn another_part_waits(&self, pair: u32) -> bool {
        let state = &self.pairs[pair as usize];
        let lanes = &self.nics[usize::from(state.host)].lanes;
        if lanes.lanes.iter().any(|lane| lane.chunks.is_some()) {
            return false;
        }
        let parts = &self.datagrams[state.datagrams as usize];
        parts
            .iter()
            .any(|&part| self.pairs[part as usize].scheduled)
    }

    /// The part whose message is next in the turn of `pair`, and whether there is one.
    #[cold]
    pub(crate) fn next_part(
        &mut self,
        now: u64,
        (host, lane, engine): (usize, usize, usize),
        pair: u32,
        served: Served,
    ) -> (Served, u32) {
        let parts = &self.datagrams[self.pairs[pair as usize].datagrams as usize];
        let ready = parts.iter().filter(|&&part| self.request_ready(now, part));
        let posted_first = ready.min_by_key(|&&part| {
            let state = &self.pairs[part as usize];
            state.post_time(state.work_request(state.sent).message)
        });
        let Some(&next) = posted_first else {
            return (served, pair * 2);
        };
        if next != pair {
            let queued_at = self.pairs[pair as usize].queued_at;
            self.pairs[pair as usize].scheduled = false;
            let state = &mut self.pairs[next as usize];
            state.scheduled = true;
            state.queued_at = queued_at;
            self.nics[host].lanes.lanes[lane].engines[engine].context = next * 2;
        }
        (Served::More, next * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    /// Two threads on each of two hosts call each other: each has three peers to call and three to answer.
    fn threads(transport: &str) -> World {
        let library = Library::embedded();
        let text = format!(
            "profile = \"cx3pro-56g-ib\"\ntopology = \"switch\"\nwarmup = \"0us\"\nduration = \"200us\"\n\
             [[tenant]]\nname = \"one\"\n[[tenant.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\n\
             servers = \"others\"\ntransport = \"{transport}\"\nthreads = 2\nwindow = 24\nbatch = 8\n\
             request = [32]\nresponse = [32]\n"
        );
        let scenario = isolane_rdma_scenario::parse(&text, "threads.toml", &library);
        let scenario = scenario.expect("well-formed");
        let profile = library.profile("cx3pro-56g-ib").expect("shipped");
        World::build(&scenario, profile).expect("it can be built")
    }

    #[test]
    fn a_thread_has_one_queue_pair_for_its_datagrams_and_one_place_in_the_schedule_queue() {
        let mut world = threads("ud");
        assert_eq!(world.datagrams.len(), 4);
        let mut waited_with_others_ready = 0;
        while world.step() {
            for parts in &world.datagrams {
                assert_eq!(parts.len(), 6);
                let scheduled = |part: &&u32| world.pairs[**part as usize].scheduled;
                let ready = parts.iter().filter(|part| {
                    let state = &world.pairs[**part as usize];
                    state.sent < state.fetched && !state.parked
                });
                let (ready, scheduled) = (ready.count(), parts.iter().filter(scheduled).count());
                assert!(scheduled <= 1, "{scheduled} of {parts:?}");
                assert_eq!(
                    scheduled,
                    ready.min(1),
                    "a part with work waits for no turn"
                );
                waited_with_others_ready += u32::from(ready > 1);
            }
        }
        assert!(waited_with_others_ready > 100, "{waited_with_others_ready}");
        assert!(world.pairs.iter().all(|pair| pair.received > 100));
    }

    #[test]
    fn connections_have_a_queue_pair_for_each_peer() {
        let world = threads("rc");
        assert_eq!((world.datagrams.len(), world.pairs.len()), (0, 24));
    }
}
