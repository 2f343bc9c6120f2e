//! Tests the supervisor with real callers: child processes call the verbs ioctl on `/dev/null`.
//!
//! The kernel traps a call before it checks the descriptor, so no RDMA is needed: a resumed call fails with ENOTTY, and
//! any other result is an error. Where a sandbox refuses seccomp, the tests report a skip and pass.

use super::pace::Limits;
use super::supervisor::{Calls, Mode, Supervisor, Tenant};
use crate::guardian::table::Table;
use crate::seccomp::call::Verb;
use crate::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use crate::seccomp::notify::{Listener, Received, install};
use crate::testing::{Caller, Ending, receive, wait_until};
use std::time::{Duration, Instant};

fn tenant(name: &str, rate: Option<u64>) -> Tenant {
    Tenant {
        name: name.to_owned(),
        limits: Limits {
            all: rate,
            ..Limits::default()
        },
    }
}

fn supervisor(tenants: &[(&str, Option<u64>)], mode: Mode) -> Supervisor {
    let tenants = tenants
        .iter()
        .map(|(name, rate)| tenant(name, *rate))
        .collect();
    Supervisor::start(tenants, mode, None).unwrap()
}

/// Reads the counters after all activity has ended.
fn settled(supervisor: &Supervisor, place: usize) -> Calls {
    wait_until("the listener is forgotten", || {
        supervisor.calls()[place].listeners == 0
    });
    supervisor.calls().swap_remove(place)
}

#[test]
fn every_call_goes_on_and_is_counted_by_verb() {
    let Some((caller, listener)) =
        Caller::start(&[Verb::RegisterMemory, Verb::DeregisterMemory], 20)
    else {
        return;
    };
    let supervisor = supervisor(&[("a", None)], Mode::Enforce);
    supervisor.watch(listener, 0, None);
    assert_eq!(caller.join(), Ending::Calls(20));
    let calls = settled(&supervisor, 0);
    assert_eq!(
        (calls.trapped, calls.resumed, calls.delayed, calls.gone),
        (20, 20, 0, 0)
    );
    assert_eq!(calls.verbs[&Verb::RegisterMemory], 10);
    assert_eq!(calls.verbs[&Verb::DeregisterMemory], 10);
}

/// 40 calls at 200 per second with a burst of one: the last call goes on after 195 ms or later.
#[test]
fn calls_above_the_rate_wait_and_never_fail() {
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 40) else {
        return;
    };
    let supervisor = supervisor(&[("a", Some(200))], Mode::Enforce);
    let begun = Instant::now();
    supervisor.watch(listener, 0, None);
    assert_eq!(caller.join(), Ending::Calls(40));
    assert!(begun.elapsed() >= Duration::from_millis(195));
    let calls = settled(&supervisor, 0);
    assert_eq!((calls.trapped, calls.resumed), (40, 40));
    // On a busy machine a call can arrive after its turn.
    assert!((1..=39).contains(&calls.delayed), "{calls:?}");
}

/// The slow tenant would need 1,000 seconds.
#[test]
fn a_delayed_tenant_delays_no_other() {
    let (Some((slow, first)), Some((fast, second))) = (
        Caller::start(&[Verb::RegisterMemory], 1_000),
        Caller::start(&[Verb::RegisterMemory], 1_000),
    ) else {
        return;
    };
    let supervisor = supervisor(&[("slow", Some(1)), ("fast", None)], Mode::Enforce);
    supervisor.watch(first, 0, None);
    supervisor.watch(second, 1, None);
    assert_eq!(fast.join(), Ending::Calls(1_000));
    assert!(supervisor.calls()[0].resumed < 1_000);
    // A killed attacker leaves no state.
    assert_eq!(slow.kill(), Ending::Killed);
    let calls = settled(&supervisor, 0);
    assert_eq!(calls.waiting, 0);
    assert_eq!(calls.trapped, calls.resumed + calls.gone);
}

#[test]
fn a_shadow_counts_and_holds_nothing() {
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 500) else {
        return;
    };
    let supervisor = supervisor(&[("a", Some(1))], Mode::Shadow);
    supervisor.watch(listener, 0, None);
    assert_eq!(caller.join(), Ending::Calls(500));
    let calls = settled(&supervisor, 0);
    assert_eq!((calls.trapped, calls.resumed), (500, 500));
    assert!(calls.delayed > 400, "{calls:?}");
}

