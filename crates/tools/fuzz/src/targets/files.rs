//! Files that users, operators or another run of a program wrote: scenarios, profiles, settings, journals.

use super::text;
use crate::{Target, of_repository};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::{glob, quantity};
use isolane_ethernet_attach::journal as nic_journal;
use isolane_memory_service::application::{self, pod};
use isolane_memory_service::fleet::Summary;
use isolane_memory_service::journal::Journal as MemoryJournal;
use isolane_memory_service::profile::application::AppProfile;
use isolane_memory_service::profile::machine::MachineProfile;
use isolane_memory_service::service::settings as memory_settings;
use isolane_rdma_hardware::compile::compile;
use isolane_rdma_hardware::host::Host;
use isolane_rdma_hardware::plan::Plan;
use isolane_rdma_hardware::policy as hardware_policy;
use isolane_rdma_hardware::record::Changes;
use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::check::DeviceLimits;
use isolane_rdma_scenario::command::{engine, perftest};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::Profile;
use isolane_rpc::quota::settings as quota_settings;
use isolane_rpc::quota::store::file as quota_journal;
use isolane_rpc::settings as rpc_settings;
use std::path::Path;
use std::sync::OnceLock;

/// The targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "scenario-rdma",
        run: |bytes| {
            static LIBRARY: OnceLock<Library> = OnceLock::new();
            let library = LIBRARY.get_or_init(Library::embedded);
            let _ = isolane_rdma_scenario::parse(&text(bytes), "scenario.toml", library);
        },
        seeds: || {
            of_repository(&[
                "scenarios/examples",
                "scenarios/justitia",
                "scenarios/husky",
            ])
        },
    },
    Target {
        name: "scenario-network",
        run: |bytes| {
            let _ = isolane_network_scenario::parse(&text(bytes), "scenario.toml");
        },
        seeds: || of_repository(&["scenarios/aequitas"]),
    },
    Target {
        name: "scenario-memory",
        run: |bytes| {
            let _ = isolane_memory_scenario::parse::parse(&text(bytes), "scenario.toml");
        },
        seeds: || of_repository(&["scenarios/mercury", "scenarios/tiering"]),
    },
    Target {
        name: "scenario-nic",
        run: |bytes| {
            let _ = isolane_ethernet_scenario::parse::parse(&text(bytes), "study.toml");
        },
        seeds: || of_repository(&["scenarios/titan"]),
    },
    Target {
        name: "port-plan",
        run: |bytes| {
            let _ = isolane_network_scenario::port_plan::parse("plan.toml", &text(bytes));
        },
        seeds: || of_repository(&["examples/slo.toml"]),
    },
    Target {
        name: "profile",
        run: profile,
        seeds: || {
            let devices = ["profiles/cx5-100g-roce.toml", "cards"];
            of_repository(&[&devices[..], &["machines", "machines/applications"]].concat())
        },
    },
    Target {
        name: "catalogue",
        run: |bytes| {
            let _ = Catalogue::parse(&text(bytes), "workloads/a.toml");
        },
        seeds: || of_repository(&["workloads/husky", "workloads/latency"]),
    },
    Target {
        name: "command-line",
        run: command_line,
        seeds: || {
            let lines = [
                "ib_write_bw -s 65536 -q 4 -l 2 --rate_limit=10",
                "ib_send_lat -s 64 -I 32 -n 1000",
                "10.5 GiB/s",
                "cx*-[!a]?",
            ];
            lines.map(|line| line.as_bytes().to_vec()).to_vec()
        },
    },
    Target {
        name: "settings-daemon",
        run: |bytes| {
            let _ = isolaned::settings::parse("isolaned.toml", &text(bytes));
        },
        seeds: || of_repository(&["packaging/isolaned.toml"]),
    },
    Target {
        name: "settings-enforcer",
        run: |bytes| {
            let _ = isolane_rdma_scenario::enforcement::parse(&text(bytes), "enforce.toml");
        },
        seeds: || of_repository(&["packaging/enforce.toml"]),
    },
    Target {
        name: "settings-rpc",
        run: |bytes| {
            let text = text(bytes);
            let _ = rpc_settings::parse("rpc.toml", &text);
            let _ = quota_settings::parse("quota.toml", &text);
        },
        seeds: || of_repository(&["examples/rpc.toml", "examples/quota.toml"]),
    },
    Target {
        name: "settings-memory",
        run: settings_memory,
        seeds: || of_repository(&["packaging/mem.toml", "examples/mem-app.toml"]),
    },
    Target {
        name: "memory-json",
        run: memory_json,
        seeds: memory_documents,
    },
    Target {
        name: "journal-quota",
        run: journal_quota,
        seeds: Vec::new,
    },
    Target {
        name: "assignment",
        run: assignment,
        seeds: || {
            let files = [
                "pod = \"3f2a1c9e-0000-4000-8000-00000000000a\"\ntenant = \"prod/cache\"\nclass = \"latency\"\nweight = 4\n",
                "cgroup = \"/system.slice/slurm*/job_7/**\"\ntenant = \"job 7\"\nlasts_while = \"/sys/fs/cgroup/job_7\"\n",
            ];
            files.map(Vec::from).into()
        },
    },
    Target {
        name: "hardware-plan",
        run: hardware_plan,
        seeds: hardware_plans,
    },
    Target {
        name: "journal-hardware",
        run: |bytes| {
            if let Ok(Some(changes)) = Changes::parse(bytes, "boot") {
                let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
                assert!(changes.entries.len() <= lines);
            }
        },
        seeds: || vec![HARDWARE_JOURNAL.into()],
    },
    Target {
        name: "journal-nic",
        run: |bytes| {
            let path = Path::new("7-2.json");
            let _ = nic_journal::parse(path, "7-2.json", &text(bytes), "boot");
        },
        seeds: nic_journals,
    },
];

