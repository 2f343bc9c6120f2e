//! Makes a tenant of a scenario into jobs, one per host, and exchanges their addresses.

use super::check::JobError;
use super::job::{
    Arrival, ControlPhase, ControlWork, DataWork, EndJob, Job, Operation, Side, Warmup, Work,
};
use super::message::{EndAddress, Prepared};
use super::{VERSION, peer_of};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model;
use isolane_rdma_scenario::model::{
    ControlTraffic, DataTraffic, Host, MemoryPlace, Scenario, Tenant, Traffic, Verb,
};
use std::collections::BTreeMap;

/// Settings beyond the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// RDMA device of each host.
    pub devices: BTreeMap<Host, String>,
    /// GID index on every device; see [`Job::gid_index`].
    pub gid_index: Option<u32>,
    /// Whether to verify every byte.
    pub check: bool,
    /// Whether to sleep for completions.
    pub events: bool,
}

/// The jobs of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Jobs by host.
    pub jobs: BTreeMap<Host, Job>,
}

impl Plan {
    /// The hosts with buffers on another socket than their device's or on a GPU, and the place.
    pub fn far_memory(&self) -> impl Iterator<Item = (Host, MemoryPlace)> {
        let ends = self
            .jobs
            .iter()
            .flat_map(|(host, job)| job.ends.iter().map(|end| (*host, end)));
        ends.filter_map(|(host, end)| match &end.work {
            Work::Data(data) if data.memory != MemoryPlace::Local => Some((host, data.memory)),
            _ => None,
        })
    }
}

/// Why a tenant cannot run on devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PlanError {
    #[error(
        "tenant {tenant:?} runs on host {host}, for which no device is named: name one device per host, in order"
    )]
    NoDevice { tenant: String, host: &'static str },
    #[error(
        "tenant {tenant:?}, workload {workload:?}: {what} cannot run on real devices: {remedy}"
    )]
    Unsupported {
        tenant: String,
        workload: String,
        what: &'static str,
        remedy: &'static str,
    },
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(
        "end {end} of host {host} has no peer among the prepared workers: start a worker on every host of the plan"
    )]
    NoPeer { end: u32, host: &'static str },
}

/// The jobs of `tenant`, with the times and the seed of `scenario`. Fails if a host has no device, or devices cannot
/// run the scenario.
pub fn plan(scenario: &Scenario, tenant: &Tenant, options: &Options) -> Result<Plan, PlanError> {
    let mut jobs: BTreeMap<Host, Job> = BTreeMap::new();
    let mut next_pair = 0;
    for workload in &tenant.workloads {
        for _ in 0..workload.processes {
            let id = next_pair * 2;
            next_pair += 1;
            for (host, id, work) in ends(tenant, workload, id)? {
                let job = match jobs.entry(host) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        entry.insert(empty_job(scenario, tenant, host, options)?)
                    }
                };
                job.ends.push(EndJob {
                    id,
                    name: workload.name.clone(),
                    begin_ns: nanoseconds(tenant.start),
                    end_ns: tenant.stop.map(nanoseconds),
                    work,
                });
            }
        }
    }
    for job in jobs.values() {
        job.check()?;
    }
    Ok(Plan { jobs })
}

/// The `connect` message for each worker, from all prepared workers. Fails with [`PlanError::NoPeer`].
pub fn connect(
    plan: &Plan,
    prepared: &BTreeMap<Host, Prepared>,
) -> Result<BTreeMap<Host, BTreeMap<u32, EndAddress>>, PlanError> {
    let all: BTreeMap<u32, &EndAddress> = prepared
        .values()
        .flat_map(|prepared| prepared.ends.iter().map(|(id, address)| (*id, address)))
        .collect();
    let mut connections = BTreeMap::new();
    for (host, job) in &plan.jobs {
        let mut peers = BTreeMap::new();
        for end in &job.ends {
            if let Work::Data(_) = end.work {
                let peer = all.get(&peer_of(end.id)).ok_or(PlanError::NoPeer {
                    end: end.id,
                    host: host.letter(),
                })?;
                peers.insert(end.id, (*peer).clone());
            }
        }
        connections.insert(*host, peers);
    }
    Ok(connections)
}

