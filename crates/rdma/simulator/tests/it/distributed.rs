//! Distributed applications: what they must do with any parameters.
use crate::common::{counter, goodput, of, run};
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::RunResult;

fn allreduce(algorithm: &str, hosts: &str, workers: u32, more: &str) -> RunResult {
    run(&format!(
        "topology = \"switch\"\nwarmup = \"0us\"\nduration = \"20ms\"\n{more}\n[[tenant]]\nname = \"t\"\n\
         [[tenant.application]]\nkind = \"allreduce\"\nhosts = \"{hosts}\"\nworkers = {workers}\n\
         algorithm = \"{algorithm}\"\nbuffer = \"64KiB\"\n"
    ))
}

fn operations(result: &RunResult) -> f64 {
    let application = of(result, "t").application.as_ref();
    application.expect("it runs one").operations_per_s
}

#[test]
fn an_allreduce_goes_on_with_any_number_of_hosts_and_workers() {
    for algorithm in ["ring", "tree"] {
        for hosts in ["ab", "bca", "abcde", "abcdefgh"] {
            for workers in [1, 2, 3] {
                let result = allreduce(algorithm, hosts, workers, "");
                let name = format!("{algorithm} {hosts} {workers}");
                assert!(
                    operations(&result) > 1000.0,
                    "{name}: {}",
                    operations(&result)
                );
                assert_eq!(of(&result, "t").errors, 0, "{name}");
            }
        }
    }
}

/// A ring moves 2(n - 1)/n of the vector per worker and operation. With one worker per host all of it is on the wire;
/// the last operation is under way when the run ends.
#[test]
fn a_ring_moves_what_the_algorithm_says() {
    let result = allreduce("ring", "abcd", 1, "");
    let per_operation = 4.0 * 2.0 * 3.0 / 4.0 * 65536.0;
    let moved = goodput(&result, "t") * 1e9 / 8.0 / operations(&result);
    assert!(
        (moved / per_operation - 1.0).abs() < 0.01,
        "{moved} {per_operation}"
    );
}

/// A binomial tree of n workers sends n - 1 vectors up and n - 1 down.
#[test]
fn a_tree_moves_what_the_algorithm_says() {
    let result = allreduce("tree", "abcde", 1, "");
    let per_operation = 8.0 * 65536.0;
    let moved = goodput(&result, "t") * 1e9 / 8.0 / operations(&result);
    assert!(
        (moved / per_operation - 1.0).abs() < 0.01,
        "{moved} {per_operation}"
    );
}

#[test]
fn an_allreduce_goes_on_under_a_pacing_policy() {
    for policy in ["justitia", "lite", "hw-priority"] {
        let result = allreduce("ring", "abcd", 2, &format!("[policy]\nname = \"{policy}\""));
        assert!(
            operations(&result) > 100.0,
            "{policy}: {}",
            operations(&result)
        );
    }
}

fn store(transport: &str, threads: u32, window: u32) -> RunResult {
    run(&format!(
        "topology = \"switch\"\nwarmup = \"100us\"\nduration = \"2ms\"\n[[tenant]]\nname = \"t\"\n\
         [[tenant.application]]\nkind = \"key-value\"\nhosts = \"abcd\"\ntransport = \"{transport}\"\n\
         threads = {threads}\nserver_threads = 2\nwindow = {window}\nrequest = [64]\nresponse = [512]\n\
         service = \"1us\"\n"
    ))
}

#[test]
fn a_store_answers_every_request_once_and_no_faster_than_its_server_can() {
    for transport in ["rc", "ud"] {
        let result = store(transport, 8, 16);
        let rate = operations(&result);
        assert!(rate < 2e6 && rate > 1e6, "{transport}: {rate}");
        // Two messages per operation, but for those under way at either end.
        let messages = of(&result, "t").message_rate_per_s;
        assert!(
            (messages / rate - 2.0).abs() < 0.4,
            "{transport}: {messages} {rate}"
        );
        assert_eq!(of(&result, "t").errors, 0);
    }
}

/// Two hosts that both serve: half of all requests and responses stay in their host, and pass its RNIC.
#[test]
fn a_client_asks_all_servers_in_turn_and_its_own_host_through_the_rnic() {
    let result = run(
        "topology = \"switch\"\nwarmup = \"100us\"\nduration = \"2ms\"\n[[tenant]]\nname = \"t\"\n\
         [[tenant.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\nservers = \"all\"\n\
         transport = \"ud\"\nwindow = 4\nrequest = [64]\nresponse = [64]\nservice = \"1us\"\n",
    );
    assert!((1.5e6..2e6).contains(&operations(&result)));
    for host in [Host::A, Host::B] {
        let looped = counter(&result, host, "loopback_bytes") as f64;
        let sent = counter(&result, host, "tx_vport_rdma_unicast_bytes") as f64;
        assert!((looped / sent - 1.0).abs() < 0.05, "{looped} {sent}");
    }
}

