//! Looking up what a message needs: contexts, regions and translations (stage 5).
//!
//! Each lookup reads a cache; a miss takes a slot for its PCIe read, and returns the time at which the metadata is
//! there. A pair that misses is set aside by the caller; when every slot is taken the processing unit waits for one.
//! Only a message's first page can stall it: the later ones are read ahead.

use super::access::{Access, End, Object};
use super::event::Event;
use super::process::{Process, is_multiple};
use super::queue_pair::QueuePair;
use super::sizes::{CONTEXT_BYTES, PAGE, PAGES_PER_REGION_MAX, REMOTE_END};
use super::trace::record::Timeline;
use super::trace::{CacheName, Resource};
use super::world::World;
use isolane_common_quantities::rng::Stream;
use isolane_rdma_policy::harmonic::statistics::BusDirection;

impl<const RECORDS: bool> World<RECORDS> {
    /// Looks up the metadata of the next request in the caches; true when the pair has to wait and was set aside.
    pub(crate) fn look_up_request(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        needs_memory: bool,
    ) -> bool {
        let queue_pair = &self.pairs[pair as usize];
        let (process, owner) = (queue_pair.process, queue_pair.tenant);
        let elements = queue_pair.work_request(queue_pair.sent).elements;
        let own = (pair, End::Requester, Object::PairContext);
        let mut done = self.look_up_context((now, host, owner), own, u64::from(pair) * 2, true);
        // The completion queue's context lives in the same cache; one queue per process.
        let queue = (pair, End::Requester, Object::QueueContext);
        let key = CONTEXT_OF_QUEUE | u64::from(process);
        done = done.max(self.look_up_context((now, host, owner), queue, key, true));
        if needs_memory {
            let ahead = self.device.micro.list_lookahead && !self.starts_list(pair);
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

    /// Looks up context `key` of tenant `owner`, which is `object` at one end of a pair; when it is there, ps, or zero for a
    /// hit. A hit is a part of the caller: its call would cost as much again.
    #[inline(always)]
    pub(crate) fn look_up_context(
        &mut self,
        (now, host, owner): (u64, usize, u16),
        (pair, end, object): (u32, End, Object),
        key: u64,
        requester: bool,
    ) -> u64 {
        let hit = self.nics[host].contexts.touch(key, owner);
        self.trace_lookup(host, CacheName::Contexts, key, (hit, true));
        if hit {
            return 0;
        }
        let access = Access::of(pair, end, object, 0, CONTEXT_BYTES);
        self.read_context(now, host, (owner, access), requester)
    }

    /// Reads a context that is not in the cache; when it is there, ps.
    #[inline(never)]
    fn read_context(
        &mut self,
        now: u64,
        host: usize,
        (owner, access): (u16, Access),
        requester: bool,
    ) -> u64 {
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
        self.pcie(BusDirection::ToNic, host, at, CONTEXT_BYTES, || access);
        // The one it takes the place of goes back; a model of the cache by keys does not know whose it was.
        self.pcie(BusDirection::ToHost, host, at, CONTEXT_BYTES, || access);
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
        let queue_pair = &mut self.pairs[pair as usize];
        let process = &self.processes[queue_pair.process as usize];
        let (region, page) = next_address(&mut self.addresses, process, queue_pair, remote);
        let entry = page >> self.device.micro.translation_shift;
        let owner = queue_pair.tenant;
        let nic = &mut self.nics[host];
        let unit = if requester {
            &mut nic.requester_free
        } else {
            &mut nic.responder_free
        };
        // Deregistration stalls the sender's translations only: receivers see next to nothing (husky 4.3.2).
        let free = now.max(*unit);
        let blocked = nic.translation_blocked;
        if requester && blocked > free {
            nic.count.translation_stall += blocked - free;
            *unit = blocked;
            if RECORDS && let Some(tracer) = &mut self.trace {
                let stall = Resource::DeregistrationStall;
                tracer.stalled(host, Timeline::Requester, (free, blocked), stall);
            }
        }
        let at = now.max(*unit);
        let known = nic.protections.touch(region, owner);
        let translated = nic.translations.touch(entry, owner);
        let blocked = match &nic.apart {
            Some(apart) if requester => apart.translation_blocked[usize::from(owner)],
            _ => 0,
        };
        if RECORDS {
            self.trace_lookup(host, CacheName::Protections, region, (known, true));
            self.trace_lookup(host, CacheName::Translations, entry, (translated, true));
        }
        if known && translated {
            return if blocked > at { blocked } else { 0 };
        }
        let levels = self.device.micro.dependent_translation && !known && !translated;
        self.read_translation(host, (pair, remote, requester), (at, blocked), levels)
    }

    /// Reads a region or a translation that is not in the caches, from `at` on, and both one after the other with `levels`;
    /// when they are there, ps.
    #[inline(never)]
    fn read_translation(
        &mut self,
        host: usize,
        (pair, remote, requester): (u32, bool, bool),
        (at, blocked): (u64, u64),
        levels: bool,
    ) -> u64 {
        let owner = self.pairs[pair as usize].tenant;
        let nic = &mut self.nics[host];
        let miss = nic.translation_slots.take(at.max(blocked), owner);
        let done = match levels {
            true => nic.translation_slots.take(miss.done, owner).done,
            false => miss.done,
        };
        let (unit, lane) = if requester {
            (&mut nic.requester_free, Timeline::Requester)
        } else {
            (&mut nic.responder_free, Timeline::Responder)
        };
        let before = *unit;
        if nic.apart.is_none() {
            *unit = before.max(miss.started);
        }
        self.traced(move |t| t.missed(host, CacheName::Translations, lane, (before, at), &miss));
        let access = translation(pair, remote, 0, TRANSLATION_READ);
        self.pcie(
            BusDirection::ToNic,
            host,
            at,
            TRANSLATION_READ + self.device.tlp,
            || access,
        );
        done
    }

    /// Later pages of the current message are translated ahead of use: they cost reads and cache entries, not time.
    #[inline(always)]
    pub(crate) fn prefetch_translation(
        &mut self,
        host: usize,
        pair: u32,
        remote: bool,
        offset: u64,
        payload: u64,
    ) {
        let queue_pair = &self.pairs[pair as usize];
        let first = if remote {
            queue_pair.remote_page
        } else {
            queue_pair.local_page
        };
        let Some(page) = begins_page(first, offset, payload) else {
            return;
        };
        let entry = page >> self.device.micro.translation_shift;
        if !self.nics[host]
            .translations
            .insert(entry, queue_pair.tenant)
        {
            self.read_ahead(host, (pair, remote), entry, (page - first) * PAGE);
        }
    }

    /// Reads the translation `entry` of byte `offset` of the current message, which the cache did not have.
    #[inline(never)]
    pub(crate) fn read_ahead(
        &mut self,
        host: usize,
        (pair, remote): (u32, bool),
        entry: u64,
        offset: u64,
    ) {
        let nic = &mut self.nics[host];
        nic.count.translation_prefetches += 1;
        let at = nic.pcie_in_free;
        self.trace_lookup(host, CacheName::Translations, entry, (false, false));
        let bytes = TRANSLATION_READ / TRANSLATIONS_PER_READ;
        let access = translation(pair, remote, offset, bytes);
        self.pcie(BusDirection::ToNic, host, at, bytes, || access);
    }
}

/// The last page that a packet touches of a message in the pages from `first` on, if the packet is the first one there.
#[inline(always)]
pub(crate) const fn begins_page(first: u64, offset: u64, payload: u64) -> Option<u64> {
    let last = (offset + payload - 1) / PAGE;
    if offset / PAGE == last && !offset.is_multiple_of(PAGE) {
        return None;
    }
    Some(first + last)
}

/// Region and page of the next message of a pair of `process` at one end; keys of the two ends never meet.
#[inline(always)]
fn next_address(
    addresses: &mut Stream,
    process: &Process,
    queue_pair: &mut QueuePair,
    remote: bool,
) -> (u64, u64) {
    let (regions, pages) = (process.regions, process.pages_per_region);
    let (region, offset) = if process.random_access {
        (addresses.below(regions), addresses.below(pages))
    } else {
        // Most processes have a page for each pair, which needs no division.
        let ordinal = u64::from(queue_pair.ordinal);
        let own = ordinal < pages;
        (0, if own { ordinal } else { ordinal % pages })
    };
    let end = if remote { REMOTE_END } else { 0 };
    let region = queue_pair.region_base + region;
    let page = region * PAGES_PER_REGION_MAX + offset + end;
    if remote {
        queue_pair.remote_page = page;
    } else {
        queue_pair.local_page = page;
    }
    (region + end, page)
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
