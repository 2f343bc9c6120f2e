//! The status of `isolane rdma enforce`: inventory, usage, verdicts and actions per tenant.
//!
//! Units end the names of numbers. Rates are over the time since the last status. A verdict names the resource, the
//! used and the allowed amount, and the action.

use crate::caps::SetCap;
use crate::control::supervisor::{Calls, Mode};
use crate::enforcer::Holding;
use crate::guardian::OnDeath;
use crate::law::Law;
use crate::pacing::Pacing;
use crate::seccomp::call::Verb;
use crate::tenants::Tenants;
use isolane_common_linux::Root;
use isolane_rdma_inventory::inventory::{Holdings, ProcessHoldings};
use isolane_rdma_inventory::rdma::{QueuePair, QueuePairState};
use isolane_rdma_scenario::enforcement::EnforcedTenant;
use isolane_rdma_scenario::model::Guarantee;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The state of enforcement at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Enforce or shadow.
    pub mode: Mode,
    /// What happens to control verbs while no enforcer runs.
    pub on_death: OnDeath,
    /// Whether the guardian is connected.
    pub guarded: bool,
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// Length of the window of all rates, seconds.
    pub window_s: f64,
    /// Devices under enforcement.
    pub devices: Vec<String>,
    /// Tenants in the file's order, then one entry for processes without a tenant.
    pub tenants: Vec<TenantStatus>,
    /// Processes that hold RDMA objects and have no filter.
    pub unsupervised: Vec<Unsupervised>,
    /// Caps of the rdma controller.
    pub caps: Vec<SetCap>,
    /// Congestion notifications sent since the start.
    pub notifications_sent: u64,
    /// Whether the daemon accepts the rates and applies them to tenants under the shim.
    pub paced_by_daemon: bool,
    /// Why the daemon rejects the rates.
    pub not_paced_because: Option<String>,
}

/// The status of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantStatus {
    /// Name in the enforcement file.
    pub name: String,
    /// Process ids of processes that hold RDMA objects.
    pub processes: Vec<u32>,
    /// Objects held, summed over all devices.
    pub holdings: Holdings,
    /// Control verbs since the start.
    pub control: Calls,
    /// Control verbs that went on, per second.
    pub control_per_s: f64,
    /// Limit of control verbs per second.
    pub control_limit_per_s: Option<u64>,
    /// Bytes sent since the start by devices on which only this tenant could send.
    pub sent_bytes: u64,
    /// Bytes received since the start by those devices.
    pub received_bytes: u64,
    /// Bytes sent by devices on which other tenants could send too.
    pub shared_bytes: u64,
    /// Rate that the tenant may send or receive at, bits per second.
    pub allowed_bps: Option<u64>,
    /// Batches of notifications since the start.
    pub batches: u64,
    /// The resources that the tenant exceeds.
    pub verdicts: Vec<Verdict>,
}

/// A resource that a tenant exceeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Key of the resource in the enforcement file.
    pub resource: &'static str,
    /// Amount used, held or requested, in the resource's unit.
    pub used: f64,
    /// Amount allowed, in the same unit.
    pub allowed: f64,
    /// The enforcer's action.
    pub action: &'static str,
}

/// A process that holds RDMA objects and has no filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unsupervised {
    /// Process id.
    pub process: u32,
    /// Name of the process's command.
    pub command: String,
    /// Name of the process's tenant.
    pub tenant: String,
    /// Number of queue pairs held.
    pub queue_pairs: u32,
    /// Number of memory regions held.
    pub memory_regions: u32,
}

pub(crate) struct Reading<'a> {
    pub(crate) mode: Mode,
    pub(crate) on_death: OnDeath,
    pub(crate) guarded: bool,
    pub(crate) elapsed: Duration,
    pub(crate) window: Duration,
    pub(crate) tenants: &'a Tenants,
    pub(crate) holding: &'a Holding,
    pub(crate) law: &'a Law,
    pub(crate) calls: &'a [Calls],
    pub(crate) before: &'a [Calls],
    pub(crate) caps: &'a [SetCap],
    pub(crate) notifications: u64,
    pub(crate) pacing: Option<&'a Pacing>,
}

