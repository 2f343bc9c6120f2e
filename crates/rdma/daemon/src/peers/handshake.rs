//! Connects the queue pairs of two daemons: a short exchange over TCP, authenticated with a shared key.
//!
//! Problem: a queue pair needs the peer's number, address and key before the first message. An unknown host must not
//! become a peer, because peers' reports change the rates of this machine. Method: frames of a length (u16) and bytes.
//! The caller sends a nonce; the callee answers with its own nonce and a proof that it has the key; the caller sends
//! its endpoint with a proof over both nonces and the endpoint; the callee answers likewise. Proofs are HMAC-SHA256
//! with a word that names the sender's role, so a proof cannot be replayed in another step. Afterwards the connection
//! carries nothing: its end means that the peer has ended. Limits: endpoints are authentic but not secret. RoCE itself
//! authenticates nothing, so a host that can forge packets in the cluster's network can forge reports; their numbers
//! are checked ([`super::report`]).

use crate::order::PeerId;
use isolane_common_linux::key::{Key, random};
use isolane_rdma_session::message::PortAddress;
use ring::hmac::{self, HMAC_SHA256, Tag};
use std::io::{Read, Write};

/// Longest frame, bytes.
const FRAME_MAX: usize = 1024;
/// Longest device name, bytes.
const NAME_MAX: usize = 64;
const NONCE: usize = 32;
const PROOF: usize = 32;
const MAGIC: [u8; 4] = *b"ISLP";
/// Most addresses of a port in an endpoint.
pub const PORTS_MAX: usize = 32;
const VERSION: u32 = 2;

/// One end of a queue pair to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Random, new at every start of a daemon: it prevents counting one daemon's reports twice.
    pub daemon: [u8; 16],
    /// Device of the sender.
    pub device: String,
    /// Device that the sender wants to reach.
    pub wanted: String,
    /// GID of the port.
    pub gid: [u8; 16],
    /// LID of the port; zero on Ethernet.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub queue_pair: u32,
    /// First packet sequence number, 24 bits.
    pub packet_sequence: u32,
    /// MTU of the port, bytes.
    pub mtu: u32,
    /// Address of the memory for reference messages.
    pub address: u64,
    /// Remote key of that memory.
    pub remote_key: u32,
    /// All addresses at which applications reach the port, at most [`PORTS_MAX`].
    pub addresses: Vec<PortAddress>,
}

/// Why two daemons could not connect.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum HandshakeError {
    /// The network failed or the peer did not answer.
    #[error("the connection failed: {0}")]
    Network(#[from] std::io::Error),
    #[error(
        "the peer is not an isolaned of this version; install the same release on all machines"
    )]
    Version,
    #[error("the peer has another key; give all daemons the same key_file")]
    Proof,
    #[error("{field} of the peer's message is not valid; install the same release on all machines")]
    Field { field: &'static str },
    #[error("the peer rejected the connection: {reason}")]
    Refused { reason: String },
    /// Our own queue pair cannot be made.
    #[error(transparent)]
    Verbs(#[from] isolane_rdma_verbs_sys::safe::VerbsError),
}

fn prove(key: &Key, word: &str, parts: &[&[u8]]) -> Tag {
    hmac::sign(&hmac_key(key), &said(word, parts))
}

fn verify(key: &Key, word: &str, parts: &[&[u8]], proof: &[u8]) -> Result<(), HandshakeError> {
    let verified = hmac::verify(&hmac_key(key), &said(word, parts), proof);
    verified.map_err(|_| HandshakeError::Proof)
}

fn hmac_key(key: &Key) -> hmac::Key {
    hmac::Key::new(HMAC_SHA256, key.bytes())
}

/// The bytes under a proof: parts with their lengths, so that different lists of parts have different bytes.
fn said(word: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = word.as_bytes().to_vec();
    for part in parts {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(*part);
    }
    bytes
}

/// The caller's side. `ours` exists before the call, because the peer needs it.
pub fn call(
    stream: &mut (impl Read + Write),
    key: &Key,
    ours: &Endpoint,
) -> Result<Endpoint, HandshakeError> {
    let nonce = nonce()?;
    send(stream, &[&MAGIC, &VERSION.to_le_bytes(), &nonce])?;
    let answer = receive(stream)?;
    let rest = opened(&answer)?;
    if rest.len() != NONCE + PROOF {
        return Err(HandshakeError::Field {
            field: "the challenge",
        });
    }
    let (theirs, proof) = rest.split_at(NONCE);
    verify(key, "isolaned answers", &[&nonce, theirs], proof)?;
    let ours = ours.encode();
    send(
        stream,
        &[
            prove(key, "isolaned asks", &[&nonce, theirs, &ours]).as_ref(),
            &ours,
        ],
    )?;
    let answer = receive(stream)?;
    let (proof, body) = answer
        .split_at_checked(PROOF)
        .ok_or(HandshakeError::Field {
            field: "the answer",
        })?;
    verify(
        key,
        "isolaned agrees",
        &[&nonce, theirs, &ours, body],
        proof,
    )?;
    match body.split_first() {
        Some((1, endpoint)) => Endpoint::decode(endpoint),
        Some((0, reason)) => Err(HandshakeError::Refused {
            reason: String::from_utf8_lossy(reason)
                .chars()
                .filter(|c| !c.is_control())
                .collect(),
        }),
        _ => Err(HandshakeError::Field {
            field: "the answer",
        }),
    }
}

/// The callee's side. `agree` makes our endpoint for the peer's, or returns why not. The peer receives the reason of
/// `agree`.
pub fn answer<T>(
    stream: &mut (impl Read + Write),
    key: &Key,
    agree: impl FnOnce(&Endpoint) -> Result<(Endpoint, T), String>,
) -> Result<(Endpoint, T), HandshakeError> {
    let hello = receive(stream)?;
    let theirs = opened(&hello)?;
    if theirs.len() != NONCE {
        return Err(HandshakeError::Field {
            field: "the greeting",
        });
    }
    let nonce = nonce()?;
    let proof = prove(key, "isolaned answers", &[theirs, &nonce]);
    send(
        stream,
        &[&MAGIC, &VERSION.to_le_bytes(), &nonce, proof.as_ref()],
    )?;
    let asked = receive(stream)?;
    let (proof, endpoint) = asked.split_at_checked(PROOF).ok_or(HandshakeError::Field {
        field: "the question",
    })?;
    verify(key, "isolaned asks", &[theirs, &nonce, endpoint], proof)?;
    let peer = Endpoint::decode(endpoint)?;
    let agreed = agree(&peer);
    let body = match &agreed {
        Ok((ours, _)) => [&[1][..], &ours.encode()].concat(),
        Err(reason) => [&[0][..], &reason.as_bytes()[..reason.len().min(200)]].concat(),
    };
    let proof = prove(key, "isolaned agrees", &[theirs, &nonce, endpoint, &body]);
    send(stream, &[proof.as_ref(), &body])?;
    match agreed {
        Ok((_, made)) => Ok((peer, made)),
        Err(reason) => Err(HandshakeError::Refused { reason }),
    }
}

fn nonce() -> Result<[u8; NONCE], HandshakeError> {
    let mut nonce = [0; NONCE];
    random(&mut nonce)?;
    Ok(nonce)
}

fn opened(frame: &[u8]) -> Result<&[u8], HandshakeError> {
    let rest = frame.strip_prefix(&MAGIC).ok_or(HandshakeError::Version)?;
    rest.strip_prefix(&VERSION.to_le_bytes())
        .ok_or(HandshakeError::Version)
}

fn send(stream: &mut impl Write, parts: &[&[u8]]) -> Result<(), HandshakeError> {
    let body = parts.concat();
    assert!(body.len() <= FRAME_MAX, "a few fixed fields and two names");
    let mut frame = (body.len() as u16).to_le_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame)?;
    Ok(stream.flush()?)
}

