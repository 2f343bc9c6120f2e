//! The operator's file: each key, and rejected files.

use super::*;
use crate::config::PolicyName;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::message::Class;
use proptest::prelude::*;

const WHOLE: &str = r#"
socket = "/run/isolane/clients/isolaned.sock"
socket_mode = "0660"
control_socket = "/run/isolane/control/isolaned.sock"
granularity = "tenant"
trust_names = false

[[device]]
name = "mlx5_0"
port = 1
gid_index = 3
rate = "92Gb/s"
messages_per_s = 30_000_000
target = "2us"
reference_period = "20us"
reference_count = 10000

[[device]]
name = "mlx5_1"
policy = "none"
target = "auto"
target_factor = 3

[[peer]]
device = "mlx5_0"
address = "10.0.0.2:7471"
remote_device = "mlx5_0"

[[peer]]
device = "mlx5_0"
remote_device = "mlx5_1"

[peering]
listen = "10.0.0.1:7471"
key_file = "/etc/isolane/peers.key"

[[rule]]
cgroup = "/kubepods*/pod1234/**"
tenant = "cache"
class = "latency"
weight = 2

[[rule]]
user = 1000
tenant = "training-{claim}"
class = "bandwidth"

[[tenant]]
name = "cache"
weight = 4

[metrics]
listen = "127.0.0.1:9471"
"#;

#[test]
fn a_whole_file_reads_as_written() {
    let settings = parse("x.toml", WHOLE).unwrap();
    let config = &settings.config;
    assert_eq!(config.socket_mode, 0o660);
    assert_eq!(config.granularity, Granularity::Tenant);
    assert!(!config.trust_names);
    let device = &config.devices[0];
    assert_eq!(device.rate, Some(BitRate::from_gbps(92)));
    assert_eq!(device.target, Some(Duration::from_us(2)));
    assert_eq!(settings.ports[0].gid_index, Some(3));
    assert_eq!(config.devices[1].policy, PolicyName::None);
    assert_eq!(config.devices[1].target, None);
    assert_eq!(settings.ports[1].target_factor, 3);
    assert_eq!(settings.peers[1].place, Place::Here(1));
    assert_eq!(config.rules[0].class, Some(Class::Latency));
    assert_eq!(config.rules[1].user, Some(1000));
    assert_eq!(config.tenants[0].weight, 4);
    assert_eq!(
        settings.metrics,
        Some(Listen::Tcp("127.0.0.1:9471".parse().unwrap()))
    );
}

#[test]
fn a_file_with_a_device_alone_is_enough() {
    let settings = parse("x.toml", "[[device]]\nname = \"rxe0\"\n").unwrap();
    assert_eq!(settings, Settings::for_devices(&["rxe0".to_owned()]));
}

/// Each line replaces the file's last line with its key, or is put in front. The message must name line, key, value and
/// remedy.
#[test]
fn mistakes_name_line_key_value_and_remedy() {
    let check = |text: &str, wanted: &str| {
        let error = parse("x.toml", text).unwrap_err().to_string();
        assert_eq!(error, wanted, "{text}");
    };
    let device = "[[device]]\nname = \"r0\"\n";
    check(
        "",
        "x.toml:1: device is missing: the devices to serve, each as [[device]]",
    );
    check(
        "device = []",
        "x.toml:1: device = []: must list at least one device; ibv_devices shows them",
    );
    check(
        &format!("{device}polcy = \"none\"\n"),
        "x.toml:3: device: unknown key polcy; did you mean policy?",
    );
    check(
        &format!("{device}policy = \"justicia\"\n"),
        "x.toml:3: device \"r0\": policy = \"justicia\": unknown; did you mean justitia?",
    );
    check(
        &format!("{device}rate = 92\n"),
        "x.toml:3: device \"r0\": rate = 92: must be text with a number and a unit of b/s, Kb/s, Mb/s, Gb/s or B/s ... GB/s, like \"10Gb/s\"",
    );
    check(
        &format!("{device}target = 2\n"),
        "x.toml:3: device \"r0\": target = 2: has no unit; write \"2us\" or \"2ms\"",
    );
    check(
        &format!("{device}target = \"2us\"\ntarget_factor = 2\n"),
        "x.toml:4: device \"r0\": target_factor = 2: goes with target = \"auto\" only; remove one",
    );
    check(
        &format!("{device}reference_period = \"1us\"\n"),
        "x.toml:3: device \"r0\": reference_period = \"1us\": must be 20us to 1s",
    );
    check(
        &format!("{device}{device}"),
        "x.toml:4: device \"r0\": name = \"r0\": is listed twice; merge the two [[device]]",
    );
    check(
        &format!("{device}[[rule]]\nuser = 1\n"),
        "x.toml:3: rule: tenant is missing: a rule must give tenant, class or weight",
    );
    for condition in [
        "cgroup = \"/batch/job-*/**\"\n",
        "cgroup = \"/batch/*/*\"\n",
        "user = 1\n",
    ] {
        check(
            &format!("{device}[[rule]]\ntenant = \"job-{{cgroup}}\"\n{condition}"),
            "x.toml:4: rule: tenant = \"job-{cgroup}\": has {cgroup}, which a tenant that creates cgroups chooses here; use {owner}, or a cgroup with * in its last part alone",
        );
    }
    check(
        &format!("{device}[[rule]]\ntenant = \"a\"\ncgroup = \"/batch/*/step\"\n"),
        "x.toml:5: rule: cgroup = \"/batch/*/step\": may have no name behind a part with * or user@, because the owner of that cgroup chooses the names below",
    );
    check(
        &format!("{device}[[tenant]]\nname = \"a\"\nweight = 0\n"),
        "x.toml:5: tenant \"a\": weight = 0: must be 1 to 1048576",
    );
    check(
        &format!("{device}[[peer]]\ndevice = \"r0\"\nremote_device = \"r1\"\n"),
        "x.toml:5: peer: remote_device = \"r1\": is not one of [[device]]; give the address of the daemon that has it",
    );
    check(
        &format!(
            "{device}[[peer]]\ndevice = \"r0\"\nremote_device = \"r1\"\naddress = \"10.0.0.2:7471\"\n"
        ),
        "x.toml:6: peer: address = \"10.0.0.2:7471\": needs the cluster's key; add [peering] with key_file",
    );
    check(
        &format!("{device}[metrics]\nlisten = \"0.0.0.0:9471\"\n"),
        "x.toml:4: listen = \"0.0.0.0:9471\": can be reached by other machines, and metrics name tenants; use 127.0.0.1, or say expose = true",
    );
    check(
        &format!("socket_mode = \"0888\"\n{device}"),
        "x.toml:1: socket_mode = \"0888\": must be octal mode bits in quotes that let the daemon itself in, \"0600\" to \"0777\"",
    );
}

