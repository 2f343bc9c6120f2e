//! Requests that wait for an answer: objects of clients are created, changed and destroyed.
//!
//! Each client has so many objects of a kind and so much memory of the broker ([`crate::held`]); beyond that a request fails
//! with `ENOMEM`, as on a device that is full.

use crate::answer::{Answered, event_pipe, known, words};
use crate::fabric::{Completions, Fabric, Region, Shared, Window};
use crate::held::Kind;
use crate::memory::{Span, read};
use isolane_rdma_emulated_verbs::attributes::PairAttributes;
use isolane_rdma_emulated_verbs::context::{DEPTH_MAX, ENTRIES_MAX};
use isolane_rdma_emulated_verbs::ring::Ring;
use isolane_rdma_emulated_verbs::wire::{Reader, Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Completion channels that one client may have, each with a descriptor here.
const CHANNELS_MAX: usize = 32;
/// Completion channels of all clients.
const CHANNELS_ALL_MAX: usize = 256;

impl Fabric {
    /// A handle that no object has.
    fn handle(&mut self) -> u32 {
        loop {
            let handle = self.next_handle;
            self.next_handle = handle.wrapping_add(1);
            let taken = self.domains.contains_key(&handle)
                || self.channels.contains_key(&handle)
                || self.completions.contains_key(&handle)
                || self.shared.contains_key(&handle);
            // The largest number means "none" in messages.
            if handle != u32::MAX && !taken {
                return handle;
            }
        }
    }

    /// A key that no region and no window has: its lowest 8 bits are zero.
    fn key(&mut self) -> u32 {
        loop {
            let key = self.next_key << 8;
            self.next_key = self.next_key.wrapping_add(1);
            let taken = self.regions.contains_key(&key) || self.windows.contains_key(&key);
            if key != 0 && !taken {
                return key;
            }
        }
    }

    pub(crate) fn own_domain(&self, client: u32, handle: u32) -> Result<(), i32> {
        known((self.domains.get(&handle) == Some(&client)).then_some(()))
    }

    /// A request that waits for an answer. The error is an `errno` value for the client. `Ok(None)`: the message is
    /// malformed.
    pub(crate) fn request(
        &mut self,
        client: u32,
        operation: u64,
        reader: &mut Reader<'_>,
    ) -> Option<Answered> {
        Some(match operation {
            op::ALLOC_PD => self.alloc_domain(client),
            op::DEALLOC_PD => self.dealloc_domain(client, reader.number()?),
            op::REG_MR => {
                let (domain, access) = reader.halves()?;
                let place = (reader.word()?, reader.word()?, reader.word()?);
                self.register(client, domain, access, place)
            }
            op::REREG_MR => {
                let (key, domain) = reader.halves()?;
                let place = (reader.word()?, reader.word()?);
                self.register_again(client, key, domain, place, reader.number()?)
            }
            op::DEREG_MR => self.deregister(client, reader.number()?),
            op::ALLOC_MW => {
                let (domain, kind) = reader.halves()?;
                self.alloc_window(client, domain, kind)
            }
            op::DEALLOC_MW => self.dealloc_window(client, reader.number()?),
            op::CREATE_CHANNEL => self.create_channel(client),
            op::DESTROY_CHANNEL => self.destroy_channel(client, reader.number()?),
            op::CREATE_CQ => {
                let (entries, channel) = reader.halves()?;
                self.create_completions(client, entries, channel)
            }
            op::RESIZE_CQ => {
                let (handle, entries) = reader.halves()?;
                self.resize_completions(client, handle, entries)
            }
            op::DESTROY_CQ => self.destroy_completions(client, reader.number()?),
            op::CREATE_SRQ => {
                let (domain, depth) = reader.halves()?;
                self.create_shared(client, domain, depth)
            }
            op::MODIFY_SRQ => {
                let (handle, limit) = reader.halves()?;
                self.own_shared(client, handle).and_then(|queue| {
                    queue.limit = limit;
                    words(&[])
                })
            }
            op::QUERY_SRQ => {
                let queue = self.own_shared(client, reader.number()?);
                queue.and_then(|queue| words(&[u64::from(queue.limit)]))
            }
            op::DESTROY_SRQ => self.destroy_shared(client, reader.number()?),
            op::CREATE_QP => self.create_pair(client, reader)?,
            op::MODIFY_QP => {
                let (number, mask) = reader.halves()?;
                let current = reader.number()?;
                let wanted = PairAttributes::read(reader)?;
                self.modify_pair(client, number, (mask, current), &wanted)
            }
            op::LIMIT_QP => {
                let (number, kbps) = reader.halves()?;
                self.limit_pair(client, number, kbps)
            }
            op::QUERY_QP => self.query_pair(client, reader.number()?),
            op::DESTROY_QP => self.destroy_pair(client, reader.number()?),
            _ => return None,
        })
    }

    fn own_shared(&mut self, client: u32, handle: u32) -> Result<&mut Shared, i32> {
        let queue = self.shared.get_mut(&handle);
        known(queue.filter(|queue| queue.client == client))
    }

    fn query_pair(&self, client: u32, number: u32) -> Answered {
        let pair = known(self.own_pair(client, number))?;
        let mut writer = Writer::of(&[0]);
        pair.attributes.write(&mut writer);
        Ok((writer, None))
    }

    fn destroy_pair(&mut self, client: u32, number: u32) -> Answered {
        known(self.own_pair(client, number))?;
        self.remove_pair(number);
        words(&[])
    }

    fn alloc_domain(&mut self, client: u32) -> Answered {
        self.held(client).room(Kind::Domain)?;
        let handle = self.handle();
        self.domains.insert(handle, client);
        self.held(client).add(Kind::Domain);
        words(&[u64::from(handle)])
    }

    fn dealloc_domain(&mut self, client: u32, handle: u32) -> Answered {
        self.own_domain(client, handle)?;
        self.check_unused(handle)?;
        self.domains.remove(&handle);
        self.held(client).remove(Kind::Domain);
        words(&[])
    }

    fn register(
        &mut self,
        client: u32,
        domain: u32,
        access: u32,
        (addr, length, iova): (u64, u64, u64),
    ) -> Answered {
        self.own_domain(client, domain)?;
        let remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        if access & remote_writes != 0 && access & IBV_ACCESS_LOCAL_WRITE == 0 {
            return Err(libc::EINVAL);
        }
        let ends = (addr.checked_add(length), iova.checked_add(length));
        if length == 0 || ends.0.is_none() || ends.1.is_none() {
            return Err(libc::EINVAL);
        }
        self.held(client).room(Kind::Region)?;
        let span = Span {
            pid: self.client(client).pid,
            addr,
            length,
        };
        // Pages at both ends are there, as the kernel would pin them.
        let last = Span {
            addr: addr + length - 1,
            length: 1,
            ..span
        };
        if !read(Span { length: 1, ..span }, &mut [0]) || !read(last, &mut [0]) {
            return Err(libc::EFAULT);
        }
        let key = self.key();
        let region = Region {
            client,
            domain,
            span,
            iova,
            access,
            bound: 0,
        };
        self.regions.insert(key, region);
        self.held(client).add(Kind::Region);
        self.begin_use(domain);
        words(&[u64::from(key)])
    }

    fn register_again(
        &mut self,
        client: u32,
        key: u32,
        domain: u32,
        (addr, length): (u64, u64),
        access: u32,
    ) -> Answered {
        self.own_domain(client, domain)?;
        let old = *known(
            self.regions
                .get(&key)
                .filter(|region| region.client == client),
        )?;
        let access = if access == u32::MAX {
            old.access
        } else {
            access
        };
        let iova = if addr == old.span.addr {
            old.iova
        } else {
            addr
        };
        // The new region is checked as any other; then it takes the old one's key.
        let (answer, _) = self.register(client, domain, access, (addr, length, iova))?;
        let mut reader = Reader::new(answer.bytes());
        let fresh = reader
            .word()
            .and_then(|_| reader.number())
            .expect("a key follows");
        let mut region = self.regions.remove(&fresh).expect("just registered");
        region.bound = old.bound;
        self.regions.insert(key, region);
        self.held(client).remove(Kind::Region);
        self.end_use(old.domain);
        words(&[])
    }

    fn deregister(&mut self, client: u32, key: u32) -> Answered {
        let region = self.regions.get(&key);
        let region = *known(region.filter(|region| region.client == client))?;
        if region.bound > 0 {
            return Err(libc::EBUSY);
        }
        self.regions.remove(&key);
        self.held(client).remove(Kind::Region);
        self.end_use(region.domain);
        words(&[])
    }

    fn alloc_window(&mut self, client: u32, domain: u32, kind: u32) -> Answered {
        self.own_domain(client, domain)?;
        if !matches!(kind, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
            return Err(libc::EINVAL);
        }
        self.held(client).room(Kind::Window)?;
        let key = self.key();
        let window = Window {
            client,
            domain,
            kind,
            key,
            bound: None,
        };
        self.windows.insert(key, window);
        self.held(client).add(Kind::Window);
        self.begin_use(domain);
        words(&[pack(key, key)])
    }

    fn dealloc_window(&mut self, client: u32, key: u32) -> Answered {
        let window = self.windows.get(&key);
        let domain = known(window.filter(|window| window.client == client))?.domain;
        self.set_bound(key, None);
        self.windows.remove(&key);
        self.held(client).remove(Kind::Window);
        self.end_use(domain);
        words(&[])
    }

    fn create_channel(&mut self, client: u32) -> Answered {
        let own = self
            .channels
            .values()
            .filter(|channel| channel.0 == client)
            .count();
        if own >= CHANNELS_MAX || self.channels.len() >= CHANNELS_ALL_MAX {
            return Err(libc::ENOMEM);
        }
        let (reader, writer) = event_pipe()?;
        let handle = self.handle();
        self.channels.insert(handle, (client, writer));
        let (answer, _) = words(&[u64::from(handle)])?;
        Ok((answer, Some(reader)))
    }

    fn destroy_channel(&mut self, client: u32, handle: u32) -> Answered {
        known(
            self.channels
                .get(&handle)
                .filter(|channel| channel.0 == client),
        )?;
        self.check_unused(handle)?;
        self.channels.remove(&handle);
        words(&[])
    }

    fn create_completions(&mut self, client: u32, entries: u32, channel: u32) -> Answered {
        let channel = (channel != u32::MAX).then_some(channel);
        if let Some(channel) = channel {
            known(self.channels.get(&channel).filter(|of| of.0 == client))?;
        }
        self.held(client).room(Kind::Completions)?;
        let (ring, fd) = self.new_ring(client, entries, 0)?;
        let handle = self.handle();
        let queue = Completions {
            client,
            ring,
            channel,
            overrun: false,
            datagrams: 0,
        };
        self.completions.insert(handle, queue);
        self.held(client).add(Kind::Completions);
        self.held(client).entries += u64::from(entries);
        if let Some(channel) = channel {
            self.begin_use(channel);
        }
        let (answer, _) = words(&[u64::from(handle)])?;
        Ok((answer, Some(fd)))
    }

    /// A ring for a client whose others, but for `replaced` entries of them, stay.
    fn new_ring(
        &mut self,
        client: u32,
        entries: u32,
        replaced: u64,
    ) -> Result<(Ring, OwnedFd), i32> {
        if entries == 0 || entries > ENTRIES_MAX {
            return Err(libc::EINVAL);
        }
        if self.held(client).entries - replaced + u64::from(entries) > u64::from(ENTRIES_MAX) {
            return Err(libc::ENOMEM);
        }
        Ring::create(entries).map_err(|error| error.raw_os_error())
    }

    fn resize_completions(&mut self, client: u32, handle: u32, entries: u32) -> Answered {
        let queue = self.completions.get(&handle);
        let queue = queue.filter(|queue| queue.client == client);
        known(queue)?;
        let replaced = queue.map_or(0, |queue| queue.ring.capacity());
        let (ring, fd) = self.new_ring(client, entries, replaced)?;
        let queue = self.completions.get_mut(&handle).expect("just found");
        // A posted datagram completes by itself, and may have completed already on a faster device: it counts as
        // complete. What needs a peer does not count before it completes, nor do receives.
        let waiting = queue.ring.continue_in(&ring, queue.datagrams);
        let waiting = waiting.ok_or(libc::EINVAL)?;
        queue.ring = ring;
        let held = self.held(client);
        held.entries = held.entries - replaced + u64::from(entries);
        let (answer, _) = words(&[waiting])?;
        Ok((answer, Some(fd)))
    }

    fn destroy_completions(&mut self, client: u32, handle: u32) -> Answered {
        let queue = self.completions.get(&handle);
        known(queue.filter(|queue| queue.client == client))?;
        self.check_unused(handle)?;
        let queue = self.completions.remove(&handle).expect("just found");
        self.held(client).remove(Kind::Completions);
        self.held(client).entries -= queue.ring.capacity();
        if let Some(channel) = queue.channel {
            self.end_use(channel);
        }
        words(&[])
    }

    fn create_shared(&mut self, client: u32, domain: u32, depth: u32) -> Answered {
        self.own_domain(client, domain)?;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(libc::EINVAL);
        }
        self.held(client).room(Kind::Shared)?;
        self.check_places(client, u64::from(depth))?;
        let handle = self.handle();
        let queue = Shared {
            client,
            domain,
            depth,
            receives: VecDeque::new(),
            limit: 0,
        };
        self.shared.insert(handle, queue);
        self.held(client).add(Kind::Shared);
        self.held(client).places += u64::from(depth);
        self.begin_use(domain);
        words(&[u64::from(handle)])
    }

    fn destroy_shared(&mut self, client: u32, handle: u32) -> Answered {
        self.own_shared(client, handle)?;
        self.check_unused(handle)?;
        let queue = self.shared.remove(&handle).expect("just found");
        self.held(client).remove(Kind::Shared);
        self.held(client).places -= u64::from(queue.depth);
        self.end_use(queue.domain);
        words(&[])
    }

    fn check_unused(&self, handle: u32) -> Result<(), i32> {
        match self.is_used(handle) {
            true => Err(libc::EBUSY),
            false => Ok(()),
        }
    }
}
