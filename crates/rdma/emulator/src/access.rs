//! Who may use which memory: regions, windows, keys, bounds and permissions (IB specification, chapter 10).

use crate::fabric::{Bound, Fabric, Region};
use crate::memory::Span;
use isolane_rdma_verbs_sys::*;

impl Fabric {
    /// The memory of an element, if a pair's client may use it so.
    pub(crate) fn local(
        &self,
        client: u32,
        domain: u32,
        element: (u64, u64, u32),
        write: bool,
    ) -> Option<Span> {
        let (addr, length, key) = element;
        let region = self.regions.get(&key)?;
        let own = region.client == client && region.domain == domain;
        let allowed = !write || region.access & IBV_ACCESS_LOCAL_WRITE != 0;
        (own && allowed)
            .then(|| inside(region, addr, length))
            .flatten()
    }

    /// The memory of a key, if the peer of `pair` has this access to it.
    pub(crate) fn remote(
        &self,
        number: u32,
        key: u32,
        addr: u64,
        length: u64,
        access: u32,
    ) -> Option<Span> {
        let pair = self.pairs.get(&number)?;
        if pair.attributes.access & access == 0 {
            return None;
        }
        if let Some(region) = self.regions.get(&key) {
            let own = region.client == pair.client && region.domain == pair.domain;
            let allowed = region.access & access != 0;
            return (own && allowed)
                .then(|| inside(region, addr, length))
                .flatten();
        }
        let window = self.windows.get(&(key & !0xff))?;
        let bound = window.bound.filter(|_| window.key == key)?;
        let own = window.client == pair.client
            && match bound.pair {
                Some(only) => only == number,
                None => window.domain == pair.domain,
            };
        let end = addr.checked_add(length)?;
        let within = addr >= bound.addr && end <= bound.addr.checked_add(bound.length)?;
        let region = self.regions.get(&bound.region)?;
        (own && within && bound.access & access != 0)
            .then(|| inside(region, addr, length))
            .flatten()
    }

    /// Binds a window; whether its owner may.
    pub(crate) fn bind(&mut self, number: u32, handle: u32, key: u32, bound: Bound) -> bool {
        let pair = &self.pairs[&number];
        let (client, domain) = (pair.client, pair.domain);
        let Some(window) = self.windows.get(&handle) else {
            return false;
        };
        let region = self.regions.get(&bound.region);
        let fits = region.is_some_and(|region| {
            let writes = bound.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
            region.client == client
                && region.domain == domain
                && region.access & IBV_ACCESS_MW_BIND != 0
                && (!writes || region.access & IBV_ACCESS_LOCAL_WRITE != 0)
                && inside(region, bound.addr, bound.length).is_some()
        });
        let own = window.client == client && window.domain == domain && key & !0xff == handle;
        // A window of type 2 is bound once, until its key is invalidated.
        let free = window.kind == IBV_MW_TYPE_1 || window.bound.is_none();
        let unbinds = window.kind == IBV_MW_TYPE_1 && bound.length == 0;
        if !own || !free || !(fits || unbinds) {
            return false;
        }
        let pair = (window.kind == IBV_MW_TYPE_2).then_some(number);
        let window = self.windows.get_mut(&handle).expect("just found");
        window.key = key;
        self.set_bound(handle, (!unbinds).then_some(Bound { pair, ..bound }));
        true
    }

    /// Invalidates the key of a window of type 2 of a pair's client; whether there was one.
    pub(crate) fn invalidate(&mut self, number: u32, key: u32) -> bool {
        let handle = key & !0xff;
        let Some(window) = self.windows.get(&handle) else {
            return false;
        };
        let bound = window.bound.is_some_and(|bound| bound.pair == Some(number));
        if !bound || window.key != key {
            return false;
        }
        self.set_bound(handle, None);
        true
    }
}

/// The memory of `length` bytes from `addr` on, if all of it is in the region.
fn inside(region: &Region, addr: u64, length: u64) -> Option<Span> {
    let offset = addr.checked_sub(region.iova)?;
    let end = offset.checked_add(length)?;
    (end <= region.span.length).then_some(Span {
        pid: region.span.pid,
        addr: region.span.addr + offset,
        length,
    })
}
