//! Looking up what a message needs: contexts, regions and translations (stage 5).
//!
//! Each lookup reads a cache; a miss takes a slot for its PCIe read, and returns the time at which the metadata is
//! there. A pair that misses is set aside by the caller; when every slot is taken the processing unit waits for one.
//! Only a message's first page can stall it: the later ones are read ahead.

use super::access::{Access, End, Object, Owner};
use super::event::Event;
use super::process::is_multiple;
use super::sizes::{CONTEXT_BYTES, PAGE, PAGES_PER_REGION_MAX, REMOTE_END};
use super::trace::record::Timeline;
use super::trace::{CacheName, Resource};
use super::world::World;

impl World {
    /// Looks up the metadata of the next request in the caches; true when the pair has to wait and was set aside.
    pub(crate) fn look_up_request(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        needs_memory: bool,
    ) -> bool {
        let process = self.pairs[pair as usize].process;
        let own = Access::of(pair, End::Requester, Object::PairContext, 0, CONTEXT_BYTES);
        let mut done = self.look_up_context(now, host, u64::from(pair) * 2, own, true);
        // The completion queue's context lives in the same cache; one queue per process.
        let queue = Access {
            object: Object::QueueContext,
            ..own
        };
        let key = CONTEXT_OF_QUEUE | u64::from(process);
        done = done.max(self.look_up_context(now, host, key, queue, true));
        if needs_memory {
            let ahead = self.device.micro.list_lookahead && !self.starts_list(pair);
            let elements = self.pairs[pair as usize]
                .work_request(self.pairs[pair as usize].sent)
                .elements;
            for _ in 0..elements {
                let there = self.look_up_memory(now, host, pair, false, true);
                done = done.max(if ahead { 0 } else { there });
            }
        }
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.resolved = true;
        queue_pair.parked = done > 0;
        if done > 0 {
            self.schedule(
                done,
                Event::Resolved {
                    pair,
                    response: false,
                },
            );
        }
        done > 0
    }

    /// Whether the current request is the first of its list.
    fn starts_list(&self, pair: u32) -> bool {
        let queue_pair = &self.pairs[pair as usize];
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        let message = queue_pair.work_request(queue_pair.sent).message;
        is_multiple(message, plan.post_list)
    }

    /// The tenant for whom the NIC fetches what `access` touches.
    fn owner_of(&self, access: Access) -> u16 {
        match access.owner {
            Owner::Pair(pair) => self.pairs[pair as usize].tenant,
            Owner::Loop(index) => self.loops[index as usize].tenant,
            Owner::Host => self.running.len() as u16 - 1,
        }
    }

    /// Looks a context up; when it is there, ps, or zero for a hit.
    pub(crate) fn look_up_context(
        &mut self,
        now: u64,
        host: usize,
        key: u64,
        access: Access,
        requester: bool,
    ) -> u64 {
        let owner = self.owner_of(access);
        let hit = self.nics[host].contexts.touch(key, owner);
        self.trace_lookup(host, CacheName::Contexts, key, (hit, true));
        if hit {
            return 0;
        }
        let nic = &mut self.nics[host];
        let at = now.max(if requester {
            nic.requester_free
        } else {
            nic.responder_free
        });
        let miss = nic.context_slots.take(at, owner);
        // A NIC that keeps its tenants apart lets a miss wait by itself.
        let waits_alone = nic.apart.is_some();
        let (unit, lane) = if requester {
            (&mut nic.requester_free, Timeline::Requester)
        } else {
            (&mut nic.responder_free, Timeline::Responder)
        };
        let before = *unit;
        if !waits_alone {
            *unit = before.max(miss.started);
        }
        self.traced(move |tracer| {
            tracer.missed(host, CacheName::Contexts, lane, (before, at), &miss)
        });
        self.pcie_in(host, at, CONTEXT_BYTES, access);
        // The one it takes the place of goes back; a model of the cache by keys does not know whose it was.
        self.pcie_out(host, at, CONTEXT_BYTES, access);
        miss.done
    }

