//! Tests of places and memory.

use super::*;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

struct Bench(Pool);

/// A connection and the peer's end of it.
struct Came(Entry, Stream);

impl Came {
    fn is_hung_up(&self) -> bool {
        match (&self.1).read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }
}

impl Bench {
    fn new(strangers: usize, sessions: usize) -> Self {
        Self(Pool::new(
            "pool-test",
            PoolLimits {
                strangers: PoolLimits::shared(strangers),
                grace: Duration::ZERO,
                sessions: PoolLimits::shared(sessions),
                memory_bytes: 100,
            },
        ))
    }

    /// A connection from the address 10.0.0.`peer`.
    fn enter(&self, peer: u8) -> Came {
        let (near, far) = UnixStream::pair().unwrap();
        let account = Account::of_address([10, 0, 0, peer].into());
        let entry = self.0.enter(account, Arc::new(Stream::new(near)));
        Came(entry, Stream::new(far))
    }
}

#[test]
fn silent_strangers_exclude_no_client() {
    let bench = Bench::new(4, 2);
    let silent: Vec<Came> = (0..100).map(|_| bench.enter(1)).collect();
    let mut honest = bench.enter(1);
    assert_eq!(honest.0.authenticated(), Ok(()));
    let shed: Vec<bool> = silent.iter().map(Came::is_hung_up).collect();
    assert!(shed[..97].iter().all(|shed| *shed) && !shed[97..].contains(&true));
    drop(silent);
    let figures = bench.0.tally().figures();
    assert_eq!((figures.entering, figures.open), (0, 1));
    assert_eq!((figures.accepted_total, figures.shed_total[0]), (101, 97));
}

#[test]
fn the_address_with_most_strangers_loses_one() {
    let bench = Bench::new(4, 2);
    let slow = bench.enter(1);
    let flood: Vec<Came> = (1..50).map(|_| bench.enter(2)).collect();
    assert!(!slow.is_hung_up());
    drop((slow, flood));
    assert_eq!(bench.0.tally().figures().entering, 0);
}

#[test]
fn a_stranger_that_was_served_outlives_silent_ones() {
    let bench = Bench::new(3, 1);
    let mut served = bench.enter(1);
    served.0.served();
    assert_eq!(bench.0.tally().figures().open, 1);
    let silent: Vec<Came> = (0..9).map(|_| bench.enter(1)).collect();
    assert!(!served.is_hung_up() && silent[0].is_hung_up());
    let more: Vec<Came> = (0..3)
        .map(|_| {
            let mut other = bench.enter(1);
            other.0.served();
            other
        })
        .collect();
    assert!(served.is_hung_up(), "its request is the oldest one");
    drop((silent, more));
}

#[test]
fn sessions_have_places_of_their_own_and_give_them_back() {
    let bench = Bench::new(2, 2);
    let mut sessions: Vec<Came> = (0..3).map(|_| bench.enter(1)).collect();
    assert!(sessions[0].is_hung_up(), "no client had authenticated");
    assert_eq!(sessions[1].0.authenticated(), Ok(()));
    assert_eq!(sessions[1].0.authenticated(), Ok(()));
    assert_eq!(sessions[2].0.authenticated(), Ok(()));
    let mut third = bench.enter(1);
    assert!(third.0.authenticated().is_err());
    sessions.remove(1);
    assert_eq!(third.0.authenticated(), Ok(()));
    assert_eq!(bench.0.tally().figures().refused_total[0], 1);
    assert!(!third.is_hung_up());
}

#[test]
fn one_account_leaves_sessions_to_others() {
    let bench = Pool::new(
        "pool-test",
        PoolLimits {
            sessions: PoolLimits::reserved(8),
            ..Bench::new(64, 1).0.0.limits
        },
    );
    let bench = Bench(bench);
    let mut greedy: Vec<Came> = (0..8).map(|_| bench.enter(1)).collect();
    let taken = |came: &mut Came| came.0.authenticated().is_ok();
    assert_eq!(
        greedy
            .iter_mut()
            .filter_map(|one| taken(one).then_some(()))
            .count(),
        6
    );
    let mut other = bench.enter(2);
    assert!(taken(&mut other));
}

#[test]
fn no_newcomer_is_taken_before_a_place_is_old_enough() {
    let grace = Duration::from_secs(3_600);
    let limits = PoolLimits {
        grace,
        ..Bench::new(2, 1).0.0.limits
    };
    let bench = Bench(Pool::new("pool-test", limits));
    let one = bench.enter(1);
    assert_eq!(bench.0.full_until(), None);
    let two = bench.enter(1);
    assert!(bench.0.full_until().is_some());
    drop(one);
    assert_eq!(bench.0.full_until(), None);
    assert!(!two.is_hung_up());
}

#[test]
fn connections_that_were_shed_and_do_not_end_are_bounded() {
    let bench = Bench::new(4, 2);
    let mut session = bench.enter(1);
    assert_eq!(session.0.authenticated(), Ok(()));
    let mut all: Vec<Came> = (0..8).map(|_| bench.enter(1)).collect();
    assert!(bench.0.full_until().is_some(), "four were shed");
    assert_eq!(all[0].0.authenticated(), Ok(()), "its proof was on its way");
    assert_eq!(bench.0.full_until(), None);
    all.push(bench.enter(1));
    assert!(bench.0.full_until().is_some());
    all.remove(1);
    assert_eq!(bench.0.full_until(), None);
}