impl Reading<'_> {
    pub(crate) fn status(&self) -> Status {
        let places = 0..=self.tenants.unlisted();
        let mut devices: Vec<String> = self
            .holding
            .ports
            .iter()
            .map(|(device, _)| device.clone())
            .collect();
        devices.dedup();
        Status {
            mode: self.mode,
            on_death: self.on_death,
            guarded: self.guarded,
            elapsed_s: self.elapsed.as_secs_f64(),
            window_s: self.window.as_secs_f64(),
            devices,
            tenants: places.map(|place| self.tenant(place)).collect(),
            unsupervised: self.holding.unsupervised.clone(),
            caps: self.caps.to_vec(),
            notifications_sent: self.notifications,
            paced_by_daemon: self.is_paced(),
            not_paced_because: self
                .pacing
                .and_then(|pacing| pacing.refusal().map(str::to_owned)),
        }
    }

    fn is_paced(&self) -> bool {
        self.pacing.is_some_and(Pacing::is_heeded)
    }

    fn tenant(&self, place: usize) -> TenantStatus {
        let group = self.holding.groups.get(&place);
        let mut holdings = Holdings::default();
        if let Some(group) = group {
            group.devices.values().for_each(|held| holdings.add(held));
        }
        let control = self.calls.get(place).cloned().unwrap_or_default();
        let before = self.before.get(place);
        let resumed = control.resumed - before.map_or(0, |before| before.resumed);
        let delayed = control.delayed - before.map_or(0, |before| before.delayed);
        let listed = self.tenants.all().get(place);
        let used = listed
            .map(|_| self.law.used(place).clone())
            .unwrap_or_default();
        let batches = listed.map_or(0, |_| self.law.batches(place).0);
        let control_per_s = resumed as f64 / self.window.as_secs_f64().max(1e-9);
        let limit = listed.and_then(|tenant| tenant.guarantee.control_requests_per_s);
        let mut verdicts = Vec::new();
        if let Some(tenant) = listed {
            if delayed > 0 {
                verdicts.push(self.delayed(tenant, control_per_s));
            }
            verdicts.extend(capacity(
                &tenant.guarantee,
                &holdings,
                tenant.cap.objects.is_some(),
            ));
        }
        let allowed = listed.and_then(|_| self.law.allowed(place));
        if let (Some(allowed), true) = (allowed, batches > 0) {
            let bytes = used.own.sent_bytes.max(used.own.received_bytes);
            verdicts.push(Verdict {
                resource: "rate",
                used: bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9),
                allowed: allowed.as_bps() as f64,
                action: match (self.mode, self.notifications) {
                    (Mode::Shadow, _) => "would be notified of congestion",
                    (_, 0) if self.is_paced() => {
                        "paced by isolaned in processes under the shim; no interface for notifications (--notify)"
                    }
                    (_, 0) => "none: no interface for notifications (--notify)",
                    _ => "notified of congestion",
                },
            });
        }
        TenantStatus {
            name: self.tenants.name(place).to_owned(),
            processes: group
                .map(|group| group.processes.clone())
                .unwrap_or_default(),
            holdings,
            control,
            control_per_s,
            control_limit_per_s: limit,
            sent_bytes: used.own.sent_bytes,
            received_bytes: used.own.received_bytes,
            shared_bytes: used.shared.sent_bytes,
            allowed_bps: allowed.map(|rate| rate.as_bps()),
            batches,
            verdicts,
        }
    }

    fn delayed(&self, tenant: &EnforcedTenant, control_per_s: f64) -> Verdict {
        let classes = crate::tenants::limits(tenant).classes;
        let of_classes = classes.iter().map(|(_, rate)| *rate).min();
        let limit = tenant.guarantee.control_requests_per_s.or(of_classes);
        Verdict {
            resource: "control_requests_per_s",
            used: control_per_s,
            allowed: limit.unwrap_or(0) as f64,
            action: match self.mode {
                Mode::Enforce => "delayed to the limit",
                Mode::Shadow => "would be delayed",
            },
        }
    }
}

