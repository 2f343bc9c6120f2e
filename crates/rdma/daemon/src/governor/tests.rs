//! A host in simulated time: the governor, and well-behaved or hostile processes.

use super::*;
use crate::config::{DeviceConfig, PolicyName, Rule, TenantConfig};
use isolane_common_quantities::units::Bytes;
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::region::{Counters, SLOT_USED};

mod calm;
mod dilation;
mod foreign;
mod hostile;
mod limits;
mod readers;
mod service;
mod sources;
mod trust;

const MS: u64 = 1_000_000;
/// 5 MB/s: a slow device keeps the figures readable.
const RATE: u64 = 40_000_000;

fn config() -> Config {
    Config {
        devices: vec![DeviceConfig {
            name: "rxe0".to_owned(),
            rate: Some(BitRate::from_bps(RATE)),
            ..DeviceConfig::default()
        }],
        trust_names: true,
        own_names_max: 4_096,
        // A rule of the operator puts the process named fast into the latency class.
        rules: vec![Rule {
            claim: Some("fast".to_owned()),
            class: Some(Class::Latency),
            ..Rule::default()
        }],
        ..Config::default()
    }
}

fn who(tenant: &str, class: Class) -> Who {
    Who {
        pid: 1,
        user: 1000,
        account: Account::of_user(1000),
        cgroup: String::new(),
        claim: tenant.to_owned(),
        program: "test".to_owned(),
        class,
        weight: 1,
    }
}

/// A process with `backlog` bytes that sends what its lease admits.
struct Process {
    key: SessionKey,
    region: Region,
    meters: [u16; 2],
    backlog: u64,
    credit: f64,
    sent: u64,
}

impl Process {
    fn counters(&self) -> Counters {
        self.region.meters[self.meters[0] as usize].counters()
    }

    fn lease(&self) -> Lease {
        self.region.meters[self.meters[0] as usize].lease()
    }
}

struct Host {
    governor: Governor,
    now_ns: u64,
    processes: Vec<Process>,
    orders: Vec<Order>,
}

impl Host {
    fn new(config: Config) -> Self {
        let rates = vec![BitRate::from_gbps(1); config.devices.len()];
        let now_ns = 77 * MS;
        Self {
            governor: Governor::new(config, rates, now_ns).expect("sensible options"),
            now_ns,
            processes: Vec::new(),
            orders: Vec::new(),
        }
    }

    fn start(&mut self, who: Who) -> usize {
        let begun = self.governor.arrive(self.now_ns, who).expect("room for it");
        let region = Region::map(&begun.memory).expect("what the governor made");
        let meters = self.governor.open(self.now_ns, begun.key, "rxe0");
        self.processes.push(Process {
            key: begun.key,
            region,
            meters,
            backlog: 0,
            credit: 0.0,
            sent: 0,
        });
        self.processes.len() - 1
    }

    /// Starts a process with an unlimited backlog.
    fn start_bulk(&mut self, who: Who) -> usize {
        let at = self.start(who);
        self.processes[at].backlog = u64::MAX / 4;
        at
    }

    fn stop(&mut self, at: usize) {
        let process = self.processes.swap_remove(at);
        self.governor.depart(self.now_ns, process.key);
    }

