//! Daemons poll, decide and send notifications; drivers judge control verbs.

use super::{HarmonicHost, HarmonicHosts, Sending};
use crate::rnic::access::{Access, Owner};
use crate::rnic::control::ControlLoop;
use crate::rnic::event::Event;
use crate::rnic::policies::HarmonicSetup;
use crate::rnic::queue_pair::QueuePair;
use crate::rnic::sizes::PAGE;
use crate::rnic::world::World;
use isolane_common_quantities::units::Instant;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_policy::harmonic::statistics::TenantStatistics;
use isolane_rdma_policy::harmonic::{ControlLimiter, Objects, Verdict};
use isolane_rdma_scenario::model::{ControlObject, Verb};
use std::collections::{BTreeMap, VecDeque};

impl<const RECORDS: bool> World<RECORDS> {
    /// Starts the daemons. All queue pairs and loops, and the monitors, must be there.
    pub(crate) fn start_harmonic(&mut self, setup: &HarmonicSetup) {
        let tenants = setup.control.len();
        let made = |host| {
            let limiters = setup
                .control
                .iter()
                .map(|&profile| ControlLimiter::new(profile));
            HarmonicHost {
                policy: setup.daemon(),
                counters: vec![TenantStatistics::default(); tenants],
                senders: (0..tenants)
                    .map(|tenant| self.senders_of(host, tenant))
                    .collect(),
                limiters: limiters.collect(),
                sending: VecDeque::with_capacity(tenants),
                core_free: 0,
                spent: vec![0; tenants],
                sent: vec![0; tenants],
            }
        };
        let mut hosts: Vec<HarmonicHost> = (0..self.nics.len()).map(made).collect();
        let (pair_refused, refused) = self.judge_pairs(&mut hosts, tenants);
        for command in &self.loops {
            let alive = scaled(&objects_of(command), command.alive);
            hosts[usize::from(command.host)].limiters[usize::from(command.tenant)].hold(&alive);
        }
        let period = hosts[0].policy.poll_timeout().as_ps();
        let watched = |host: &u64| self.monitors[*host as usize].is_some();
        let watched: Vec<u64> = (0..hosts.len() as u64).filter(watched).collect();
        for host in watched {
            // No two hosts' clocks are in step.
            let at = period + period * host / hosts.len() as u64;
            self.schedule(at, Event::HarmonicPoll { host: host as u8 });
        }
        self.harmonic = Some(Box::new(HarmonicHosts {
            hosts,
            refused,
            pair_refused,
            counter_read: setup.counter_read.as_ps(),
        }));
    }

    /// The senders of a tenant's data on connections that end at `host`.
    fn senders_of(&self, host: usize, tenant: usize) -> Vec<(u32, bool)> {
        let ends_here = |pair: &QueuePair| {
            usize::from(pair.tenant) == tenant
                && (usize::from(pair.host) == host || usize::from(pair.peer) == host)
                && !pair.reference
        };
        self.pairs
            .iter()
            .enumerate()
            .filter(|(_, pair)| ends_here(pair))
            .map(|(number, pair)| (number as u32, pair.verb == Verb::Read))
            .collect()
    }

    /// Which connections their tenants may not have: by queue pair, and how many for each tenant. A process's
    /// regions and completion queue come with its first pair, and both ends of a connection must have room.
    fn judge_pairs(&self, hosts: &mut [HarmonicHost], tenants: usize) -> (Vec<bool>, Vec<u64>) {
        let (mut pair_refused, mut refused) = (vec![false; self.pairs.len()], vec![0; tenants]);
        let mut last = None;
        for (number, pair) in self.pairs.iter().enumerate() {
            let tenant = usize::from(pair.tenant);
            if pair.reference || tenant >= tenants {
                continue;
            }
            let process = &self.processes[pair.process as usize];
            let plan = &self.plans[process.plan as usize];
            let first = last != Some(pair.process);
            let mut objects = Objects {
                queue_pairs: 1,
                work_requests: u64::from(plan.depth),
                completion_entries: u64::from(plan.depth),
                ..Objects::default()
            };
            if first {
                objects.completion_queues = 1;
                objects.memory_regions = process.regions;
                objects.region_bytes = process.regions * process.pages_per_region * PAGE;
            }
            let ends = [usize::from(pair.host), usize::from(pair.peer)];
            let made = ends.map(|end| {
                let verdict = hosts[end].limiters[tenant].admit(&objects);
                verdict.is_ok()
            });
            if made == [true, true] {
                last = Some(pair.process);
                continue;
            }
            for (end, made) in ends.into_iter().zip(made) {
                if made {
                    hosts[end].limiters[tenant].release(&objects);
                }
            }
            pair_refused[number] = true;
            refused[tenant] += 1;
        }
        (pair_refused, refused)
    }