fn profile(bytes: &[u8]) {
    let text = text(bytes);
    let _ = Profile::parse(&text, "profile.toml");
    let _ = isolane_ethernet_scenario::profile::NicProfile::parse(&text, "card.toml");
    let _ = isolane_memory_scenario::machine::MemMachine::parse(&text, "machine.toml");
    let _ = isolane_memory_scenario::application::MemApplication::parse(&text, "app.toml");
}

fn command_line(bytes: &[u8]) {
    let text = text(bytes);
    let _ = perftest(&text, &DeviceLimits::PERMISSIVE);
    let _ = engine(&text, &DeviceLimits::PERMISSIVE);
    let _ = (quantity::duration(&text), quantity::size(&text));
    let _ = quantity::rate(&text);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, "cx5-100g-roce"));
    let _ = glob::matches(pattern, name);
}

fn settings_memory(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(settings) = memory_settings::parse(&text, "mem.toml") {
        assert!(settings.socket_mode <= 0o777);
    }
    if let Ok(file) = application::parse(&text, "app.toml") {
        assert_eq!(file.application.check(), Ok(()));
        assert_eq!(file.place.check(), Ok(()));
    }
}

/// The texts in JSON that `isolaned --mem` and its tools read.
fn memory_json(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok((application, place)) = pod::parse(&text) {
        assert_eq!(application.check(), Ok(()));
        assert_eq!(place.check(), Ok(()));
    }
    if let Ok(journal) = MemoryJournal::parse(&text) {
        for entry in &journal.entries {
            assert_eq!(entry.application.check(), Ok(()));
        }
    }
    let _ = Summary::parse(&text);
    // Numbers of a file may be anything: the options are checked, and nothing is acted upon that is no number.
    if let Ok(profile) = serde_json::from_str::<MachineProfile>(&text) {
        let _ = profile.options(Bytes::new(1 << 30)).check();
    }
    if let Ok(profile) = serde_json::from_str::<AppProfile>(&text) {
        let _ = profile.profile();
    }
}

fn memory_documents() -> Vec<Vec<u8>> {
    let pod = r#"{"kind":"Pod","metadata":{"name":"redis-0","uid":"0a1b-2c","annotations":{"isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","isolane.dev/memory":"20Gi","isolane.dev/local-max":"25%","isolane.dev/far-tiers":"1,2"}}}"#;
    let summary = r#"{"format":1,"at_unix_s":1000,"tiers":[{"capacity_bytes":8,"used_bytes":4}],"applications":[{"name":"a","priority":1,"held_bytes":[1,2],"cpu_per_mille":1000}]}"#;
    let machine = r#"{"format":1,"origin":{"machine":"a","processor":"b","kernel":"c","version":"d"},"near_latency_ns":100.0,"far_latency_ns":200.0,"near_bandwidth_bytes_per_s":2e11,"far_bandwidth_bytes_per_s":5e10,"local_threshold_bytes_per_s":1e11,"local_threshold_reached":true,"far_threshold_bytes_per_s":3e10,"hint_fault_threshold_per_s":3e4,"far_threshold_reached":true}"#;
    let profile = r#"{"format":1,"origin":{"machine":"a","processor":"b","kernel":"c","version":"d"},"command":"x","slo_latency_ns":160.0,"slo_bandwidth_bytes_per_s":null,"admissible":true,"local_bytes":1,"cpu_thousandths":1000,"bandwidth_bytes_per_s":1,"best_latency_ns":120.0,"best_bandwidth_bytes_per_s":null,"footprint_bytes":1,"measurements":3}"#;
    let journal = r#"{"version":2,"boot":"boot","backend":"cpuset","next_id":4,"entries":[{"id":3,"application":{"name":"redis","slo":{"latency_ps":160000},"priority":3,"weight":1000,"memory_bytes":1073741824,"caps":[{"tier":0,"most":{"bytes":8388608}}],"far_tiers":[1,2],"floors":{"low_bytes":4194304,"min_bytes":0},"profile":{"admissible":true,"local_bytes":1048576,"cpu_per_mille":1000,"bandwidth_bytes_per_s":1,"best":{"latency_ps":120000}}},"cgroup":"/isolane-mem/redis","inode":7,"own":true,"cpu_before":"max 100000","cpu_ours":["50000 100000"],"mems_before":"0-1","memory_bytes":1073741824,"trouble":"no","limited":true,"let_go":true}],"owed":[{"backend":"cpuset","name":"b","cgroup":"/b","inode":8,"mems_before":"0"}]}"#;
    [pod, summary, machine, profile, journal]
        .map(Vec::from)
        .into()
}