    /// Advances all processes by 100 us, and the governor's due work.
    fn step(&mut self) {
        self.now_ns += MS / 10;
        for process in &mut self.processes {
            let meter = &process.region.meters[process.meters[0] as usize];
            let lease = meter.lease();
            if process.backlog == 0 {
                meter.waiting_since_ns.store(0, Ordering::Relaxed);
                continue;
            }
            let released = lease.flags & METER_RELEASED != 0;
            process.credit += lease.rate_bytes_per_s as f64 * 1e-4;
            process.credit = process.credit.min(lease.burst_bytes as f64);
            let passed = match released {
                true => process.backlog.min(500),
                false => (process.credit as u64).min(process.backlog),
            };
            process.credit -= passed as f64;
            process.backlog -= passed;
            process.sent += passed;
            meter.passed_bytes.fetch_add(passed, Ordering::Relaxed);
            meter
                .passed_operations
                .fetch_add(passed.div_ceil(4_096), Ordering::Relaxed);
            let since = if process.backlog > 0 { self.now_ns } else { 0 };
            meter.waiting_since_ns.store(since, Ordering::Relaxed);
            if lease.flags & METER_ACTIVE == 0 {
                self.governor.signalled(self.now_ns, process.key);
            }
        }
        while self
            .governor
            .next_deadline_ns()
            .is_some_and(|due| due <= self.now_ns)
        {
            self.governor.advance(self.now_ns);
        }
        self.governor.settle(self.now_ns);
        while let Some((_, order)) = self.governor.take_order() {
            self.orders.push(order);
        }
        while self.governor.take_look().is_some() {}
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms * 10 {
            self.step();
        }
    }

    /// Bytes that each process sent in `ms`.
    fn sent_in(&mut self, ms: u64) -> Vec<u64> {
        let before: Vec<u64> = self.processes.iter().map(|process| process.sent).collect();
        self.run(ms);
        let after = self.processes.iter().map(|process| process.sent);
        after
            .zip(before)
            .map(|(after, before)| after - before)
            .collect()
    }

    fn device(&mut self) -> crate::snapshot::DeviceSnapshot {
        self.governor.snapshot(self.now_ns).devices.remove(0)
    }
}

fn near(value: u64, expected: u64) {
    let off = value.abs_diff(expected);
    assert!(
        off * 50 <= expected,
        "{value} is not within 2 % of {expected}"
    );
}

#[test]
fn tenants_share_by_weight_with_any_number_of_processes() {
    let mut config = config();
    for (name, weight) in [("one", 1), ("two", 2), ("four", 4)] {
        config.tenants.push(TenantConfig {
            name: name.to_owned(),
            weight,
        });
    }
    let mut host = Host::new(config);
    for name in ["one", "two", "four", "one", "one"] {
        host.start_bulk(who(name, Class::Bandwidth));
    }
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0] + sent[3] + sent[4], 5_000_000 / 7);
    near(sent[1], 5_000_000 * 2 / 7);
    near(sent[2], 5_000_000 * 4 / 7);
    near(sent[3], sent[4]);
}

#[test]
fn each_process_is_a_flow_where_the_operator_selects_it() {
    let mut host = Host::new(Config {
        granularity: Granularity::Application,
        ..config()
    });
    for name in ["one", "many", "many", "many"] {
        host.start_bulk(who(name, Class::Bandwidth));
    }
    host.run(50);
    for sent in host.sent_in(1_000) {
        near(sent, 1_250_000);
    }
}

#[test]
fn a_newcomer_has_its_share_in_the_step_of_its_first_message() {
    let mut host = Host::new(config());
    let first = host.start_bulk(who("a", Class::Bandwidth));
    host.run(100);
    assert_eq!(host.processes[first].lease().rate_bytes_per_s, 5_000_000);
    let second = host.start_bulk(who("b", Class::Bandwidth));
    host.step();
    for at in [first, second] {
        assert_eq!(host.processes[at].lease().rate_bytes_per_s, 2_500_000);
    }
    host.stop(second);
    host.step();
    assert_eq!(host.processes[first].lease().rate_bytes_per_s, 5_000_000);
}

#[test]
fn a_knock_before_the_counters_move_is_not_lost() {
    let mut host = Host::new(config());
    let at = host.start(who("a", Class::Bandwidth));
    let key = host.processes[at].key;
    host.governor.signalled(host.now_ns, key);
    host.governor.settle(host.now_ns);
    let meter = &host.processes[at].region.meters[0];
    meter.passed_bytes.fetch_add(4_096, Ordering::Relaxed);
    let due = host.governor.next_deadline_ns().expect("it looks again");
    assert!(due <= host.now_ns + MS);
    host.governor.advance(due);
    assert_eq!(host.processes[at].lease().flags, METER_ACTIVE);
}