#[test]
fn a_connection_that_was_shed_waits_for_no_memory() {
    let bench = Bench::new(2, 1);
    let hour = Instant::now() + Duration::from_secs(3_600);
    let (mut greedy, mut shed) = (bench.enter(1), bench.enter(2));
    assert_eq!(greedy.0.hold(90, hour), Ok(()));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| shed.0.hold(20, hour));
        let _newcomers = [bench.enter(2), bench.enter(2)];
        assert!(waits.join().unwrap().is_err());
    });
}

#[test]
fn the_connection_that_holds_most_gives_its_memory_to_another() {
    let bench = Bench::new(8, 1);
    let now = Instant::now();
    let (mut greedy, mut honest) = (bench.enter(1), bench.enter(1));
    assert_eq!(honest.0.hold(20, now), Ok(()));
    assert_eq!(greedy.0.hold(70, now), Ok(()));
    assert!(greedy.0.hold(40, now).is_err(), "it holds most itself");
    assert!(!greedy.is_hung_up() && !honest.is_hung_up());
    assert!(honest.0.hold(30, now).is_err(), "none is free yet");
    assert!(greedy.is_hung_up());
    let hour = now + Duration::from_secs(3_600);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| honest.0.hold(30, hour));
        drop(greedy);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    let figures = bench.0.tally().figures();
    assert_eq!((figures.body_bytes, figures.refused_total[1]), (50, 2));
    assert_eq!(figures.shed_total, [0, 1, 0]);
    honest.0.release(u64::MAX);
    assert_eq!(bench.0.tally().figures().body_bytes, 0);
}

#[test]
fn two_connections_that_need_each_others_memory_do_not_wait_for_each_other() {
    let bench = Bench::new(8, 1);
    let now = Instant::now();
    let hour = now + Duration::from_secs(3_600);
    let mut both = [bench.enter(1), bench.enter(1)];
    for one in &mut both {
        assert_eq!(one.0.hold(50, now), Ok(()));
    }
    // The thread of a connection ends, and so does the connection, when it gets no memory.
    let threads = both.map(|mut one| std::thread::spawn(move || one.0.hold(10, hour).is_ok()));
    let got = threads.map(|one| one.join().unwrap());
    assert!(got[0] != got[1], "one of the two is shed: {got:?}");
}

#[test]
fn memory_is_summed_over_the_user_namespaces_of_a_user() {
    let bench = Bench::new(16, 1);
    let now = Instant::now();
    let enter = |user, user_namespace| {
        let account = Account {
            user_namespace,
            ..Account::of_user(user)
        };
        let (near, far) = UnixStream::pair().unwrap();
        let entry = bench.0.enter(account, Arc::new(Stream::new(near)));
        Came(entry, Stream::new(far))
    };
    let mut many: Vec<Came> = (0..8).map(|number| enter(1_000, number)).collect();
    for one in &mut many {
        assert_eq!(one.0.hold(10, now), Ok(()));
    }
    let mut honest = enter(2_000, 0);
    assert_eq!(honest.0.hold(20, now), Ok(()));
    let mut newcomer = enter(3_000, 0);
    assert!(newcomer.0.hold(5, now).is_err(), "none is free yet");
    let shed = many.iter().filter(|one| one.is_hung_up()).count();
    assert_eq!((shed, honest.is_hung_up()), (1, false));
}

#[test]
fn the_sizes_of_a_process_are_in_bytes() {
    let status = b"Name:\tisolaned\nVmPeak:\t    9 kB\nVmSize:\t    8 kB\nVmData:\t    3 kB\n";
    assert_eq!(sizes(status), Some([8_192, 3_072]));
    assert_eq!(sizes(b"VmSize:\t    8 kB\n"), None);
    let own = std::fs::read("/proc/self/status").unwrap();
    assert!(sizes(&own).unwrap()[1] > 0);
}

/// Sessions that fill the process's descriptors are of one account: a newcomer is not shed in their place.
#[test]
fn a_descriptor_is_taken_from_an_account_with_very_many_sessions() {
    let bench = Bench::new(2, 20);
    let session = |peer| {
        let mut came = bench.enter(peer);
        came.0.authenticated().unwrap();
        came
    };
    let greedy: Vec<Came> = (0..4).map(|_| session(1)).collect();
    let (modest, newcomer) = (session(2), bench.enter(3));
    for _ in 0..2 {
        bench.0.shed_for(Shed::Descriptor);
    }
    let shed: Vec<bool> = greedy.iter().map(Came::is_hung_up).collect();
    assert_eq!(shed, [true, true, false, false]);
    assert!(!modest.is_hung_up() && !newcomer.is_hung_up());
    // An account with two sessions has no more than a service has strangers.
    bench.0.shed_for(Shed::Descriptor);
    assert!(newcomer.is_hung_up() && !modest.is_hung_up());
    assert!(!greedy[2].is_hung_up() && !greedy[3].is_hung_up());
}

#[test]
fn places_are_scaled_in_their_shares() {
    let scaled = PoolLimits::reserved(2_048).scaled_to(768);
    assert_eq!((scaled.total, scaled.per_account), (768, 576));
    assert_eq!(scaled.reserve, 192);
}
