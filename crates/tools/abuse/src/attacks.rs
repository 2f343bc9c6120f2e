//! The attacks.
//!
//! An attack opens its connections, lets the honest client start, and then runs its rounds: at least `ROUNDS`,
//! and more until the honest client has finished. After `LONGEST` it ends in any case.

use crate::socket::{Connection, Place};
use crate::stopped;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Attackers that send on and on. Fewer than the places of each service: a client whose thread the machine stops between
/// its connect and its request keeps its place.
const SENDERS: usize = 32;
/// The fewest rounds of an attack.
const ROUNDS: usize = 50;
/// The most bytes of an endless message that are sent in one round; a full socket takes fewer.
const PIECE: usize = 256 << 10;
/// Connections opened and closed in one round.
const CHURN: usize = 20;
/// Descriptors in one message; the kernel takes at most 253.
const DESCRIPTORS: usize = 250;
/// Longest time of an attack: longer than an honest client waits.
const LONGEST: Duration = Duration::from_secs(20);
/// Pause of a sender between two bytes or rounds.
const PAUSE: Duration = Duration::from_millis(10);

/// The service that is attacked.
#[derive(Clone, Debug)]
pub struct Target {
    /// The socket on which the service listens.
    pub place: Place,
    /// A valid request, of which attackers send parts.
    pub request: Vec<u8>,
    /// Connections that attackers hold: more than the service has places for them.
    pub crowd: usize,
    /// The most by which all attacks together may increase the peak of its resident memory, bytes.
    pub memory_max: u64,
    /// The most open descriptors of its process while attackers hold connections.
    pub descriptors_max: usize,
}

/// What an attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Holds connections and sends nothing.
    Silent,
    /// Holds connections on which half a request was sent.
    HalfRequest,
    /// Sends a request byte by byte, and then again.
    Trickle,
    /// Sends a message that does not end.
    Endless,
    /// Makes requests and reads no answer.
    NeverReads,
    /// Sends half a request, closes its direction, and waits.
    HalfClosed,
    /// Opens connections and resets them amid a request.
    Churn,
    /// Sends random bytes, of which a quarter are those of the request at the same place.
    Noise,
    /// Sends many descriptors with each message.
    Descriptors,
    /// A process that stops amid its requests ([`crate::stopped`]).
    Stopped,
}

impl Attack {
    /// The attacks that this kind of socket permits.
    pub fn all_on(place: &Place) -> impl Iterator<Item = Self> {
        let local = place.is_local();
        let all = [
            Self::Silent,
            Self::HalfRequest,
            Self::Trickle,
            Self::Endless,
            Self::NeverReads,
            Self::HalfClosed,
            Self::Churn,
            Self::Noise,
            Self::Descriptors,
            Self::Stopped,
        ];
        all.into_iter()
            .filter(move |attack| local || *attack != Self::Descriptors)
    }

    /// Runs until it is `over`. It says that it `began` when it has opened its connections.
    pub fn run(self, target: &Target, began: Sender<()>, over: &AtomicBool) {
        // Nobody waits for it any more if another attack could not begin.
        let say = || _ = began.send(());
        if self == Self::Stopped {
            let _peer = stopped::start(&target.place, &target.request, target.crowd / 2);
            say();
            return rounds(over).for_each(drop);
        }
        let half = &target.request[..target.request.len() / 2];
        let mut held = Vec::new();
        let count = match self {
            Self::Silent | Self::HalfRequest | Self::HalfClosed => target.crowd,
            _ => SENDERS,
        };
        held.extend((0..count).filter_map(|_| target.place.connect().ok()));
        match self {
            Self::HalfRequest => held.iter().for_each(|one| _ = one.push(half)),
            Self::HalfClosed => held.iter().for_each(|one| {
                one.push(half);
                one.end();
            }),
            _ => {}
        }
        say();
        match self {
            Self::Silent | Self::HalfRequest | Self::HalfClosed | Self::Stopped => {
                rounds(over).for_each(drop);
            }
            Self::Trickle => trickle(target, held, over),
            Self::Endless => endless(held, over),
            Self::NeverReads => repeat(target, held, over, |one| one.push(&target.request)),
            Self::Churn => churn(target, half, over),
            Self::Noise => noise(target, held, over),
            Self::Descriptors => repeat(target, held, over, |one| {
                push_descriptors(one, &target.request)
            }),
        }
    }
}

/// Rounds with a pause before each but the first: at least [`ROUNDS`], then until `over`, up to the longest time.
fn rounds(over: &AtomicBool) -> impl Iterator<Item = usize> {
    let began = Instant::now();
    (0..).take_while(move |round| {
        if *round > 0 {
            std::thread::sleep(PAUSE);
        }
        (*round < ROUNDS || !over.load(Ordering::Relaxed)) && began.elapsed() < LONGEST
    })
}

/// Replaces the connections that `act` finds closed by new ones, in every round.
fn repeat(
    target: &Target,
    mut held: Vec<Connection>,
    over: &AtomicBool,
    mut act: impl FnMut(&Connection) -> bool,
) {
    for _ in rounds(over) {
        held.retain(&mut act);
        let missing = SENDERS - held.len();
        held.extend((0..missing).filter_map(|_| target.place.connect().ok()));
    }
}

fn trickle(target: &Target, held: Vec<Connection>, over: &AtomicBool) {
    let mut sent = 0;
    repeat(target, held, over, |one| {
        let at = sent / SENDERS % target.request.len();
        sent += 1;
        one.push(&target.request[at..=at])
    });
}

fn endless(mut held: Vec<Connection>, over: &AtomicBool) {
    let piece = vec![b'x'; PIECE];
    for _ in rounds(over) {
        held.retain(|one| one.push(&piece));
    }
}

fn churn(target: &Target, half: &[u8], over: &AtomicBool) {
    for _ in rounds(over) {
        for connection in (0..CHURN).filter_map(|_| target.place.connect().ok()) {
            connection.push(half);
            connection.reset();
        }
    }
}

/// Random bytes, of which a quarter are those of the request, by a xorshift generator with a fixed seed.
fn noise(target: &Target, held: Vec<Connection>, over: &AtomicBool) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    repeat(target, held, over, |one| {
        let length = 1 + next() % 600;
        let byte = |at: usize| match next() {
            random if random % 4 > 0 => (random >> 8) as u8,
            _ => target.request[at % target.request.len()],
        };
        let bytes: Vec<u8> = (0..length).map(byte).collect();
        one.push(&bytes)
    });
}

/// The request with many copies of the connection's own descriptor.
fn push_descriptors(connection: &Connection, request: &[u8]) -> bool {
    let descriptors = [connection.0.as_fd(); DESCRIPTORS];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: &[BorrowedFd<'_>] = &descriptors;
    assert!(
        control.push(SendAncillaryMessage::ScmRights(descriptors)),
        "the space is for that many"
    );
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(&connection.0, &[IoSlice::new(request)], &mut control, flags);
    sent.is_ok()
}