/// Threads of two hosts that call each other, beside `tenants`.
fn threads(servers: &str, more: &str, tenants: &str) -> RunResult {
    run(&format!(
        "topology = \"switch\"\nwarmup = \"1ms\"\nduration = \"4ms\"\n[[tenant]]\nname = \"t\"\n\
         [[tenant.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\nservers = \"{servers}\"\n{more}\n\
         transport = \"ud\"\nrequest = [64]\nresponse = [64]\nservice = \"200ns\"\n{tenants}"
    ))
}

/// Bulk data from host `a`, so that an answer from there comes late.
const BULK: &str = "[[tenant]]\nname = \"bulk\"\n[[tenant.traffic]]\nverb = \"write\"\n\
                    size = \"1MB\"\nqueue_pairs = 16\n";

/// A client that sends eight requests together waits for the slowest answer of the eight; one that sends each request on
/// its own goes on with the others meanwhile.
#[test]
fn a_batch_waits_for_its_slowest_answer() {
    let rate = |batch: u32| {
        let more = format!("threads = 2\nserver_threads = 2\nwindow = 32\nbatch = {batch}");
        operations(&threads("all", &more, BULK))
    };
    let (single, eight) = (rate(1), rate(8));
    assert!(eight < 0.9 * single, "{eight} {single}");
    assert!(eight > 0.2 * single, "{eight} {single}");
}

/// With `others` and two threads on each of two hosts, each thread calls three: one of its own host, two of the other one.
#[test]
fn each_thread_calls_all_others_and_never_itself() {
    let result = run(
        "topology = \"switch\"\nwarmup = \"100us\"\nduration = \"2ms\"\n[[tenant]]\nname = \"t\"\n\
         [[tenant.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\nservers = \"others\"\nthreads = 2\n\
         transport = \"ud\"\nwindow = 12\nbatch = 3\nrequest = [64]\nresponse = [64]\nservice = \"1us\"\n",
    );
    assert!(operations(&result) > 1e6, "{}", operations(&result));
    for host in [Host::A, Host::B] {
        let looped = counter(&result, host, "loopback_bytes") as f64;
        let sent = counter(&result, host, "tx_vport_rdma_unicast_bytes") as f64;
        assert!((looped / sent - 0.5).abs() < 0.05, "{looped} {sent}");
    }
}

/// With one credit, the rate is that of one request in a round trip of some microseconds to each of three servers, each of
/// which could serve one in 300 ns. What waits for a credit adds to an operation's time, not to the rate.
#[test]
fn credits_bound_what_is_on_its_way_to_a_server() {
    let with = |more: &str| {
        let more = format!("threads = 2\nwindow = 48\nbatch = 8\n{more}");
        threads("others", &more, "")
    };
    let (bound, free) = (with("credits = 1"), with(""));
    let (slow, fast) = (operations(&bound), operations(&free));
    assert!(slow < 0.6 * fast, "{slow} {fast}");
    assert_eq!(operations(&with("credits = 48")), operations(&free));
    let time = |result: &RunResult| {
        let application = of(result, "t").application.as_ref().expect("it runs one");
        application
            .operation_us
            .as_ref()
            .expect("it ended some")
            .p50
    };
    // Little's law: the same requests are under way in both.
    assert!(
        time(&bound) > 1.5 * time(&free),
        "{} {}",
        time(&bound),
        time(&free)
    );
}

#[test]
fn more_on_its_way_makes_a_saturated_store_slower_to_answer_not_faster() {
    let (few, many) = (store("rc", 8, 4), store("rc", 8, 16));
    let p50 = |result: &RunResult| of(result, "t").latency_us.as_ref().expect("answers").p50;
    assert!(p50(&many) > 2.0 * p50(&few), "{} {}", p50(&few), p50(&many));
    assert!(operations(&many) < 1.2 * operations(&few));
}

#[test]
fn equal_runs_are_equal() {
    assert_eq!(
        allreduce("tree", "abc", 2, ""),
        allreduce("tree", "abc", 2, "")
    );
    assert_eq!(store("ud", 4, 4), store("ud", 4, 4));
}