/// Verdicts on objects held beyond the guarantee.
fn capacity(
    guarantee: &Guarantee,
    held: &Holdings,
    capped: bool,
) -> impl Iterator<Item = Verdict> + use<> {
    let region_bytes = guarantee.region_bytes.map(|bytes| bytes.get());
    let kinds = [
        (
            "queue_pairs",
            guarantee.queue_pairs,
            u64::from(held.queue_pairs),
        ),
        (
            "memory_regions",
            guarantee.memory_regions,
            u64::from(held.memory_regions),
        ),
        (
            "completion_queues",
            guarantee.completion_queues,
            u64::from(held.completion_queues),
        ),
        (
            "completion_entries",
            guarantee.completion_entries,
            held.completion_entries,
        ),
        ("region_total", region_bytes, held.memory_bytes),
    ];
    kinds.into_iter().filter_map(move |(resource, most, held)| {
        let most = most?;
        (held > most).then_some(Verdict {
            resource,
            used: held as f64,
            allowed: most as f64,
            action: match capped {
                true => "capped in all by the rdma controller",
                false => "reported; set cap.objects to reject more",
            },
        })
    })
}

/// Whether a queue pair can send.
pub(crate) fn can_send(pair: &QueuePair) -> bool {
    matches!(
        pair.state,
        QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
    )
}

/// Processes that hold objects and run without any seccomp filter: their control verbs are not limited.
pub(crate) fn unsupervised(
    root: &Root,
    processes: &[ProcessHoldings],
    place_of: &BTreeMap<u32, usize>,
    tenants: &Tenants,
) -> Vec<Unsupervised> {
    let bare = processes.iter().filter(|entry| {
        let status = root.text(&format!("/proc/{}/status", entry.process.id));
        let mode = status.as_deref().and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Seccomp:"))?;
            line.trim().parse::<u32>().ok()
        });
        mode == Some(0)
    });
    bare.map(|entry| {
        let mut held = Holdings::default();
        entry.devices.values().for_each(|of| held.add(of));
        let place = place_of.get(&entry.process.id);
        Unsupervised {
            process: entry.process.id,
            command: entry.process.command.clone(),
            tenant: place
                .map_or(crate::tenants::UNLISTED, |place| tenants.name(*place))
                .to_owned(),
            queue_pairs: held.queue_pairs,
            memory_regions: held.memory_regions,
        }
    })
    .collect()
}

impl Status {
    /// Text for a terminal: one line per tenant and per verdict.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mode = match self.mode {
            Mode::Enforce => "enforcing",
            Mode::Shadow => "shadow",
        };
        let devices = match self.devices.is_empty() {
            true => "no device".to_owned(),
            false => self.devices.join(", "),
        };
        let _ = writeln!(text, "{:6.1} s  {mode}  {devices}", self.elapsed_s);
        for tenant in &self.tenants {
            let nothing = tenant.control.trapped == 0 && tenant.processes.is_empty();
            if nothing && tenant.name == crate::tenants::UNLISTED {
                continue;
            }
            let limit = tenant.control_limit_per_s;
            let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
            let registers = tenant
                .control
                .verbs
                .get(&Verb::RegisterMemory)
                .copied()
                .unwrap_or(0);
            let _ = writeln!(
                text,
                "  {:16} {:8.1}{limit} control verbs/s ({} delayed, {} waiting, {registers} reg_mr)  {} QPs {} MRs {} CQs",
                tenant.name,
                tenant.control_per_s,
                tenant.control.delayed,
                tenant.control.waiting,
                tenant.holdings.queue_pairs,
                tenant.holdings.memory_regions,
                tenant.holdings.completion_queues,
            );
            for verdict in &tenant.verdicts {
                let _ = writeln!(
                    text,
                    "  {:16} exceeds {}: {:.1} of {:.1}: {}",
                    "", verdict.resource, verdict.used, verdict.allowed, verdict.action
                );
            }
        }
        for process in &self.unsupervised {
            let _ = writeln!(
                text,
                "  not supervised: process {} ({}) of {} holds {} QPs, {} MRs; start it with isolane rdma run --enforce, or \
                 through the container runtime",
                process.process,
                process.command,
                process.tenant,
                process.queue_pairs,
                process.memory_regions
            );
        }
        if let Some(reason) = &self.not_paced_because {
            let _ = writeln!(text, "  rates are not paced by the daemon: {reason}");
        }
        if !self.guarded {
            text.push_str(
                "  the guardian has ended: new tenants cannot be supervised, and if this enforcer ends, control verbs fail with ENOSYS\n",
            );
        }
        text
    }
}
