//! `isolane rdma plan` and its companions on any machine.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use crate::support::{check, has_all, refuses};
use isolane_common_linux::network_namespace::NetworkNamespace;
use serde_json::Value;
use std::os::unix::fs::DirBuilderExt;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/hardware");

fn example(name: &str) -> String {
    format!("{EXAMPLES}/{name}")
}

#[test]
fn a_policy_is_planned_for_devices_of_another_host() {
    let (policy, devices) = (example("policy.toml"), example("switchdev.json"));
    let words = [
        "rdma",
        "plan",
        policy.as_str(),
        "--devices",
        devices.as_str(),
    ];
    let (text, _) = check(&words, 0);
    has_all(
        &text,
        &["11 hardware settings", "isolane-training", "hw-tc+sriov"],
    );
    let (json, _) = check(&[&words[..], &["--json", "--strict"]].concat(), 1);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&plan["version"], &plan["device"]),
        (&2.into(), &"mlx5_0".into())
    );
    let (shell, _) = check(&[&words[..], &["--environment", "cache"]].concat(), 0);
    has_all(
        &shell,
        &[
            "export NCCL_IB_TC=184\n",
            "export UCX_IB_TRAFFIC_CLASS=184\n",
        ],
    );
    refuses(
        &[&words[..], &["--environment", "logs"]].concat(),
        &["logs", "cache, training, backup"],
    );
    refuses(
        &[&words[..], &["--device", "mlx5_9"]].concat(),
        &["mlx5_9", "mlx5_0"],
    );
}

/// Goal: the command that a plan prints audits its settings. Method: the example's tenants have the printed weights, and
/// the audit knows every printed policy.
#[test]
fn a_plan_is_audited_by_the_command_that_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let tenants = example("tenants.toml");
    let policy = example("policy.toml");
    for (host, same_weights) in [("switchdev", true), ("infiniband", false), ("rxe", false)] {
        let devices = example(&format!("{host}.json"));
        let words = ["rdma", "plan", &policy, "--devices", &devices];
        let (text, _) = check(&words, 0);
        let (json, _) = check(&[&words[..], &["--json"]].concat(), 0);
        let plan: Value = serde_json::from_str(&json).unwrap();
        for (tenant, weight) in weights(&std::fs::read_to_string(&tenants).unwrap()) {
            let printed = plan["simulated_weights"][&tenant].as_u64();
            assert_eq!(printed == Some(weight), same_weights, "{host}: {tenant}");
        }
        let (_, command) = text
            .split_once("  isolane audit --scenario TENANTS.toml ")
            .unwrap();
        let (options, _) = command.split_once('\n').unwrap();
        let report = folder.path().join(host);
        let mut audit = vec!["audit", "--scenario", &tenants];
        audit.extend(options.split(' '));
        audit.extend(["--report", report.to_str().unwrap()]);
        let (text, _) = check(&audit, 0);
        let all = plan["simulated_by"].as_str().unwrap();
        has_all(&text, &["none", all]);
    }
}

/// Name and weight of each tenant of a scenario.
fn weights(scenario: &str) -> Vec<(String, u64)> {
    let tenants = scenario.split("[[tenant]]").skip(1);
    let value = |tenant: &str, key: &str| {
        let line = tenant.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_matches([' ', '=', '"']).to_owned()
    };
    let of = |tenant: &str| {
        let weight = value(tenant, "weight").replace('_', "");
        (value(tenant, "name"), weight.parse().unwrap())
    };
    tenants.map(of).collect()
}

#[test]
fn the_file_for_the_daemon_is_one_that_the_daemon_reads() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("isolaned.toml");
    let (policy, devices) = (example("policy.toml"), example("rxe.json"));
    let words = [
        "rdma",
        "plan",
        &policy,
        "--devices",
        &devices,
        "--isolaned",
        file.to_str().unwrap(),
    ];
    check(&words, 0);
    let text = std::fs::read_to_string(&file).unwrap();
    let settings = isolaned::settings::parse("isolaned.toml", &text).unwrap();
    assert_eq!(settings.config.tenants.len(), 4);
}

#[test]
fn mistakes_are_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let policy = file("p.toml", "[[tenant]]\nname = \"a\"\nwieght = 2\n");
    let devices = example("legacy.json");
    refuses(
        &["rdma", "plan", &policy, "--devices", &devices],
        &["p.toml:3", "wieght", "did you mean weight"],
    );
    let good = example("policy.toml");
    let broken = file("devices.json", "{\"version\":2}");
    refuses(
        &["rdma", "plan", &good, "--devices", &broken],
        &[
            "devices.json: is no file of `isolane rdma plan --print-devices`",
            "rdma_controller",
        ],
    );
    let greedy = file(
        "g.toml",
        "[[tenant]]\nname = \"a\"\nguarantee = \"200Gb/s\"\n",
    );
    refuses(
        &["rdma", "plan", &greedy, "--devices", &devices],
        &["200 Gb/s", "100 Gb/s"],
    );
}

