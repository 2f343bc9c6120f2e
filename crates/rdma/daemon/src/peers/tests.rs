//! Tests on real devices: `ISOLANE_TEST_DEVICES=r0,r1` names two devices that reach each other. Without it these tests
//! skip.

use super::*;
use crate::settings::{Peer, Peering};
use isolane_rdma_policy::RemoteState;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// Longer than any wait on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn devices() -> Option<Vec<String>> {
    let Ok(names) = std::env::var("ISOLANE_TEST_DEVICES") else {
        eprintln!("skipped: set ISOLANE_TEST_DEVICES=r0,r1 on a machine with two RDMA devices");
        return None;
    };
    Some(names.split(',').map(str::to_owned).collect())
}

fn start(settings: &Settings) -> Peers {
    Peers::start(settings, Targets::default(), |line| eprintln!("{line}")).unwrap()
}

/// Waits for the first event of `device` that `wanted` accepts.
fn wait<T>(peers: &Peers, device: usize, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (from, event) = peers
            .events
            .recv_timeout(left)
            .expect("the event comes in time");
        if let Event::Note(text) = &event {
            eprintln!("{from}: {text}");
        }
        if from == device
            && let Some(found) = wanted(&event)
        {
            return found;
        }
    }
}

/// Waits until `device` hears this state. A link's first report has what its daemon knows at that moment.
fn hears(peers: &Peers, device: usize, wanted: RemoteState) {
    wait(peers, device, |event| match event {
        Event::Heard(state, _) => (*state == wanted).then_some(()),
        _ => None,
    });
}

fn state(weight: u64) -> RemoteState {
    RemoteState {
        sending_hungry_weight: weight,
        ..RemoteState::default()
    }
}

#[test]
fn two_devices_of_one_daemon_measure_and_report_to_each_other() {
    let Some(names) = devices() else { return };
    let mut peers = start(&Settings::for_devices(&names));
    let idle = wait(&peers, 0, |event| match event {
        Event::Idle(tail) => Some(*tail),
        _ => None,
    });
    eprintln!("idle 99th percentile {idle:?}");
    assert!(idle > Duration::ZERO);
    peers.order(0, 0, &Order::Tell(state(7)));
    hears(&peers, 1, state(7));
    peers.order(0, 0, &Order::Tell(state(3)));
    hears(&peers, 1, state(3));
    peers.order(0, 1, &Order::SendReference);
    wait(&peers, 1, |event| match event {
        Event::Latency(took) => Some(*took),
        _ => None,
    });
}

/// Goal: two daemons connect over TCP, each counts the other once although both call, and the state of a daemon that
/// ends is removed. Method: both run in this process; the second drops its links.
#[test]
fn two_daemons_find_each_other_and_forget_an_ended_one() {
    let Some(names) = devices() else { return };
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    let mut file = std::fs::File::create(&key_file).unwrap();
    file.write_all(&[b'k'; 40]).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .unwrap();
    let settings = |own: usize, port: u16, other_port: u16| {
        let mut settings = Settings::for_devices(&names[own..=own]);
        settings.peers = vec![Peer {
            device: 0,
            place: Place::There {
                address: format!("127.0.0.1:{other_port}").parse().unwrap(),
                device: names[1 - own].clone(),
            },
        }];
        settings.peering = Some(Peering {
            listen: Some(format!("127.0.0.1:{port}").parse().unwrap()),
            key_file: key_file.clone(),
        });
        settings
    };
    let mut first = start(&settings(0, 17_471, 17_472));
    let mut second = start(&settings(1, 17_472, 17_471));
    second.order(0, 0, &Order::Tell(state(5)));
    hears(&first, 0, state(5));
    first.order(0, 0, &Order::Tell(state(2)));
    hears(&second, 0, state(2));
    // Same effect as the death of the second daemon: its links end, and the keepers see closed connections.
    let ends = Instant::now();
    let flow = second.flows[0].as_ref().unwrap();
    (1..=8).for_each(|number| flow.tell(Command::Remove(number)));
    hears(&first, 0, RemoteState::default());
    eprintln!("forgotten after {:?}", ends.elapsed());
    // They find each other again.
    hears(&first, 0, state(5));
}