#[test]
fn a_device_has_at_most_64_peers() {
    let mut text = "[[device]]\nname = \"r0\"\n[peering]\nkey_file = \"/k\"\n".to_owned();
    for peer in 0..64 {
        text += &format!(
            "[[peer]]\ndevice = \"r0\"\nremote_device = \"r{peer}\"\naddress = \"10.0.0.2:7471\"\n"
        );
    }
    assert_eq!(parse("x.toml", &text).unwrap().peers.len(), PEERS_MAX);
    text += "[[peer]]\ndevice = \"r0\"\nremote_device = \"r64\"\naddress = \"10.0.0.2:7471\"\n";
    let error = parse("x.toml", &text).unwrap_err().to_string();
    let expected = "device = \"r0\": has 64 peers already, the most of a device";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_a_running_daemon_cannot_take_over_is_named() {
    let old = parse("x.toml", WHOLE).unwrap();
    let mut next = old.clone();
    next.config.rules.clear();
    next.config.devices[0].rate = None;
    assert!(old.needs_restart(&next).is_empty());
    next.config.socket = "/tmp/other".into();
    next.config.devices.pop();
    assert_eq!(old.needs_restart(&next), ["socket", "device"]);
}

#[test]
fn devices_that_are_left_out_take_their_peers_with_them() {
    let mut settings = parse("x.toml", WHOLE).unwrap();
    let second = ["mlx5_1".to_owned()];
    settings.keep_devices(&second).unwrap();
    assert_eq!(settings.config.devices[0].name, "mlx5_1");
    assert_eq!(settings.ports[0].target_factor, 3);
    assert_eq!(settings.peers, []);
    let unknown = ["mlx5_9".to_owned()];
    assert_eq!(settings.keep_devices(&unknown), Err("mlx5_9"));
    assert_eq!(settings.config.devices.len(), 1);

    let mut settings = parse("x.toml", WHOLE).unwrap();
    let first = ["mlx5_0".to_owned()];
    settings.keep_devices(&first).unwrap();
    assert_eq!(settings.peers.len(), 1, "the one at another daemon stays");
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = parse("x.toml", &text);
    }

    #[test]
    fn no_line_added_to_a_good_file_panics(key in "[a-z_]{1,12}", value in "[0-9a-z\"\\[\\].:/-]{0,12}") {
        let _ = parse("x.toml", &format!("{key} = {value}\n{WHOLE}"));
        let _ = parse("x.toml", &format!("{WHOLE}{key} = {value}\n"));
    }
}

/// The packaged example must be valid.
#[test]
fn the_packaged_example_is_good() {
    let text = include_str!("../../../../../packaging/isolaned.toml");
    let settings = parse("packaging/isolaned.toml", text).unwrap();
    assert_eq!(settings.config.rules.len(), 2);
    // Also with the commented keys enabled.
    let whole: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(parse("whole", &whole).unwrap().peers.len(), 1);
}