#[test]
fn without_an_applied_policy_there_is_nothing_to_restore() {
    let folder = tempfile::tempdir().unwrap();
    let journals = folder.path().join("none");
    let journals = journals.to_str().unwrap();
    let (status, _) = check(&["rdma", "status", "--journals", journals], 0);
    assert_eq!(status, "no policy is applied\n");
    let (restored, _) = check(&["rdma", "rollback", "--journals", journals], 0);
    assert_eq!(restored, "nothing to restore: no policy is applied\n");
    let (json, _) = check(&["rdma", "status", "--json", "--journals", journals], 0);
    assert_eq!(json, "[]\n");
}

/// A directory of journals that no other user can write to.
fn journals(folder: &tempfile::TempDir, files: &[(&str, &str)]) -> String {
    let journals = folder.path().join("journals");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&journals)
        .unwrap();
    for (device, lines) in files {
        std::fs::write(journals.join(format!("{device}.journal")), lines).unwrap();
    }
    journals.to_str().unwrap().to_owned()
}

#[test]
fn a_damaged_journal_does_not_stop_the_restoration_of_other_devices() {
    let folder = tempfile::tempdir().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let begin = format!(
        "{}\n",
        serde_json::json!({"begin": {"version": 1, "boot": boot.trim()}})
    );
    let files = [("a", "no journal\n"), ("b", &begin), ("c", "{}\n")];
    let journals = journals(&folder, &files);
    let (text, stderr) = check(&["rdma", "rollback", "--journals", &journals], 3);
    assert_eq!(text, "b: 0 settings restored\n");
    has_all(&stderr, &["a.journal, line 1", "c.journal, line 1"]);
    let left = |device: &str| std::fs::exists(format!("{journals}/{device}.journal")).unwrap();
    assert_eq!(["a", "b", "c"].map(left), [true, false, true]);
}

/// Goal: only a change of a device that this network namespace has no more is forgotten. Method: journals of this boot
/// for `mlx5_0`, which does not exist; number 1 is the loopback device.
#[test]
fn a_renamed_device_or_another_namespace_keeps_its_journal() {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let here = serde_json::to_value(NetworkNamespace::here()).unwrap();
    let other = serde_json::json!({"inode": 1, "cookie": 1});
    let cases = [
        (None, None, 1, "rename it back"),
        (
            Some(&here),
            Some(1),
            1,
            "is called lo now; rename it to mlx5_0",
        ),
        (Some(&other), Some(1), 1, "is of network namespace 1,"),
        (
            Some(&here),
            Some(2_000_000_000),
            0,
            "1 gone from this network",
        ),
    ];
    for (namespace, number, status, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut begin = serde_json::json!({"begin": {"version": 2, "boot": boot.trim()}});
        let mut change = serde_json::json!({"change": {
            "target": {"kind": "flow_control", "network_device": "mlx5_0"},
            "before": {"kind": "flow_control", "enabled": 0},
            "after": {"kind": "flow_control", "enabled": 8},
        }});
        match (namespace, number) {
            (Some(namespace), Some(number)) => {
                begin["begin"]["namespace"] = namespace.clone();
                change["change"]["number"] = number.into();
            }
            _ => begin["begin"]["version"] = 1.into(),
        }
        let lines = format!("{begin}\n{change}\n");
        let journals = journals(&folder, &[("mlx5_0", &lines)]);
        let (text, stderr) = check(&["rdma", "rollback", "--journals", &journals], status);
        has_all(&(text + &stderr), &[words]);
        let is_left = std::fs::exists(format!("{journals}/mlx5_0.journal")).unwrap();
        assert_eq!(is_left, status == 1, "{words}");
    }
}

#[test]
fn the_devices_of_this_machine_are_printed_as_a_file_that_plan_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (json, _) = check(&["rdma", "plan", "--print-devices"], 0);
    let file = folder.path().join("devices.json");
    std::fs::write(&file, &json).unwrap();
    let host: Value = serde_json::from_str(&json).unwrap();
    let policy = example("policy.toml");
    let words = ["rdma", "plan", &policy, "--devices", file.to_str().unwrap()];
    if host["devices"].as_array().unwrap().is_empty() {
        let (_, stderr) = check(&words, 3);
        has_all(&stderr, &["no RDMA device"]);
    }
}