fn empty_job(
    scenario: &Scenario,
    tenant: &Tenant,
    host: Host,
    options: &Options,
) -> Result<Job, PlanError> {
    let device = options.devices.get(&host).ok_or(PlanError::NoDevice {
        tenant: tenant.name.clone(),
        host: host.letter(),
    })?;
    Ok(Job {
        version: VERSION,
        tenant: tenant.name.clone(),
        device: device.clone(),
        port: 1,
        gid_index: options.gid_index,
        warmup: Warmup::Fixed {
            ns: nanoseconds(scenario.warmup),
        },
        duration_ns: nanoseconds(scenario.duration),
        sample_interval_ns: nanoseconds(scenario.sample_interval),
        seed: scenario.seed,
        check: options.check,
        events: options.events,
        ends: Vec::new(),
    })
}

/// The ends of one process: host, id, work.
fn ends(
    tenant: &Tenant,
    workload: &model::Workload,
    id: u32,
) -> Result<Vec<(Host, u32, Work)>, PlanError> {
    let unsupported = |what, remedy| PlanError::Unsupported {
        tenant: tenant.name.clone(),
        workload: workload.name.clone(),
        what,
        remedy,
    };
    match &workload.traffic {
        Traffic::Application(_) => Err(unsupported(
            "a distributed application",
            "write its traffic as [[tenant.traffic]]",
        )),
        Traffic::Control(control) => Ok(vec![(
            workload.from,
            id,
            Work::Control(self::control(control)),
        )]),
        Traffic::Data(traffic) => Ok(vec![
            (workload.from, id, Work::Data(data(traffic, Side::From))),
            (
                workload.to,
                peer_of(id),
                Work::Data(data(traffic, Side::To)),
            ),
        ]),
    }
}

fn data(traffic: &DataTraffic, side: Side) -> DataWork {
    DataWork {
        side,
        operation: match traffic.verb {
            Verb::Write => Operation::Write,
            Verb::Read => Operation::Read,
            Verb::Send => Operation::Send,
            Verb::FetchAdd => Operation::FetchAdd,
            Verb::CompareSwap => Operation::CompareSwap,
        },
        transport: traffic.transport,
        pattern: traffic.pattern.clone(),
        queue_pairs: traffic.queue_pairs,
        post_list: traffic.post_list,
        depth: traffic.depth,
        completion_every: traffic.completion_every,
        receive_depth: traffic.receive_depth,
        receive_batch: traffic.receive_batch,
        receive_delay_ns: 0,
        min_rnr_timer: traffic.min_rnr_timer,
        max_read_atomic: traffic.max_read_atomic,
        inline_bytes: traffic.inline_bytes,
        mtu: traffic.mtu,
        memory_regions: traffic.memory_regions,
        region_bytes: traffic.region_bytes.get(),
        memory: match side {
            Side::From => traffic.memory,
            Side::To => traffic.remote_memory,
        },
        arrival: match &traffic.arrival {
            model::Arrival::Closed { think } => Arrival::Closed {
                think_ns: nanoseconds(*think),
            },
            model::Arrival::PingPong => Arrival::PingPong,
            model::Arrival::Open { interval, poisson } => Arrival::Open {
                interval_ns: nanoseconds(*interval).max(1),
                poisson: *poisson,
            },
            model::Arrival::Paced { rate } => Arrival::Paced {
                rate_bps: rate.as_bps().max(1),
            },
        },
        bidirectional: traffic.bidirectional,
        iterations: traffic.iterations,
    }
}

fn control(traffic: &ControlTraffic) -> ControlWork {
    ControlWork {
        object: traffic.object,
        threads: traffic.threads,
        objects: traffic.objects,
        protection_domains: traffic.protection_domains,
        region_bytes: traffic.region_bytes.get(),
        phase: match traffic.phase {
            model::ControlPhase::Cycle => ControlPhase::Cycle,
            model::ControlPhase::Create => ControlPhase::Create,
            model::ControlPhase::Destroy => ControlPhase::Destroy,
        },
        verbs_per_s: 0,
    }
}

