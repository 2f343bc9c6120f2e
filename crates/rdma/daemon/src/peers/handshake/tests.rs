//! What the handshake accepts and rejects.

use super::*;
use isolane_common_linux::key::KEY_MIN;
use proptest::prelude::*;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn key(byte: u8) -> Key {
    Key::new(vec![byte; KEY_MIN])
}

fn endpoint(device: &str) -> Endpoint {
    Endpoint {
        daemon: [7; 16],
        device: device.to_owned(),
        wanted: "other".to_owned(),
        gid: [9; 16],
        lid: 3,
        queue_pair: 17,
        packet_sequence: 0xff_ffff,
        mtu: 4_096,
        address: 0x7f00_0000_0000,
        remote_key: 5,
        addresses: vec![PortAddress([9; 16]), PortAddress::of_lid(3)],
    }
}

/// Two connected ends with short timeouts, so that a failed test ends.
fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    for stream in [&a, &b] {
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
    }
    (a, b)
}

type Met = (
    Result<Endpoint, HandshakeError>,
    Result<Endpoint, HandshakeError>,
);

fn meet(ours: &Key, theirs: Key, agrees: bool) -> Met {
    let (mut a, mut b) = pair();
    let other = std::thread::spawn(move || {
        let agree = |_: &Endpoint| match agrees {
            true => Ok((endpoint("theirs"), ())),
            false => Err("no such device".to_owned()),
        };
        answer(&mut b, &theirs, agree).map(|(peer, ())| peer)
    });
    let called = call(&mut a, ours, &endpoint("ours"));
    drop(a);
    (called, other.join().unwrap())
}

#[test]
fn with_one_key_both_learn_the_others_endpoint() {
    let (called, answered) = meet(&key(1), key(1), true);
    assert_eq!(called.unwrap(), endpoint("theirs"));
    assert_eq!(answered.unwrap(), endpoint("ours"));
}

#[test]
fn with_two_keys_no_end_learns_anything() {
    let (called, answered) = meet(&key(1), key(2), true);
    assert!(matches!(called, Err(HandshakeError::Proof)), "{called:?}");
    assert!(answered.is_err());
}

#[test]
fn a_refusal_comes_with_its_reason() {
    let (called, answered) = meet(&key(1), key(1), false);
    assert_eq!(
        called.unwrap_err().to_string(),
        "the peer rejected the connection: no such device"
    );
    assert!(answered.is_err());
}

/// Goal: a caller without the key cannot pass by replaying the callee's messages. Method: send the callee's proof back.
#[test]
fn the_answerers_proof_is_no_proof_of_the_caller() {
    let (mut a, mut b) = pair();
    let other = std::thread::spawn(move || {
        answer(&mut b, &key(1), |_| Ok((endpoint("x"), ()))).map(|_| ())
    });
    send(&mut a, &[&MAGIC, &VERSION.to_le_bytes(), &[5; NONCE]]).unwrap();
    let challenge = receive(&mut a).unwrap();
    let proof = &challenge[8 + NONCE..];
    send(&mut a, &[proof, &endpoint("evil").encode()]).unwrap();
    assert!(matches!(other.join().unwrap(), Err(HandshakeError::Proof)));
}

proptest! {
    #[test]
    fn an_endpoint_reads_back(numbers: (u16, u32, u32, u64), mtu in 8u32..13, device in "[a-z0-9_]{1,64}") {
        let sent = Endpoint {
            lid: numbers.0,
            queue_pair: numbers.1 & 0xff_ffff,
            remote_key: numbers.2,
            address: numbers.3,
            mtu: 1 << mtu,
            ..endpoint(&device)
        };
        prop_assert_eq!(Endpoint::decode(&sent.encode()).unwrap(), sent);
    }

    #[test]
    fn any_bytes_as_an_endpoint_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Endpoint::decode(&bytes);
    }

    #[test]
    fn any_bytes_from_a_caller_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let (mut a, mut b) = pair();
        a.write_all(&bytes).unwrap();
        a.shutdown(std::net::Shutdown::Write).unwrap();
        let answered = answer(&mut b, &key(1), |_| Ok((endpoint("x"), ())));
        prop_assert!(answered.is_err());
    }
}