#[test]
fn a_lease_lasts_while_it_is_used() {
    let mut host = Host::new(config());
    let at = host.start_bulk(who("a", Class::Bandwidth));
    for _ in 0..1_000 {
        host.run(1);
        // A daemon that is delayed by a third of a second does no harm.
        assert!(host.processes[at].lease().valid_until_ns >= host.now_ns + 400 * MS);
    }
    let written = host.governor.figures().leases_total;
    assert!(
        written < 10,
        "{written} leases written, though nothing changed"
    );
}

#[test]
fn a_missed_target_takes_effect_in_the_same_call() {
    let mut host = Host::new(config());
    let bulk = host.start_bulk(who("bulk", Class::Bandwidth));
    host.run(100);
    host.start(who("fast", Class::Latency));
    host.step();
    assert!(host.orders.contains(&Order::SendReference));
    assert_eq!(host.processes[bulk].lease().chunk_bytes, 5_000);
    assert_eq!(host.processes[bulk].lease().rate_bytes_per_s, 5_000_000);
    host.governor
        .reference_latency(host.now_ns, 0, Duration::from_ms(50));
    let due = host
        .governor
        .next_deadline_ns()
        .expect("a reference period");
    assert!(due <= host.now_ns + MS);
    host.governor.advance(due);
    assert_eq!(host.processes[bulk].lease().rate_bytes_per_s, 2_500_000);
    // The minimum is half of the device for one backlogged tenant and one latency tenant.
    host.run(20);
    assert_eq!(host.processes[bulk].lease().rate_bytes_per_s, 2_500_000);
    assert_eq!(host.device().minimum_rate_bps, RATE / 2);
}

#[test]
fn references_are_sent_only_while_a_resource_hungry_flow_is_active() {
    let mut host = Host::new(config());
    host.start(who("fast", Class::Latency));
    host.run(50);
    assert_eq!(host.governor.next_deadline_ns(), None);
    host.orders.clear();
    host.start_bulk(who("bulk", Class::Bandwidth));
    host.run(100);
    let sent = host
        .orders
        .iter()
        .filter(|order| **order == Order::SendReference);
    let sent = sent.count();
    assert!(
        (90..=101).contains(&sent),
        "{sent} references in 100 periods"
    );
}

#[test]
fn chunks_are_as_large_as_a_known_target_lets_the_bursts_of_all_senders_be() {
    let mut known = config();
    known.devices[0].target = Some(Duration::from_ms(40));
    let mut set = known.clone();
    set.devices[0].chunk = Some(Bytes::new(6_000));
    for (config, one, two) in [(known, 49_152, 24_576), (set, 6_000, 6_000)] {
        let mut host = Host::new(config);
        host.start(who("fast", Class::Latency));
        let first = host.start_bulk(who("first", Class::Bandwidth));
        host.run(100);
        // Half of the target is 100,000 bytes, and a burst is two chunks.
        assert_eq!(host.processes[first].lease().chunk_bytes, one);
        let second = host.start_bulk(who("second", Class::Bandwidth));
        assert_eq!(host.processes[second].lease().chunk_bytes, two);
        host.run(1_000);
        assert_eq!(host.processes[first].lease().chunk_bytes, two);
        // The chunk shrinks with the rate, down to the paper's value.
        for _ in 0..400 {
            host.governor
                .reference_latency(host.now_ns, 0, Duration::from_ms(50));
            host.step();
        }
        let lease = host.processes[first].lease();
        assert_eq!(u64::from(lease.chunk_bytes), u64::from(two).min(16_384));
    }
}

#[test]
fn idle_meters_get_the_small_chunk_before_they_send() {
    let mut host = Host::new(config());
    let idle = host.start(who("bulk", Class::Bandwidth));
    assert_eq!(host.processes[idle].lease().chunk_bytes, 65_536);
    host.start(who("fast", Class::Latency));
    host.step();
    assert_eq!(host.processes[idle].lease().chunk_bytes, 5_000);
    host.stop(1);
    host.step();
    assert_eq!(host.processes[idle].lease().chunk_bytes, 65_536);
}