/// Rounded down: the scenario's picoseconds are finer than the clocks here.
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_ps() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn scenario(text: &str) -> Scenario {
        let head = "profile = \"cx5-100g-roce\"\n\n[policy]\nname = \"none\"\n";
        let text = format!("{head}{text}");
        isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded()).expect("a scenario")
    }

    fn options() -> Options {
        Options {
            devices: BTreeMap::from([(Host::A, "r0".to_owned()), (Host::B, "r1".to_owned())]),
            ..Options::default()
        }
    }

    const TWO_PROCESSES: &str = "[[tenant]]\nname = \"t\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\n\
         verb = \"write\"\nsize = \"64KiB\"\nprocesses = 2\nqueue_pairs = 3\n";

    #[test]
    fn each_process_is_an_end_on_both_hosts() {
        let scenario = scenario(TWO_PROCESSES);
        let plan = plan(&scenario, &scenario.tenants[0], &options()).expect("a plan");
        let ids = |host| {
            plan.jobs[&host]
                .ends
                .iter()
                .map(|end| end.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(Host::A), [0, 2]);
        assert_eq!(ids(Host::B), [1, 3]);
        assert!(plan.jobs[&Host::A].posts());
        assert!(!plan.jobs[&Host::B].posts());
    }

    #[test]
    fn each_end_has_the_memory_of_its_own_host() {
        let text = TWO_PROCESSES.replace("processes = 2", "remote_memory = \"remote-socket\"");
        let scenario = scenario(&text);
        let plan = plan(&scenario, &scenario.tenants[0], &options()).expect("a plan");
        let memory = |host| match &plan.jobs[&host].ends[0].work {
            Work::Data(data) => data.memory,
            other => panic!("{other:?}"),
        };
        assert_eq!(memory(Host::A), MemoryPlace::Local);
        assert_eq!(memory(Host::B), MemoryPlace::RemoteSocket);
        let far = [(Host::B, MemoryPlace::RemoteSocket)];
        assert_eq!(plan.far_memory().collect::<Vec<_>>(), far);
    }

    #[test]
    fn peers_get_each_others_addresses() {
        let scenario = scenario(TWO_PROCESSES);
        let plan = plan(&scenario, &scenario.tenants[0], &options()).expect("a plan");
        let address = |lid| EndAddress {
            lid,
            ..EndAddress::default()
        };
        let prepared = |ids: [u32; 2]| Prepared {
            process_id: 1,
            ends: ids.map(|id| (id, address(id as u16))).into(),
        };
        let all = BTreeMap::from([(Host::A, prepared([0, 2])), (Host::B, prepared([1, 3]))]);
        let connections = connect(&plan, &all).expect("all are there");
        assert_eq!(connections[&Host::A][&2].lid, 3);
        assert_eq!(connections[&Host::B][&1].lid, 0);
        let missing = BTreeMap::from([(Host::A, prepared([0, 2]))]);
        assert_eq!(
            connect(&plan, &missing),
            Err(PlanError::NoPeer { end: 0, host: "A" })
        );
    }

    #[test]
    fn a_host_without_a_device_is_named() {
        let scenario = scenario(TWO_PROCESSES);
        let only_a = Options {
            devices: BTreeMap::from([(Host::A, "r0".to_owned())]),
            ..Options::default()
        };
        let error = plan(&scenario, &scenario.tenants[0], &only_a).expect_err("no device for B");
        assert!(error.to_string().contains("host B"), "{error}");
    }

    #[test]
    fn a_job_survives_its_json_form() {
        let scenario = scenario(TWO_PROCESSES);
        let plan = plan(&scenario, &scenario.tenants[0], &options()).expect("a plan");
        let job = &plan.jobs[&Host::A];
        let text = serde_json::to_string(job).expect("JSON");
        assert_eq!(serde_json::from_str::<Job>(&text).expect("a job"), *job);
    }

    #[test]
    fn values_beyond_the_limits_are_refused_by_name() {
        let scenario = scenario(TWO_PROCESSES);
        let plan = plan(&scenario, &scenario.tenants[0], &options()).expect("a plan");
        let good = plan.jobs[&Host::A].clone();
        let refused = |change: &dyn Fn(&mut Job, &mut DataWork), what: &str| {
            let mut job = good.clone();
            let Work::Data(mut data) = job.ends[0].work.clone() else {
                panic!("data");
            };
            change(&mut job, &mut data);
            job.ends[0].work = Work::Data(data);
            assert_eq!(job.check().expect_err(what).what, what);
        };
        refused(&|_, data| data.queue_pairs = 1 << 20, "queue_pairs");
        refused(&|_, data| data.depth = 0, "depth");
        refused(&|_, data| data.pattern.clear(), "pattern");
        refused(&|_, data| data.region_bytes = 1, "region_bytes");
        refused(&|_, data| data.region_bytes = u64::MAX, "memory of one end");
        refused(&|_, data| data.mtu = 1500, "mtu");
        refused(&|_, data| data.operation = Operation::FetchAdd, "message");
        refused(&|job, _| job.version += 1, "version");
        refused(&|job, _| job.sample_interval_ns = 0, "sample_interval_ns");
        refused(&|job, _| job.device = "../x".to_owned(), "device");
        refused(&|job, _| job.ends[1].id = 0, "end id");
        assert_eq!(good.check(), Ok(()));
    }
}
