//! Promises and needs that cannot hold together: sums over the tenants against what a host's link carries.
//!
//! Units: bits of payload per second. A link carries `rate x MTU / (MTU + frame)` in each direction, with the largest
//! MTU of any tenant (rounded down). Data of WRITE and SEND goes from the requester, that of READ towards it; traffic
//! within one host does not cross its link. A tenant counts where all its data leaves one host, and where all of it
//! arrives at one; a tenant with data elsewhere does not count there, for its promise may be met by that.
//!
//! A need for messages counts with the tenant's smallest mean message: no less payload can carry them.
//!
//! Limits: necessary conditions only. What passes here may still be more than a NIC does of small messages.

use crate::model::{Arrival, DataTraffic, Host, Tenant, Traffic, Verb, Workload};
use crate::profile::Profile;
use isolane_common_quantities::units::{BitRate, Bytes};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::table::Table;

/// What one tenant adds to a sum.
struct Entry {
    /// Hosts that its data leaves and arrives at; the same twice for traffic within a host.
    flows: Vec<(Host, Host)>,
    rate: BitRate,
    /// `db 40 Gb/s`, with how it was worked out.
    words: String,
}

/// Refuses what `tenants` have been promised, or need, when the link of `profile` cannot carry it.
pub(crate) fn check(
    top: &Table<'_>,
    profile: &Profile,
    tenants: &[Tenant],
) -> Result<(), InputError> {
    let refuse = |place: Option<&Tenant>, problem: String| {
        let mut error = top.error_at("tenant", Problem::Promise { problem });
        error.place = place.map(|tenant| format!("tenant {:?}", tenant.name));
        Err(error)
    };
    for tenant in tenants {
        if let Some(problem) = alone(tenant) {
            return refuse(Some(tenant), problem);
        }
    }
    let link = Link::of(profile, tenants);
    let promised = tenants.iter().filter_map(|tenant| {
        let rate = tenant.guarantee.rate?;
        Some(entry(tenant, rate, String::new()))
    });
    let needed = tenants.iter().filter_map(|tenant| {
        let (rate, how) = need(tenant)?;
        Some(entry(tenant, rate, how))
    });
    let sums = [
        ("guaranteed rates add up", promised.collect::<Vec<_>>()),
        ("SLOs add up", needed.collect()),
    ];
    for (what, entries) in sums {
        if let Some(problem) = link.overbooked(what, &entries) {
            return refuse(None, problem);
        }
    }
    Ok(())
}

fn entry(tenant: &Tenant, rate: BitRate, how: String) -> Entry {
    Entry {
        flows: tenant.workloads.iter().flat_map(flows).collect(),
        rate,
        words: format!("{} {rate}{how}", tenant.name),
    }
}

/// What contradicts itself within one tenant.
fn alone(tenant: &Tenant) -> Option<String> {
    let (need, how) = need(tenant)?;
    if let Some(rate) = tenant.guarantee.rate.filter(|&rate| rate < need) {
        return Some(format!(
            "its SLO needs {need}{how} and its guarantee, which it may not exceed, is {rate}: raise the guarantee or \
             lower the SLO"
        ));
    }
    let offered = offered(tenant)?;
    (offered < need).then(|| {
        format!(
            "its SLO needs {need}{how} and its workloads offer {offered}: lower the SLO or offer more"
        )
    })
}

/// The least payload per second that meets the SLO of `tenant`, and how it follows from messages.
fn need(tenant: &Tenant) -> Option<(BitRate, String)> {
    let smallest = data(tenant).map(mean_message).min();
    let by_messages = tenant
        .slo
        .messages_per_s_min
        .zip(smallest)
        .map(|(count, bytes)| {
            let rate = BitRate::from_bps(count.saturating_mul(bytes.get()).saturating_mul(8));
            (rate, format!(" ({count} messages/s x {bytes})"))
        });
    let by_goodput = tenant.slo.goodput_min.map(|rate| (rate, String::new()));
    match (by_messages, by_goodput) {
        (Some(messages), Some(goodput)) if messages.0 > goodput.0 => Some(messages),
        (messages, goodput) => goodput.or(messages),
    }
}

fn data(tenant: &Tenant) -> impl Iterator<Item = &DataTraffic> {
    tenant
        .workloads
        .iter()
        .filter_map(|workload| match &workload.traffic {
            Traffic::Data(data) => Some(data),
            Traffic::Control(_) | Traffic::Application(_) => None,
        })
}

