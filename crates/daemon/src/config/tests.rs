use super::*;
use isolane_proto::message::Class;
use proptest::prelude::*;

const WHOLE: &str = r#"
socket = "/run/isolane/isolaned.sock"
socket_mode = "0660"
control_socket = "/run/isolane/control.sock"
policy = "justitia"
granularity = "tenant"
trust_declared = false
declared_weight_max = 4

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

[[tenant]]
name = "cache"
cgroup = "/kubepods*/pod1234*"
class = "latency"
weight = 2

[[tenant]]
name = "training"
user = 1000
class = "bandwidth"

[metrics]
listen = "127.0.0.1:9471"
"#;

#[test]
fn a_whole_file_reads_as_written() {
    let config = parse("x.toml", WHOLE).unwrap();
    assert_eq!(config.socket_mode, 0o660);
    assert_eq!(config.granularity, Granularity::Tenant);
    let device = config.device("mlx5_0").unwrap();
    assert_eq!(device.rate, Some(BitRate::from_gbps(92)));
    assert_eq!(device.target, Target::Fixed(Duration::from_us(2)));
    assert_eq!(config.devices[1].target, Target::Auto { factor: 3 });
    assert_eq!(config.peers[1].address, None);
    assert_eq!(config.tenants[1].user, Some(1000));
    let Some(Listen::Tcp(address)) = config.metrics else {
        panic!("{:?}", config.metrics);
    };
    assert_eq!(address.port(), 9471);
}

#[test]
fn a_file_with_a_device_alone_is_enough() {
    let config = parse("x.toml", "[[device]]\nname = \"rxe0\"\n").unwrap();
    assert_eq!(config, Config::for_devices(&["rxe0".to_owned()]));
}

/// Each line replaces the whole file's last mention of its key or is put in front; the message must name line, key,
/// value and remedy.
#[test]
fn mistakes_name_line_key_value_and_remedy() {
    let check = |text: &str, wanted: &str| {
        let error = parse("x.toml", text).unwrap_err().to_string();
        assert_eq!(error, wanted, "{text}");
    };
    let device = "[[device]]\nname = \"r0\"\n";
    check(
        "",
        "x.toml:1: device is missing: the devices that are served, each as [[device]]",
    );
    check(
        "device = []",
        "x.toml:1: device = []: must list at least one device; ibv_devices shows them",
    );
    check(
        &format!("polcy = \"none\"\n{device}"),
        "x.toml:1: unknown key polcy; did you mean policy?",
    );
    check(
        &format!("policy = \"justicia\"\n{device}"),
        "x.toml:1: policy = \"justicia\": unknown; did you mean justitia?",
    );
    check(
        &format!("{device}rate = 92\n"),
        "x.toml:3: device \"r0\": rate = 92: must be text with a number and a unit of b/s, Kb/s, Mb/s, Gb/s or B/s ... GB/s, like \"10Gb/s\"",
    );
    check(
        &format!("{device}target = 2\n"),
        "x.toml:3: device \"r0\": target = 2: has no unit; write \"2us\", \"2ms\" or \"2s\"",
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
        &format!("{device}[[tenant]]\nname = \"a\"\n"),
        "x.toml:4: tenant \"a\": name = \"a\": has no condition; give cgroup, user, program or declared, or cgroup = \"*\" for everyone",
    );
    check(
        &format!("{device}[[tenant]]\nname = \"a\"\nuser = 1\nweight = 0\n"),
        "x.toml:6: tenant \"a\": weight = 0: must be 1 to 1048576",
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

fn process() -> Identity {
    Identity {
        user: 1000,
        cgroup: "/kubepods.slice/pod1234.slice/crio-1".to_owned(),
        program: "redis".to_owned(),
        tenant: "mine".to_owned(),
        class: Class::Latency,
        weight: 1000,
    }
}

#[test]
fn the_first_rule_that_fits_wins_over_the_process_own_word() {
    let config = parse("x.toml", WHOLE).unwrap();
    let cache = config.assign(&process());
    assert_eq!(
        (cache.tenant.as_str(), cache.class, cache.weight),
        ("cache", Class::Latency, 2)
    );
    let training = config.assign(&Identity {
        cgroup: "/user.slice".to_owned(),
        ..process()
    });
    assert_eq!(
        (training.tenant.as_str(), training.class, training.weight),
        ("training", Class::Bandwidth, 4)
    );
}

#[test]
fn without_a_rule_the_process_own_word_counts_within_limits() {
    let config = parse("x.toml", WHOLE).unwrap();
    let other = Identity {
        cgroup: "/".to_owned(),
        user: 7,
        ..process()
    };
    let assigned = config.assign(&other);
    // trust_declared = false: who says latency is found out, and the weight is cut.
    assert_eq!(
        (assigned.tenant.as_str(), assigned.class, assigned.weight),
        ("mine", Class::Auto, 4)
    );
    let silent = Identity {
        tenant: String::new(),
        weight: 0,
        ..other
    };
    assert_eq!(config.assign(&silent).tenant, "user-7");
    assert_eq!(config.assign(&silent).weight, 1);
}

#[test]
fn what_a_running_daemon_cannot_take_over_is_named() {
    let old = parse("x.toml", WHOLE).unwrap();
    let mut next = old.clone();
    next.tenants.clear();
    next.devices[0].rate = None;
    assert!(old.needs_restart(&next).is_empty());
    next.socket = "/tmp/other".into();
    next.devices.pop();
    assert_eq!(old.needs_restart(&next), ["socket", "device"]);
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