fn receive(stream: &mut impl Read) -> Result<Vec<u8>, HandshakeError> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > FRAME_MAX {
        return Err(HandshakeError::Version);
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

impl Endpoint {
    /// Whose it is.
    pub(super) fn peer(&self) -> PeerId {
        PeerId {
            daemon: self.daemon,
            device: self.device.clone(),
        }
    }

    /// Encodes the endpoint. Names and lists that are too long are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRAME_MAX);
        bytes.extend(self.daemon);
        bytes.extend(self.gid);
        bytes.extend(self.lid.to_le_bytes());
        for number in [
            self.queue_pair,
            self.packet_sequence,
            self.mtu,
            self.remote_key,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.address.to_le_bytes());
        for name in [&self.device, &self.wanted] {
            let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
            bytes.push(name.len() as u8);
            bytes.extend(name);
        }
        let addresses = &self.addresses[..self.addresses.len().min(PORTS_MAX)];
        bytes.push(addresses.len() as u8);
        bytes.extend(addresses.iter().flat_map(|address| address.0));
        bytes
    }

    /// Decodes arbitrary bytes. Fails with [`HandshakeError::Field`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let mut rest = bytes;
        let daemon = take(&mut rest)?;
        let gid = take(&mut rest)?;
        let lid = u16::from_le_bytes(take(&mut rest)?);
        let mut number = || take(&mut rest).map(u32::from_le_bytes);
        let (queue_pair, packet_sequence, mtu, remote_key) =
            (number()?, number()?, number()?, number()?);
        let address = u64::from_le_bytes(take(&mut rest)?);
        let device = take_name(&mut rest)?;
        let wanted = take_name(&mut rest)?;
        let [count] = take(&mut rest)?;
        let wrong = |field| Err(HandshakeError::Field { field });
        if usize::from(count) > PORTS_MAX {
            return wrong("the number of addresses");
        }
        let each = (0..count).map(|_| Ok(PortAddress(take(&mut rest)?)));
        let addresses = each.collect::<Result<_, HandshakeError>>()?;
        match (queue_pair, packet_sequence, mtu) {
            _ if !rest.is_empty() => wrong("the length"),
            (0x100_0000.., _, _) => wrong("the queue pair"),
            (_, 0x100_0000.., _) => wrong("the packet sequence number"),
            (_, _, 256 | 512 | 1_024 | 2_048 | 4_096) => Ok(Self {
                daemon,
                device,
                wanted,
                gid,
                lid,
                queue_pair,
                packet_sequence,
                mtu,
                address,
                remote_key,
                addresses,
            }),
            _ => wrong("the MTU"),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HandshakeError> {
    let (head, tail) = rest.split_first_chunk().ok_or(HandshakeError::Field {
        field: "the length",
    })?;
    *rest = tail;
    Ok(*head)
}

fn take_name(rest: &mut &[u8]) -> Result<String, HandshakeError> {
    let wrong = || HandshakeError::Field {
        field: "a device's name",
    };
    let [length] = take(rest)?;
    let (name, tail) = rest.split_at_checked(length.into()).ok_or_else(wrong)?;
    *rest = tail;
    let name = std::str::from_utf8(name).map_err(|_| wrong())?;
    let plain = !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.chars().any(|c| c.is_control() || c.is_whitespace());
    plain.then(|| name.to_owned()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