#[test]
fn processes_of_a_tenant_share_its_rate() {
    let (Some((one, first)), Some((other, second))) = (
        Caller::start(&[Verb::RegisterMemory], 20),
        Caller::start(&[Verb::RegisterMemory], 20),
    ) else {
        return;
    };
    let supervisor = supervisor(&[("a", Some(200))], Mode::Enforce);
    let begun = Instant::now();
    supervisor.watch(first, 0, None);
    supervisor.watch(second, 0, None);
    assert_eq!(
        (one.join(), other.join()),
        (Ending::Calls(20), Ending::Calls(20))
    );
    assert!(begun.elapsed() >= Duration::from_millis(195));
}

#[test]
fn calls_that_a_dead_supervisor_had_taken_go_on() {
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 3) else {
        return;
    };
    let table = Table::create().unwrap();
    // Received and recorded by hand, as by a supervisor that is killed afterwards.
    let taken = loop {
        if let Received::Call(notification) = receive(&listener) {
            break notification;
        }
    };
    table.set(4, Some(taken.id), Some(taken.id));
    let supervisor =
        Supervisor::start(vec![tenant("a", None)], Mode::Enforce, Some(table)).unwrap();
    supervisor.watch(listener, 0, Some(4));
    assert_eq!(caller.join(), Ending::Calls(3));
    assert_eq!(settled(&supervisor, 0).resumed, 3);
}

#[test]
fn waiting_calls_go_on_when_the_supervisor_stops() {
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 2) else {
        return;
    };
    let kept = listener.try_clone().unwrap();
    let supervisor = supervisor(&[("a", Some(1))], Mode::Enforce);
    supervisor.watch(listener, 0, None);
    wait_until("the second call waits", || {
        supervisor.calls()[0].waiting == 1
    });
    drop(supervisor);
    assert_eq!(caller.join(), Ending::Calls(2));
    drop(kept);
}

/// A sender that keeps a copy takes calls from it between the supervisor's wake-up and its receive, which then blocks.
#[test]
fn a_listener_whose_calls_another_process_takes_is_dropped_and_stops_no_other() {
    let (Some((thief, listener)), Some((honest, other))) = (
        Caller::start(&[Verb::RegisterMemory], usize::MAX),
        Caller::start(&[Verb::RegisterMemory], 1_000),
    ) else {
        return;
    };
    let copy = listener.try_clone().unwrap();
    let supervisor = supervisor(&[("thief", None), ("honest", None)], Mode::Enforce);
    supervisor.watch(listener, 0, Some(7));
    supervisor.watch(other, 1, None);
    wait_until("the listener is dropped", || {
        if let Received::Call(call) = receive(&copy) {
            // The supervisor's answer shows that it is done with what it saw of this call.
            let _ = supervisor.calls();
            copy.resume(call.id).unwrap();
        }
        supervisor.calls()[0].shed == 1
    });
    assert_eq!(supervisor.take_shed(), [7]);
    assert_eq!(supervisor.calls()[0].listeners, 0);
    assert_eq!(honest.join(), Ending::Calls(1_000));
    assert_eq!(settled(&supervisor, 1).resumed, 1_000);
    assert_eq!(thief.kill(), Ending::Killed);
}

#[test]
fn only_listeners_count_as_listeners() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Listener::adopt(file.into()).is_err());
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 1) else {
        return;
    };
    let listener = Listener::adopt(listener.into()).unwrap();
    let supervisor = supervisor(&[("a", None)], Mode::Enforce);
    supervisor.watch(listener, 0, None);
    assert_eq!(caller.join(), Ending::Calls(1));
}

#[test]
fn a_second_listener_above_a_process_is_refused_as_busy() {
    let Some(conventions) = conventions() else {
        return;
    };
    let program = program(conventions, RDMA_VERBS_IOCTL);
    // Runs in a thread that ends with its filter, because a filter cannot be removed.
    let outcome = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        let first = install(&program).ok()?;
        let second = install(&program).map(drop);
        drop(first);
        Some(second.map_err(|error| error.raw_os_error()))
    });
    if let Some(outcome) = outcome.join().unwrap() {
        assert_eq!(outcome, Err(Some(libc::EBUSY)));
    }
}