    /// Whether the driver never made this connection.
    pub(crate) fn refused(&self, pair: u32) -> bool {
        let refused = self.harmonic.as_ref().map(|all| &all.pair_refused);
        refused.is_some_and(|refused| refused.get(pair as usize) == Some(&true))
    }

    /// A daemon polls the monitor and decides.
    pub(crate) fn harmonic_poll(&mut self, now: u64, host: usize) {
        let Some(mut all) = self.harmonic.take() else {
            return;
        };
        let here = &mut all.hosts[host];
        for tenant in 0..here.counters.len() {
            here.counters[tenant] = self
                .poll_monitor(now, host, tenant as u16)
                .expect("only hosts with a monitor poll");
            let reading = TenantStatistics::COUNTERS * all.counter_read;
            here.core_free = here.core_free.max(now) + reading;
            here.spent[tenant] += reading;
        }
        here.policy.poll(Instant::from_ps(now), &here.counters);
        let idle = here.sending.is_empty();
        while let Some(batch) = here.policy.poll_action() {
            let busy = here.sending.iter().any(|one| one.tenant == batch.tenant);
            if !busy && !here.senders[batch.tenant].is_empty() {
                here.sending.push_back(Sending {
                    tenant: batch.tenant,
                    next: 0,
                    rounds: batch.notifications,
                    rate: batch.rate.map_or(0, |rate| {
                        rate.as_bps() / here.senders[batch.tenant].len() as u64
                    }),
                });
            }
        }
        if idle && !here.sending.is_empty() {
            let at = here.core_free;
            self.schedule(at, Event::HarmonicNotify { host: host as u8 });
        }
        let at = here.policy.poll_timeout().as_ps().max(here.core_free);
        if at <= self.horizon {
            self.schedule(at, Event::HarmonicPoll { host: host as u8 });
        }
        self.harmonic = Some(all);
    }

    /// The daemon sends the next notification.
    pub(crate) fn harmonic_notify(&mut self, now: u64, host: usize) {
        let Some(mut all) = self.harmonic.take() else {
            return;
        };
        let here = &mut all.hosts[host];
        if here.core_free > now {
            // A poll came first.
            let at = here.core_free;
            self.schedule(at, Event::HarmonicNotify { host: host as u8 });
        } else if let Some(batch) = here.sending.front_mut() {
            let (tenant, rate) = (batch.tenant, batch.rate);
            let senders = &here.senders[tenant];
            let (pair, response) = senders[batch.next];
            batch.next += 1;
            if batch.next == senders.len() {
                (batch.next, batch.rounds) = (0, batch.rounds - 1);
            }
            if batch.rounds == 0 {
                here.sending.pop_front();
            }
            let cost = self.device.post + self.device.ring;
            here.core_free = now + cost;
            here.spent[tenant] += cost;
            here.sent[tenant] += 1;
            let at = here.core_free;
            if !here.sending.is_empty() {
                self.schedule(at, Event::HarmonicNotify { host: host as u8 });
            }
            if rate != 0 {
                self.tell_rate(pair, response, rate);
            }
            self.inject(at, host, pair, response, rate != 0);
        }
        self.harmonic = Some(all);
    }

    /// A forged notification, or an explicit rate, leaves the daemon at `at`.
    fn inject(&mut self, at: u64, host: usize, pair: u32, response: bool, explicit: bool) {
        let frame = self.device.ack;
        let bytes = self.device.pcie_bytes(frame) + self.device.doorbell + self.device.tlp;
        let in_nic = self.pcie(BusDirection::ToNic, host, at, bytes, || {
            Access::monitor(Owner::Host)
        });
        let ready = in_nic + self.device.mmio + self.read_latency();
        self.nics[host].count.notifications_sent += 1;
        let queue_pair = &self.pairs[pair as usize];
        let sender = usize::from(if response {
            queue_pair.peer
        } else {
            queue_pair.host
        });
        if sender == host {
            let arrives = ready + self.device.propagation;
            let event = match explicit {
                true => Event::Limited { pair, response },
                false => Event::Injected { pair, response },
            };
            self.schedule(arrives, event);
        } else {
            let arrives = self.send_ack(host, pair, ready, frame);
            let event = match explicit {
                true => Event::Limited { pair, response },
                false => Event::Notified { pair, response },
            };
            self.schedule(arrives, event);
        }
    }