/// The newest state for the other daemons.
fn last_report(host: &Host) -> RemoteState {
    let states = host.orders.iter().rev().find_map(|order| match order {
        Order::Tell(state) => Some(*state),
        Order::SendReference | Order::Serve(_) | Order::TellReads(_) => None,
    });
    states.expect("the peers were told")
}

#[test]
fn other_hosts_get_arrivals_and_report_theirs() {
    let mut host = Host::new(config());
    let bulk = host.start_bulk(who("bulk", Class::Bandwidth));
    host.run(5);
    assert_eq!(last_report(&host).sending_hungry_weight, 1);
    let receiver = RemoteState {
        receiving_hungry_weight: 4,
        receiving_latency_weight: 1,
        ..RemoteState::default()
    };
    host.governor.remote(host.now_ns, 0, receiver);
    host.step();
    assert_eq!(host.device().minimum_rate_bps, RATE / 4);
    assert_eq!(host.processes[bulk].lease().chunk_bytes, 5_000);
}

#[test]
fn without_a_policy_everything_passes_and_no_meter_is_read() {
    let mut config = config();
    config.devices[0].policy = PolicyName::None;
    let mut host = Host::new(config);
    let at = host.start_bulk(who("a", Class::Bandwidth));
    host.run(50);
    assert_eq!(
        host.processes[at].lease().flags,
        METER_ACTIVE | METER_RELEASED
    );
    assert_eq!(host.governor.next_deadline_ns(), None);
    let snapshot = host.governor.snapshot(host.now_ns);
    assert_eq!(
        snapshot.sessions[0].meters[0].passed_bytes,
        host.processes[at].sent
    );
    assert_eq!(snapshot.tenants[0].passed_bytes, host.processes[at].sent);
}

#[test]
fn a_device_that_is_not_served_has_no_meter() {
    let mut host = Host::new(config());
    let at = host.start(who("a", Class::Auto));
    let key = host.processes[at].key;
    assert_eq!(
        host.governor.open(host.now_ns, key, "mlx5_7"),
        [NO_METER; 2]
    );
    assert_eq!(
        host.governor.open(host.now_ns, key, "rxe0"),
        host.processes[at].meters
    );
}

#[test]
fn one_account_cannot_take_every_session() {
    let mut host = Host::new(Config {
        sessions_max: 8,
        sessions_per_account_max: 4,
        ..config()
    });
    for _ in 0..4 {
        host.start(who("greedy", Class::Auto));
    }
    let error = host
        .governor
        .arrive(host.now_ns, who("greedy", Class::Auto))
        .expect_err("four are there");
    assert!(error.to_string().contains("user 1000 holds 4"), "{error}");
    // The same user in another container is another account.
    let other = |container: &str| Who {
        account: Account {
            group: format!("/docker/{container}"),
            ..Account::of_user(1000)
        },
        ..who("modest", Class::Auto)
    };
    for container in ["a", "a", "a", "b"] {
        host.start(other(container));
    }
    let error = host
        .governor
        .arrive(host.now_ns, other("c"))
        .expect_err("eight are there");
    assert!(error.to_string().contains("8 of 8 places"), "{error}");
    host.stop(0);
    host.start(other("c"));
    assert_eq!(host.governor.figures().refused_total, 2);
}

/// A queue pair that posts messages of `bytes`, `depth` at a time, and counts them in its slot.
fn post(process: &Process, slot: usize, messages: u64, bytes: u64, depth: u64) {
    let slot = &process.region.slots[slot];
    slot.posted_messages.fetch_add(messages, Ordering::Relaxed);
    slot.posted_bytes
        .fetch_add(messages * bytes, Ordering::Relaxed);
    let posted = slot.posted_messages.load(Ordering::Relaxed);
    slot.completed_messages
        .store(posted - depth, Ordering::Relaxed);
}