    /// Looks the next buffer's region and translation up; when both are there, ps, or zero for hits.
    pub(crate) fn look_up_memory(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        remote: bool,
        requester: bool,
    ) -> u64 {
        let (region, page) = self.next_address(pair, remote);
        let entry = page >> self.device.micro.translation_shift;
        let owner = self.pairs[pair as usize].tenant;
        let nic = &mut self.nics[host];
        let (unit, lane) = if requester {
            (&mut nic.requester_free, Timeline::Requester)
        } else {
            (&mut nic.responder_free, Timeline::Responder)
        };
        // Deregistration stalls the sender's translations only: receivers see next to nothing (husky 4.3.2).
        let free = now.max(*unit);
        let blocked = nic.translation_blocked;
        if requester && blocked > free {
            nic.count.translation_stall += blocked - free;
            *unit = blocked;
            if let Some(tracer) = &mut self.trace {
                tracer.stalled(host, lane, (free, blocked), Resource::DeregistrationStall);
            }
        }
        let before = *unit;
        let at = now.max(before);
        let known = nic.protections.touch(region, owner);
        let translated = nic.translations.touch(entry, owner);
        let blocked = match &nic.apart {
            Some(apart) if requester => apart.translation_blocked[usize::from(owner)],
            _ => 0,
        };
        if known && translated {
            self.trace_lookup(host, CacheName::Protections, region, (true, true));
            self.trace_lookup(host, CacheName::Translations, entry, (true, true));
            return if blocked > at { blocked } else { 0 };
        }
        let miss = nic.translation_slots.take(at.max(blocked), owner);
        let levels = self.device.micro.dependent_translation && !known && !translated;
        let done = match levels {
            true => nic.translation_slots.take(miss.done, owner).done,
            false => miss.done,
        };
        if nic.apart.is_none() {
            *unit = before.max(miss.started);
        }
        self.trace_lookup(host, CacheName::Protections, region, (known, true));
        self.trace_lookup(host, CacheName::Translations, entry, (translated, true));
        self.traced(move |t| t.missed(host, CacheName::Translations, lane, (before, at), &miss));
        let access = translation(pair, remote, 0, TRANSLATION_READ);
        self.pcie_in(host, at, TRANSLATION_READ + self.device.tlp, access);
        done
    }

    /// Region and page of the next message at one end; keys of the two ends never meet.
    fn next_address(&mut self, pair: u32, remote: bool) -> (u64, u64) {
        let queue_pair = &self.pairs[pair as usize];
        let process = &self.processes[queue_pair.process as usize];
        let (regions, pages) = (process.regions, process.pages_per_region);
        let (region, offset) = if process.random_access {
            (self.addresses.below(regions), self.addresses.below(pages))
        } else {
            (0, u64::from(queue_pair.ordinal) % pages)
        };
        let end = if remote { REMOTE_END } else { 0 };
        let queue_pair = &mut self.pairs[pair as usize];
        let region = queue_pair.region_base + region;
        let page = region * PAGES_PER_REGION_MAX + offset + end;
        if remote {
            queue_pair.remote_page = page;
        } else {
            queue_pair.local_page = page;
        }
        (region + end, page)
    }

    /// Later pages of the current message are translated ahead of use: they cost reads and cache entries, not time.
    pub(crate) fn prefetch_translation(
        &mut self,
        host: usize,
        pair: u32,
        remote: bool,
        offset: u64,
        payload: u64,
    ) {
        let last = (offset + payload - 1) / PAGE;
        if offset / PAGE == last && !offset.is_multiple_of(PAGE) {
            return;
        }
        let queue_pair = &self.pairs[pair as usize];
        let first = if remote {
            queue_pair.remote_page
        } else {
            queue_pair.local_page
        };
        let entry = (first + last) >> self.device.micro.translation_shift;
        let owner = queue_pair.tenant;
        let nic = &mut self.nics[host];
        if !nic.translations.insert(entry, owner) {
            nic.count.translation_prefetches += 1;
            let at = nic.pcie_in_free;
            self.trace_lookup(host, CacheName::Translations, entry, (false, false));
            let bytes = TRANSLATION_READ / TRANSLATIONS_PER_READ;
            let access = translation(pair, remote, last * PAGE, bytes);
            self.pcie_in(host, at, bytes, access);
        }
    }
}

/// The translation of byte `offset` of the current message.
const fn translation(pair: u32, remote: bool, offset: u64, bytes: u64) -> Access {
    let end = if remote {
        End::Responder
    } else {
        End::Requester
    };
    Access::of(pair, end, Object::Translation, offset, bytes)
}

/// Key space of completion queue contexts.
const CONTEXT_OF_QUEUE: u64 = 1 << 62;
/// Bytes of one translation read.
const TRANSLATION_READ: u64 = 64;
/// Translations fetched by one 64 B read.
const TRANSLATIONS_PER_READ: u64 = 8;