/// A journal that is read, written again and read gives the same records, and says whether promises are missing.
fn journal_quota(bytes: &[u8]) {
    let loaded = quota_journal::parse(&text(bytes), "boot");
    let missing_ms = match loaded.complete {
        true => 0,
        false => loaded.term_ms.max(1),
    };
    let mut again = quota_journal::head("boot", loaded.term_ms, missing_ms);
    again.extend(loaded.records.iter().map(quota_journal::line));
    let reread = quota_journal::parse(&again, "boot");
    assert_eq!(reread.records, loaded.records);
    assert_eq!(reread.complete, loaded.complete);
    assert_eq!(reread.term_ms, loaded.term_ms.max(missing_ms));
}

/// The file of an assignment, written again, is the same assignment.
fn assignment(bytes: &[u8]) {
    if let Ok(assignment) = isolaned::settings::assignment::parse("a.toml", &text(bytes)) {
        let again = isolaned::settings::assignment::parse("a.toml", &assignment.text());
        assert_eq!(again.as_ref(), Ok(&assignment), "{}", assignment.text());
    }
}

/// Between the policy and the host's devices in an input of `hardware-plan`.
const APART: &str = "\n---\n";

/// A policy, a host's devices, and the plan for them, which is JSON that is read again.
fn hardware_plan(bytes: &[u8]) {
    let text = text(bytes);
    let (policy, host) = text.split_once(APART).unwrap_or((&text, "{}"));
    let policy = hardware_policy::parse("policy.toml", policy);
    if let (Ok(policy), Ok(host)) = (policy, Host::parse(host))
        && let Ok(plan) = compile(&policy, &host)
    {
        let json = serde_json::to_string(&plan).expect("plain data");
        assert_eq!(serde_json::from_str::<Plan>(&json).ok(), Some(plan));
    }
}

fn hardware_plans() -> Vec<Vec<u8>> {
    let folder = "examples/hardware/";
    let hosts = ["switchdev.json", "legacy.json", "infiniband.json"];
    let hosts = hosts.map(|name| format!("{folder}{name}"));
    let policies = ["policy.toml", "tenants.toml"].map(|name| format!("{folder}{name}"));
    let read = |path: &String| of_repository(&[path]).remove(0);
    let together = policies.iter().flat_map(|policy| {
        hosts
            .iter()
            .map(move |host| [&read(policy)[..], APART.as_bytes(), &read(host)].concat())
    });
    together.collect()
}

const HARDWARE_JOURNAL: &str = r#"{"begin":{"version":1,"boot":"boot"}}
{"change":{"target":{"kind":"rate_node","handle":"pci/0000:03:00.0","node":"isolane-a"},"before":{"kind":"absent"},"after":{"kind":"rate","share_bps":0,"max_bps":1000000000,"parent":null}}}
{"change":{"target":{"kind":"dscp","network_device":"eth0","dscp":26},"before":{"kind":"absent"},"after":{"kind":"absent"}}}
{"made":{"target":{"kind":"dscp","network_device":"eth0","dscp":26}}}
{"undone":{"target":{"kind":"dscp","network_device":"eth0","dscp":26}}}
"complete"
"#;

fn nic_journals() -> Vec<Vec<u8>> {
    let journal = serde_json::json!({
        "version": 1,
        "boot": "boot",
        "namespace": 7,
        "device": "eth0",
        "index": 2,
        "address": [2, 0, 0, 0, 0, 1],
        "pins": "/sys/fs/bpf/isolane/nic-7-2",
        "queues": 8,
        "options": isolane_ethernet_attach::options::Options::default(),
        "maps": [{"queue": 0, "file": "xps_cpus", "value": "3"}],
        "sizes": {"gso_max_size_bytes": 65536, "gso_ipv4_max_size_bytes": 65536},
    });
    vec![journal.to_string().into_bytes()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that a parser rejects leaves what follows the parser unchecked.
    #[test]
    fn the_seeds_of_the_memory_service_are_accepted() {
        let seeds = memory_documents();
        let journals = seeds.iter().map(|bytes| MemoryJournal::parse(&text(bytes)));
        let journals: Vec<MemoryJournal> = journals.filter_map(Result::ok).collect();
        let [journal] = &journals[..] else {
            panic!("{journals:?}");
        };
        assert_eq!((journal.entries.len(), journal.owed.len()), (1, 1));
        let texts = crate::target("settings-memory").unwrap().inputs();
        let texts: Vec<String> = texts.iter().map(|bytes| text(bytes).into_owned()).collect();
        let settings = |text: &&String| memory_settings::parse(text, "mem.toml").is_ok();
        let applications = |text: &&String| application::parse(text, "app.toml").is_ok();
        assert_eq!(texts.iter().filter(settings).count(), 2, "{texts:?}");
        assert_eq!(texts.iter().filter(applications).count(), 2, "{texts:?}");
    }
}