fn make_queue_pair(process: &Process, slot: usize, number: u32) {
    let header = &process.region.header;
    process.region.slots[slot]
        .queue_pair
        .store(number, Ordering::Relaxed);
    process.region.slots[slot]
        .state
        .store(SLOT_USED, Ordering::Release);
    header
        .slots_high
        .fetch_max(slot as u32 + 1, Ordering::Relaxed);
}

#[test]
fn a_queue_pair_that_says_nothing_is_found_out_and_found_out_again() {
    let mut host = Host::new(config());
    let at = host.start(who("quiet", Class::Auto));
    make_queue_pair(&host.processes[at], 0, 17);
    let key = host.processes[at].key;
    let class = |host: &Host| {
        host.processes[at].region.slots[0]
            .class
            .load(Ordering::Relaxed)
    };
    host.governor.signalled(host.now_ns, key);
    for _ in 0..200 {
        host.run(1);
        post(&host.processes[at], 0, 10, 64, 1);
    }
    assert_eq!(class(&host), Class::Latency as u32);
    assert_eq!(host.device().latency_weight, 1);
    for _ in 0..200 {
        host.run(1);
        post(&host.processes[at], 0, 10, 1 << 20, 8);
    }
    assert_eq!(class(&host), Class::Bandwidth as u32);
    assert_eq!(host.device().latency_weight, 0);
    // Another queue pair in the slot starts without history.
    make_queue_pair(&host.processes[at], 0, 18);
    host.run(200);
    assert_eq!(class(&host), Class::Auto as u32);
}

#[test]
fn a_session_that_leaves_takes_its_latency_flow_along() {
    let mut host = Host::new(config());
    let at = host.start(who("quiet", Class::Auto));
    make_queue_pair(&host.processes[at], 3, 17);
    host.governor.signalled(host.now_ns, host.processes[at].key);
    for _ in 0..300 {
        host.run(1);
        post(&host.processes[at], 3, 10, 64, 1);
    }
    assert_eq!(host.device().latency_weight, 1);
    host.stop(at);
    assert_eq!(host.device().latency_weight, 0);
    host.run(200);
    assert_eq!(host.governor.next_deadline_ns(), None);
}

#[test]
fn another_configuration_holds_for_sessions_that_are_there() {
    let mut host = Host::new(config());
    for name in ["a", "b"] {
        host.start_bulk(who(name, Class::Bandwidth));
    }
    host.run(50);
    let mut next = config();
    next.tenants.push(TenantConfig {
        name: "b".to_owned(),
        weight: 4,
    });
    host.governor
        .reconfigure(host.now_ns, next, vec![BitRate::from_gbps(1)])
        .expect("sensible");
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 1_000_000);
    near(sent[1], 4_000_000);
    let mut none = config();
    none.devices[0].policy = PolicyName::None;
    host.governor
        .reconfigure(host.now_ns, none, vec![BitRate::from_gbps(1)])
        .expect("sensible");
    host.step();
    assert_eq!(
        host.processes[0].lease().flags,
        METER_ACTIVE | METER_RELEASED
    );
    let snapshot = host.governor.snapshot(host.now_ns);
    for (tenant, process) in snapshot.tenants.iter().zip(&host.processes) {
        assert_eq!(
            tenant.passed_bytes, process.sent,
            "counters outlive a change"
        );
    }
}

#[test]
fn a_daemon_that_runs_for_years_keeps_time() {
    let mut host = Host::new(config());
    for name in ["a", "b"] {
        host.start_bulk(who(name, Class::Bandwidth));
    }
    host.run(20);
    host.now_ns += 3 * 365 * 86_400 * 1_000 * MS;
    host.run(50);
    for sent in host.sent_in(500) {
        near(sent, 1_250_000);
    }
}

#[test]
fn at_the_end_everything_passes() {
    let mut host = Host::new(config());
    let at = host.start_bulk(who("a", Class::Bandwidth));
    host.run(10);
    host.governor.release_all();
    let region = &host.processes[at].region;
    assert_eq!(region.header.state.load(Ordering::Relaxed), STATE_RELEASED);
    assert_eq!(
        host.processes[at].lease().flags,
        METER_ACTIVE | METER_RELEASED
    );
}
