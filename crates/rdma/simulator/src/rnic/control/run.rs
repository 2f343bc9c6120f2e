//! Loops issue control verbs, and the NIC does them.

use crate::rnic::event::Event;
use crate::rnic::trace::CacheName;
use crate::rnic::world::World;
use isolane_rdma_scenario::model::{ControlObject, ControlPhase};

impl<const RECORDS: bool> World<RECORDS> {
    pub(crate) fn start_loops(&mut self, now: u64, tenant: u16) {
        for index in 0..self.loops.len() as u32 {
            if self.loops[index as usize].tenant == tenant {
                self.announce_loop(now, index);
                self.issue_command(now, index);
            }
        }
    }

    /// Kernel and firmware time of a loop's next verb, ps.
    pub(crate) fn command_time(&self, index: u32) -> u64 {
        let command = &self.loops[index as usize];
        let per_page = self.device.registration_page * command.pages;
        match (command.object, command.creating) {
            (ControlObject::MemoryRegion, true) => self.device.registration + per_page,
            (ControlObject::MemoryRegion, false) => self.device.deregistration + per_page,
            (ControlObject::QueuePair | ControlObject::CompletionQueue, _) => {
                self.device.queue_pair
            }
        }
    }

    /// A verb that was held back goes on, or is tried again.
    pub(crate) fn command_again(&mut self, now: u64, index: u32, judged: bool) {
        if judged {
            self.run_command(now, index);
        } else if self.running[usize::from(self.loops[index as usize].tenant)] {
            self.issue_command(now, index);
        }
    }

    /// Puts a loop's next verb into the command queue.
    pub(crate) fn run_command(&mut self, now: u64, index: u32) {
        let time = self.command_time(index);
        let command = &self.loops[index as usize];
        let slots = &mut self.nics[usize::from(command.host)].commands;
        let slot = slots
            .iter_mut()
            .min_by_key(|free| **free)
            .expect("the command queue has a slot");
        *slot = (*slot).max(now) + time;
        let at = *slot;
        let host = usize::from(command.host);
        self.traced(move |tracer| tracer.command(host, at - time, at));
        self.schedule(at, Event::Control { index });
    }

    /// A control verb is done: its effects on the caches, then the next one.
    pub(crate) fn control_done(&mut self, now: u64, index: u32) {
        let command = &self.loops[index as usize];
        let (host, tenant) = (usize::from(command.host), usize::from(command.tenant));
        let (object, creating, pages, region) = (
            command.object,
            command.creating,
            command.pages,
            command.region_base + command.alive,
        );
        let owner = tenant as u16;
        match (object, creating) {
            (ControlObject::MemoryRegion, true) => self.registered(host, region, pages, owner),
            (ControlObject::MemoryRegion, false) => self.deregistered(now, host, owner),
            (ControlObject::QueuePair | ControlObject::CompletionQueue, true) => {
                let key = CONTROL_CONTEXT | region;
                let known = self.nics[host].contexts.insert(key, owner);
                self.trace_lookup(host, CacheName::Contexts, key, (known, false));
            }
            (ControlObject::QueuePair | ControlObject::CompletionQueue, false) => {}
        }
        self.announce_control(now, index);
        self.meter.control(tenant);
        let command = &mut self.loops[index as usize];
        if command.creating {
            command.alive += 1;
        } else {
            command.alive -= 1;
        }
        let turn = if command.creating {
            command.alive >= command.objects
        } else {
            command.alive == 0
        };
        if turn {
            match command.phase {
                ControlPhase::Cycle => command.creating = !command.creating,
                // The other half of the loop happens outside the measured time.
                ControlPhase::Create => command.alive = 0,
                ControlPhase::Destroy => command.alive = command.objects,
            }
        }
        if self.running[tenant] {
            self.issue_command(now, index);
        }
    }

    fn registered(&mut self, host: usize, region: u64, pages: u64, owner: u16) {
        let nic = &mut self.nics[host];
        nic.count.registrations += 1;
        let known = nic.protections.insert(region, owner);
        self.trace_lookup(host, CacheName::Protections, region, (known, false));
        let entries = pages.div_ceil(1 << self.device.micro.translation_shift);
        for entry in 0..entries.min(PAGES_WRITTEN_MAX) {
            let key = CONTROL_PAGE | region << 20 | entry;
            let known = self.nics[host].translations.insert(key, owner);
            self.trace_lookup(host, CacheName::Translations, key, (known, false));
        }
    }

    fn deregistered(&mut self, now: u64, host: usize, owner: u16) {
        let stall = self.device.deregistration_stall;
        let nic = &mut self.nics[host];
        nic.count.deregistrations += 1;
        nic.translations.invalidate(owner);
        nic.protections.invalidate(owner);
        let blocked = match &mut nic.apart {
            Some(apart) => &mut apart.translation_blocked[usize::from(owner)],
            None => &mut nic.translation_blocked,
        };
        *blocked = (*blocked).max(now) + stall;
        self.traced(move |tracer| tracer.flushed(host));
    }
}

/// Key spaces of objects made by loops.
const CONTROL_CONTEXT: u64 = 1 << 59;

const CONTROL_PAGE: u64 = 1 << 59;

/// Translations of one registration that can matter to a cache: more than any cache holds would only evict
/// each other.
const PAGES_WRITTEN_MAX: u64 = 4096;