/// Mean size of the pattern's messages, rounded down.
fn mean_message(data: &DataTraffic) -> Bytes {
    let sum: Bytes = data.pattern.iter().map(|message| message.bytes()).sum();
    Bytes::new(sum.get() / data.pattern.len().max(1) as u64)
}

/// Payload per second that open and paced workloads offer; `None` when one offers as much as it gets.
fn offered(tenant: &Tenant) -> Option<BitRate> {
    let mut sum: u128 = 0;
    for workload in &tenant.workloads {
        let Traffic::Data(data) = &workload.traffic else {
            continue;
        };
        let ends = 1 + u128::from(data.bidirectional);
        let per_process = match &data.arrival {
            Arrival::Closed { .. } | Arrival::PingPong => return None,
            Arrival::Paced { rate } => u128::from(rate.as_bps()),
            Arrival::Open { interval, .. } => {
                let bits = u128::from(mean_message(data).get())
                    * 8
                    * u128::from(data.post_list)
                    * u128::from(data.queue_pairs);
                bits * 1_000_000_000_000 / u128::from(interval.as_ps().max(1))
            }
        };
        sum += per_process * ends * u128::from(workload.processes);
    }
    Some(BitRate::from_bps(u64::try_from(sum).unwrap_or(u64::MAX)))
}

/// Where the payload of `workload` goes.
fn flows(workload: &Workload) -> Vec<(Host, Host)> {
    let Traffic::Data(data) = &workload.traffic else {
        return Vec::new();
    };
    let (from, to) = match data.verb {
        Verb::Read => (workload.to, workload.from),
        _ => (workload.from, workload.to),
    };
    match data.bidirectional {
        true => vec![(from, to), (to, from)],
        false => vec![(from, to)],
    }
}

impl Entry {
    /// Whether all its data leaves `host` for another one.
    fn leaves(&self, host: Host) -> bool {
        let out = |&(from, to): &(Host, Host)| from == host && to != host;
        !self.flows.is_empty() && self.flows.iter().all(out)
    }

    /// Whether all its data arrives at `host` from another one.
    fn arrives(&self, host: Host) -> bool {
        let into = |&(from, to): &(Host, Host)| to == host && from != host;
        !self.flows.is_empty() && self.flows.iter().all(into)
    }
}

struct Link {
    rate: BitRate,
    mtu: u32,
    frame: u64,
}

impl Link {
    fn of(profile: &Profile, tenants: &[Tenant]) -> Self {
        let value = |name| profile.value("link", name);
        let mtu = tenants.iter().flat_map(data).map(|data| data.mtu).max();
        Self {
            rate: BitRate::from_bps((value("rate_gbps") * 1e9) as u64),
            mtu: mtu.unwrap_or(value("mtu_default_bytes") as u32),
            frame: value("frame_bytes") as u64,
        }
    }

    fn payload(&self) -> BitRate {
        let mtu = u128::from(self.mtu);
        let bps = u128::from(self.rate.as_bps()) * mtu / (mtu + u128::from(self.frame));
        BitRate::from_bps(u64::try_from(bps).expect("a part of a rate fits where the rate fits"))
    }

    fn overbooked(&self, what: &str, entries: &[Entry]) -> Option<String> {
        let out = Host::ALL.map(|host| (format!("out of host {}", host.letter()), host, true));
        let into = Host::ALL.map(|host| (format!("into host {}", host.letter()), host, false));
        out.iter().chain(&into).find_map(|(direction, host, leaving)| {
            let counted = || {
                entries.iter().filter(|entry| match leaving {
                    true => entry.leaves(*host),
                    false => entry.arrives(*host),
                })
            };
            let sum = counted().fold(0_u64, |sum, entry| sum.saturating_add(entry.rate.as_bps()));
            let carried = self.payload();
            if sum <= carried.as_bps() {
                return None;
            }
            let words: Vec<&str> = counted().map(|entry| entry.words.as_str()).collect();
            Some(format!(
                "{what} to more than the link carries {direction}: {} = {}, above {carried} of payload ({} x {} B / \
                 ({} B + {} B per packet)): lower one, or move a tenant to another NIC",
                words.join(" + "),
                BitRate::from_bps(sum),
                self.rate,
                self.mtu,
                self.mtu,
                self.frame
            ))
        })
    }
}
