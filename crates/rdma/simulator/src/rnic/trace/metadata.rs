//! Caches: who looks up what, who evicts whom, who holds the miss slots.

use super::attribution::split;
use super::record::{Timeline, Tracer};
use super::story::Known;
use super::{CacheName, Part, Resource, Stage};
use crate::rnic::cache::Miss;

impl Tracer {
    /// A lookup of `key` in a cache, or, without `counts`, an insertion; `evicted` was removed for it.
    pub(crate) fn looked_up(
        &mut self,
        host: usize,
        cache: CacheName,
        key: u64,
        (hit, counts): (bool, bool),
        evicted: Option<u64>,
    ) {
        let actor = self.actor;
        if let (true, Some(point)) = (counts, self.point(self.now)) {
            let points = self.points;
            let series = self.lookups.entry((host, cache, actor));
            let series = series.or_insert_with(|| [vec![0; points], vec![0; points]]);
            series[usize::from(!hit)][point] += 1;
        }
        if hit {
            return;
        }
        let nic = &mut self.nics[host];
        let remover = nic.removers[cache as usize].remove(&key);
        if counts {
            self.remover = remover.unwrap_or(actor);
        }
        nic.owners[cache as usize].insert(key, actor);
        if let Some(evicted) = evicted {
            self.removed(host, cache, evicted);
        }
    }

    pub(super) fn removed(&mut self, host: usize, cache: CacheName, key: u64) {
        let actor = self.actor;
        let nic = &mut self.nics[host];
        let Some(owner) = nic.owners[cache as usize].remove(&key) else {
            return;
        };
        nic.removers[cache as usize].insert(key, actor);
        if let Some(point) = self.point(self.now) {
            let points = self.points;
            let entries = self.evictions.entry((host, cache, actor, owner));
            entries.or_insert_with(|| vec![0; points])[point] += 1;
        }
    }

    /// A deregistration empties the translation and protection caches.
    pub(crate) fn flushed(&mut self, host: usize) {
        self.nics[host].deregistered_by = self.actor;
        for cache in [CacheName::Translations, CacheName::Protections] {
            let keys: Vec<u64> = self.nics[host].owners[cache as usize]
                .keys()
                .copied()
                .collect();
            for key in keys {
                self.removed(host, cache, key);
            }
        }
    }

    /// A lookup missed at `at` and got its slot at `miss.started`; the unit on `lane` was free at `before` and is
    /// stalled until then.
    pub(crate) fn missed(
        &mut self,
        host: usize,
        cache: CacheName,
        lane: Timeline,
        (before, at): (u64, u64),
        miss: &Miss,
    ) {
        let (pair, stage) = (self.pair, Stage::Metadata);
        let (kind, slots, read) = match cache {
            CacheName::Contexts => (0, Resource::ContextSlots, Resource::ContextRead),
            CacheName::Translations | CacheName::Protections => {
                (1, Resource::TranslationSlots, Resource::TranslationRead)
            }
            CacheName::Receives => (2, Resource::ReceiveSlots, Resource::ReceiveRead),
        };
        let nic = &mut self.nics[host];
        let followed = self.stories.get(pair as usize).is_some_and(Option::is_some);
        let mut known = Vec::new();
        if followed {
            // Until the unit was free: its log says who filled it.
            let (mut end, actor) = (self.now, self.actor);
            nic.cut(lane, end, at, actor, |piece| {
                end += piece.ps;
                let part = Part::waited(stage, host, piece.resource, piece.tenant);
                known.push(Known { part, end });
            });
        }
        let mut shares = vec![0; self.tenants];
        for &holder in &nic.slots[kind] {
            shares[usize::from(holder)] += 1;
        }
        let mut end = at;
        let stalls = miss.started > before;
        split(miss.started - at, &shares, self.actor, |tenant, ps| {
            if stalls {
                nic.logs[lane.index()].push(end, end + ps, slots, tenant);
            }
            end += ps;
            let part = Part::waited(stage, host, slots, tenant);
            known.push(Known { part, end });
        });
        let part = Part::waited(stage, host, read, self.remover);
        known.push(Known {
            part,
            end: miss.done,
        });
        nic.slots[kind][miss.slot] = self.actor;
        if let Some(Some(story)) = self.stories.get_mut(pair as usize) {
            story.known[lane.index()].extend(known);
        }
        let tenant = self.actor;
        self.occupy(host, slots, tenant, (miss.started, miss.done), 1);
    }
}