    /// Lets a loop's next verb through to the command queue, or holds it back.
    pub(crate) fn issue_command(&mut self, now: u64, index: u32) {
        let Some(all) = &mut self.harmonic else {
            let wait = self.deregistration_waits(now, index);
            return match wait {
                0 => self.run_command(now, index),
                wait => self.schedule(
                    now + wait,
                    Event::Command {
                        index,
                        judged: true,
                    },
                ),
            };
        };
        let command = &self.loops[index as usize];
        let limiter =
            &mut all.hosts[usize::from(command.host)].limiters[usize::from(command.tenant)];
        let objects = objects_of(command);
        let instant = Instant::from_ps(now);
        let verdict = if command.creating {
            limiter.create(instant, &objects)
        } else {
            Verdict::After(limiter.destroy(instant, &objects))
        };
        match verdict {
            Verdict::After(wait) if wait.is_zero() => self.run_command(now, index),
            Verdict::After(wait) => {
                self.schedule(
                    now + wait.as_ps(),
                    Event::Command {
                        index,
                        judged: true,
                    },
                );
            }
            Verdict::Rejected(_) => {
                self.meter.error(usize::from(command.tenant));
                let again = now + self.command_time(index);
                self.schedule(
                    again,
                    Event::Command {
                        index,
                        judged: false,
                    },
                );
            }
        }
    }

    /// Cores of Harmonic's daemons that worked for a tenant.
    pub(crate) fn harmonic_cores(&self, tenant: usize) -> f64 {
        let hosts = self.harmonic.iter().flat_map(|all| &all.hosts);
        let spent: u64 = hosts.map(|host| host.spent[tenant]).sum();
        spent as f64 / self.end.max(1) as f64
    }

    /// Connections of a tenant that were never made.
    pub(crate) fn refused_connections(&self, tenant: usize) -> u64 {
        self.harmonic.as_ref().map_or(0, |all| all.refused[tenant])
    }

    /// The daemons' own figures, for reports.
    pub(crate) fn harmonic_state(
        &self,
        host: usize,
        name: &str,
        state: &mut BTreeMap<String, f64>,
    ) {
        let Some(here) = self.harmonic.as_ref().map(|all| &all.hosts[host]) else {
            return;
        };
        for tenant in 0..here.counters.len() {
            let allocation = here.policy.allocation(tenant);
            let (rejected, delayed) = here.limiters[tenant].counts();
            let values = [
                ("rate_gbps", allocation.rate.as_gbps_f64()),
                ("pcie_gbps", allocation.pcie_rate.as_gbps_f64()),
                ("requests_per_s", allocation.data_requests_per_s as f64),
                ("batches", here.policy.counts(tenant).0 as f64),
                ("notifications", here.sent[tenant] as f64),
                ("verbs_rejected", rejected as f64),
                ("verbs_delayed", delayed as f64),
            ];
            for (key, value) in values {
                state.insert(format!("host_{name}.tenant_{tenant}_{key}"), value);
            }
        }
    }
}

/// What one verb of a loop makes or takes away.
fn objects_of(command: &ControlLoop) -> Objects {
    let mut objects = Objects::default();
    match command.object {
        ControlObject::MemoryRegion => {
            objects.memory_regions = 1;
            objects.region_bytes = command.pages * PAGE;
        }
        ControlObject::QueuePair => objects.queue_pairs = 1,
        ControlObject::CompletionQueue => objects.completion_queues = 1,
    }
    objects
}

fn scaled(objects: &Objects, count: u64) -> Objects {
    Objects {
        queue_pairs: objects.queue_pairs * count,
        memory_regions: objects.memory_regions * count,
        completion_queues: objects.completion_queues * count,
        region_bytes: objects.region_bytes * count,
        ..Objects::default()
    }
}
