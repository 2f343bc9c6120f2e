//! Clients that send messages which the library never sends: their connection ends, and no other client is affected.

use crate::client::{ACCESS, Client, End, Place, Refused, connected, element, open};
use isolane_rdma_emulated_verbs::attributes::SendRequest;
use isolane_rdma_emulated_verbs::wire::{self, MESSAGE_MAX, VERSION, Writer, op, pack};
use isolane_rdma_emulator::faults::Chances;
use isolane_rdma_emulator::server::CLIENTS_MAX;
use isolane_rdma_verbs_sys::*;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const ENOMEM: Refused = Refused::Errno(libc::ENOMEM as u64);
const EINVAL: Refused = Refused::Errno(libc::EINVAL as u64);

#[test]
fn only_the_user_itself_may_connect() {
    let place = Place::new();
    let mode = std::fs::metadata(place.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    let left = std::fs::read_dir(place.directory.path()).unwrap();
    assert_eq!(left.count(), 2, "the socket and the devices' files");
}

#[test]
fn a_malformed_message_ends_its_connection_and_no_other() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let mut long_list = vec![op::POST_RECV, u64::from(left.pair), u64::from(u32::MAX)];
    long_list.extend([0; 64]);
    let foreign = u64::from(left.pair);
    let messages: [&[u64]; 13] = [
        &[],
        &[op::OPEN],
        &open(0),
        &[9999],
        &[u64::MAX],
        &[op::REG_MR],
        &[op::LIST, VERSION],
        &[op::CREATE_QP, 1, 2],
        &[op::MODIFY_QP, pack(left.pair, u32::MAX)],
        &long_list,
        &[op::POST_SEND, foreign, 1],
        &[op::POST_RECV, foreign, 1, 0, 0],
        &[op::POST_SEND, u64::MAX, u64::MAX],
    ];
    for words in messages {
        let client = place.open(0);
        // A message without a byte is the end of the connection on such a socket.
        let mut message = Writer::of(words);
        if words.is_empty() {
            message.raw(&[1]);
        }
        client.send(&message);
        assert_eq!(client.answer().unwrap_err(), Refused::Closed, "{words:?}");
    }
    let unopened = place.connect();
    assert_eq!(unopened.call(&[op::ALLOC_PD]).unwrap_err(), Refused::Closed);
    let long = place.open(0);
    let mut message = Writer::default();
    message.raw(&vec![0; MESSAGE_MAX + 8]);
    assert_eq!(long.call_with(&message).unwrap_err(), Refused::Closed);
    assert!(left.client.is_served() && right.client.is_served());
    assert_eq!(place.stop().rejected, 15);
}

#[test]
fn another_version_and_another_memory_are_refused() {
    let place = Place::new();
    let refused = |words: &[u64]| place.connect().call(words).unwrap_err();
    let [operation, _, host, probe] = open(0);
    let eproto = Refused::Errno(libc::EPROTO as u64);
    assert_eq!(refused(&[operation, VERSION + 1, host, probe]), eproto);
    let eperm = Refused::Errno(libc::EPERM as u64);
    assert_eq!(refused(&[operation, VERSION, host, 8]), eperm);
    assert_eq!(refused(&open(2)), Refused::Errno(libc::ENODEV as u64));
}

#[test]
fn objects_of_another_client_cannot_be_named() {
    let place = Place::new();
    let owner = End::new(&place, 0, IBV_QPT_RC);
    let memory = vec![0; 8];
    let key = owner.register(&memory, ACCESS);
    let thief = place.open(0);
    let attempts: [&[u64]; 7] = [
        &[op::RESIZE_CQ, pack(owner.queue, 32)],
        &[op::DEALLOC_PD, u64::from(owner.domain)],
        &[op::DEREG_MR, u64::from(key)],
        &[op::DESTROY_QP, u64::from(owner.pair)],
        &[op::QUERY_QP, u64::from(owner.pair)],
        &[op::ALLOC_MW, pack(owner.domain, IBV_MW_TYPE_1)],
        &[op::CREATE_SRQ, pack(owner.domain, 4)],
    ];
    for words in attempts {
        assert_eq!(thief.call(words).unwrap_err(), EINVAL, "{words:?}");
    }
    assert!(owner.client.is_served());
}

/// How many times a request succeeds before it fails with `ENOMEM`.
fn allowed(client: &Client, words: &[u64]) -> usize {
    let mut count = 0;
    loop {
        match client.call(words) {
            Ok(_) => count += 1,
            Err(refused) => {
                assert_eq!(refused, ENOMEM);
                return count;
            }
        }
    }
}

#[test]
fn a_client_has_so_many_descriptors_and_so_much_memory_of_the_broker() {
    let place = Place::new();
    let client = place.open(0);
    assert_eq!(allowed(&client, &[op::CREATE_CHANNEL]), 32);
    assert_eq!(
        allowed(&client, &[op::CREATE_CQ, pack(1 << 20, u32::MAX)]),
        4
    );
    let domain = client.call(&[op::ALLOC_PD]).unwrap()[0] as u32;
    assert_eq!(
        allowed(&client, &[op::CREATE_SRQ, pack(domain, 1 << 15)]),
        16
    );
    let other = place.open(0);
    assert!(other.call(&[op::CREATE_CHANNEL]).is_ok());
}

