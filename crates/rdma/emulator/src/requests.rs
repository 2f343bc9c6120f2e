//! Requests that wait for an answer: objects of clients are created, changed and destroyed.
//!
//! Each client has so many objects of a kind and so much memory of the broker; beyond that a request fails with `ENOMEM`, as
//! on a device that is full.

use crate::answer::{Answered, event_pipe, known, words};
use crate::fabric::{Completions, Fabric, Region, Shared, Window};
use crate::memory::{Span, read};
use crate::pair::{Pair, Work};
use isolane_rdma_emulated_verbs::attributes::PairAttributes;
use isolane_rdma_emulated_verbs::context::{DEPTH_MAX, ENTRIES_MAX, OBJECTS_MAX};
use isolane_rdma_emulated_verbs::ring::Ring;
use isolane_rdma_emulated_verbs::wire::{Reader, Writer, op, pack};
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::*;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

/// Completion channels that one client may have, each with a descriptor here.
const CHANNELS_MAX: usize = 32;
/// Completion channels of all clients.
const CHANNELS_ALL_MAX: usize = 256;

/// Whether a client that has so many objects of a kind may have one more.
pub(crate) const fn room(held: usize) -> Result<(), i32> {
    match held < OBJECTS_MAX as usize {
        true => Ok(()),
        false => Err(libc::ENOMEM),
    }
}

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
            op::DEALLOC_MW => {
                let key = reader.number()?;
                remove(&mut self.windows, key, |window| window.client == client)
            }
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
        room(
            self.domains
                .values()
                .filter(|owner| **owner == client)
                .count(),
        )?;
        let handle = self.handle();
        self.domains.insert(handle, client);
        words(&[u64::from(handle)])
    }

    fn dealloc_domain(&mut self, client: u32, handle: u32) -> Answered {
        self.own_domain(client, handle)?;
        let used = self.regions.values().any(|region| region.domain == handle)
            || self.windows.values().any(|window| window.domain == handle)
            || self.pairs.values().any(|pair| pair.domain == handle)
            || self.shared.values().any(|queue| queue.domain == handle);
        match used {
            true => Err(libc::EBUSY),
            false => remove(&mut self.domains, handle, |owner| *owner == client),
        }
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
        room(
            self.regions
                .values()
                .filter(|region| region.client == client)
                .count(),
        )?;
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
        };
        self.regions.insert(key, region);
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
        let region = self.regions.remove(&fresh).expect("just registered");
        self.regions.insert(key, region);
        words(&[])
    }

    fn deregister(&mut self, client: u32, key: u32) -> Answered {
        known(
            self.regions
                .get(&key)
                .filter(|region| region.client == client),
        )?;
        let bound = |window: &Window| window.bound.is_some_and(|bound| bound.region == key);
        match self.windows.values().any(bound) {
            true => Err(libc::EBUSY),
            false => remove(&mut self.regions, key, |region| region.client == client),
        }
    }

    fn alloc_window(&mut self, client: u32, domain: u32, kind: u32) -> Answered {
        self.own_domain(client, domain)?;
        if !matches!(kind, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
            return Err(libc::EINVAL);
        }
        room(
            self.windows
                .values()
                .filter(|window| window.client == client)
                .count(),
        )?;
        let key = self.key();
        let window = Window {
            client,
            domain,
            kind,
            key,
            bound: None,
        };
        self.windows.insert(key, window);
        words(&[pack(key, key)])
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
        let used = |queue: &Completions| queue.channel == Some(handle);
        match self.completions.values().any(used) {
            true => Err(libc::EBUSY),
            false => remove(&mut self.channels, handle, |channel| channel.0 == client),
        }
    }

    fn create_completions(&mut self, client: u32, entries: u32, channel: u32) -> Answered {
        let channel = (channel != u32::MAX).then_some(channel);
        if let Some(channel) = channel {
            known(self.channels.get(&channel).filter(|of| of.0 == client))?;
        }
        let own = self.completions.values();
        room(own.filter(|queue| queue.client == client).count())?;
        let (ring, fd) = self.new_ring(client, entries, 0)?;
        let handle = self.handle();
        let queue = Completions {
            client,
            ring,
            channel,
            overrun: false,
        };
        self.completions.insert(handle, queue);
        let (answer, _) = words(&[u64::from(handle)])?;
        Ok((answer, Some(fd)))
    }

    /// A ring for a client whose others, but for `replaced` entries of them, stay.
    fn new_ring(&self, client: u32, entries: u32, replaced: u64) -> Result<(Ring, OwnedFd), i32> {
        if entries == 0 || entries > ENTRIES_MAX {
            return Err(libc::EINVAL);
        }
        let own = self.completions.values();
        let own = own.filter(|queue| queue.client == client);
        let held: u64 = own.map(|queue| queue.ring.capacity()).sum();
        if held - replaced + u64::from(entries) > u64::from(ENTRIES_MAX) {
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
        let pairs = self
            .pairs
            .values()
            .filter(|pair| pair.send_completions == handle && pair.transport == Transport::Ud);
        let signalled = |work: &&Work| work.request.flags & IBV_SEND_SIGNALED != 0;
        let owed = pairs.flat_map(|pair| &pair.work).filter(signalled).count();
        let waiting = queue.ring.continue_in(&ring, owed as u64);
        let waiting = waiting.ok_or(libc::EINVAL)?;
        queue.ring = ring;
        let (answer, _) = words(&[waiting])?;
        Ok((answer, Some(fd)))
    }

    fn destroy_completions(&mut self, client: u32, handle: u32) -> Answered {
        known(
            self.completions
                .get(&handle)
                .filter(|queue| queue.client == client),
        )?;
        let used =
            |pair: &Pair| [pair.send_completions, pair.receive_completions].contains(&handle);
        match self.pairs.values().any(used) {
            true => Err(libc::EBUSY),
            false => remove(&mut self.completions, handle, |queue| {
                queue.client == client
            }),
        }
    }

    fn create_shared(&mut self, client: u32, domain: u32, depth: u32) -> Answered {
        self.own_domain(client, domain)?;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(libc::EINVAL);
        }
        room(
            self.shared
                .values()
                .filter(|queue| queue.client == client)
                .count(),
        )?;
        self.places(client, u64::from(depth))?;
        let handle = self.handle();
        let queue = Shared {
            client,
            domain,
            depth,
            receives: VecDeque::new(),
            limit: 0,
        };
        self.shared.insert(handle, queue);
        words(&[u64::from(handle)])
    }

    fn destroy_shared(&mut self, client: u32, handle: u32) -> Answered {
        known(
            self.shared
                .get(&handle)
                .filter(|queue| queue.client == client),
        )?;
        match self.pairs.values().any(|pair| pair.shared == Some(handle)) {
            true => Err(libc::EBUSY),
            false => remove(&mut self.shared, handle, |queue| queue.client == client),
        }
    }
}

/// Removes an object of the client that sent the request.
fn remove<T>(map: &mut BTreeMap<u32, T>, key: u32, own: impl Fn(&T) -> bool) -> Answered {
    match map.get(&key).is_some_and(own) {
        false => Err(libc::EINVAL),
        true => {
            map.remove(&key);
            words(&[])
        }
    }
}