#[test]
fn a_connection_beyond_the_limit_is_served_when_another_ends() {
    let place = Place::new();
    let mut clients: Vec<Client> = (0..CLIENTS_MAX).map(|_| place.open(0)).collect();
    let late = place.connect();
    late.send(&Writer::of(&open(0)));
    assert!(clients.iter().all(Client::is_served));
    clients.pop();
    assert!(late.answer().is_ok() && late.is_served());
}

#[test]
fn a_connection_that_opens_no_device_in_time_ends() {
    let place = Place::with(Duration::ZERO, Chances::default());
    let idle = place.connect();
    assert_eq!(idle.answer().unwrap_err(), Refused::Closed);
    assert_eq!(place.stop().rejected, 1);
}

/// A child inherits the socket of a process that ends, whose number may then mean another process.
#[test]
fn a_client_whose_process_has_ended_is_gone_though_its_socket_is_open() {
    let place = Place::new();
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
    let address = SocketAddrUnix::new(place.socket()).unwrap();
    let message = Writer::of(&open(0));
    let mut buffer = vec![0; MESSAGE_MAX];
    // SAFETY: the child makes system calls with what is allocated already, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let opened = connect(&socket, &address).is_ok()
            && wire::send(&socket, message.bytes(), None, true).is_ok()
            && wire::receive(&socket, &mut buffer, true).is_ok();
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(i32::from(!opened)) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable, and the child is ours.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    let client = Client { socket };
    assert_eq!(client.answer().unwrap_err(), Refused::Closed);
}

#[test]
fn a_client_that_reads_no_answers_ends() {
    let place = Place::new();
    let client = place.open(0);
    let message = Writer::of(&[op::QUERY_SRQ, 1]);
    // The socket holds fewer answers than this.
    for _ in 0..100_000 {
        if rustix::net::send(
            &client.socket,
            message.bytes(),
            rustix::net::SendFlags::NOSIGNAL,
        )
        .is_err()
        {
            break;
        }
    }
    assert!(place.open(0).is_served());
    assert_eq!(place.stop().rejected, 1);
}

/// Requests that are well formed and contradict the rules that the library keeps.
#[test]
fn work_that_the_library_never_posts_ends_the_connection() {
    let memory = vec![0; 8];
    let wrongs: [fn(&mut SendRequest); 4] = [
        |request| request.opcode = 77,
        |request| request.elements = vec![request.elements[0]; 30],
        |request| request.inline = Some(vec![0; 2000]),
        |request| request.elements = vec![request.elements[0]; 31],
    ];
    for (index, wrong) in wrongs.into_iter().enumerate() {
        let place = Place::new();
        let (left, right) = connected(&place, 0);
        let mut request = SendRequest {
            opcode: IBV_WR_SEND,
            elements: vec![element(&memory, 0)],
            ..SendRequest::default()
        };
        request.elements[0].length = u32::MAX;
        wrong(&mut request);
        left.post(&request);
        assert!(!left.client.is_served(), "wrong {index}");
        assert!(right.client.is_served(), "wrong {index}");
    }
}

/// A random number and the next state (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Random messages of small numbers, which often name objects that exist. After all of them the broker still serves.
#[test]
fn random_messages_harm_no_client() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let mut state = 28;
    let mut client = place.open(0);
    for _ in 0..20_000 {
        let operation = 3 + random(&mut state) % 31;
        let mut message = Writer::of(&[operation]);
        for _ in 0..random(&mut state) % 24 {
            let word = random(&mut state);
            let small = |part: u64| (part % 8) as u32;
            let word = match word % 7 {
                0 => pack(small(word >> 8), small(word >> 16)),
                1 => pack(0x100 + small(word >> 8), (word >> 32) as u32),
                2 => pack(small(word >> 8), u32::MAX),
                3 => word >> 40,
                4 => word,
                _ => u64::from(small(word >> 8)),
            };
            message.word(word);
        }
        client.send(&message);
        if random(&mut state).is_multiple_of(64) {
            client = place.open(random(&mut state) % 2);
        }
    }
    let (source, target) = (vec![3; 100], vec![0; 100]);
    let key = right.register(&target, ACCESS);
    let lkey = left.register(&source, ACCESS);
    left.post(&SendRequest {
        opcode: IBV_WR_RDMA_WRITE,
        flags: IBV_SEND_SIGNALED,
        rkey: key,
        remote_addr: crate::client::address(&target),
        elements: vec![element(&source, lkey)],
        ..SendRequest::default()
    });
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert_eq!(std::hint::black_box(&target), &source);
    assert!(place.stop().rejected > 0);
}
