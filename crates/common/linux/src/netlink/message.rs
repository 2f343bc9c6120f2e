//! Netlink messages: a 16-byte header (length, type, flags, sequence, port) and a payload, padded to four bytes.

use super::attribute::aligned;
use std::io;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 16;
/// NLMSG_ERROR: a refusal, or an acknowledgement with error 0.
const ERROR: u16 = 2;
/// NLMSG_DONE: the end of a dump.
const DONE: u16 = 3;
/// NLMSG_NOOP.
const NOOP: u16 = 1;
/// NLM_F_REQUEST | NLM_F_ACK.
const REQUEST: u16 = 0x1 | 0x4;
/// NLM_F_ROOT | NLM_F_MATCH.
const DUMP: u16 = 0x300;
/// NLM_F_CREATE.
const CREATE: u16 = 0x400;

/// A request to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Message type, defined by the family.
    pub kind: u16,
    /// Whether to request every object instead of one.
    pub dump: bool,
    /// Whether to make the object if it does not exist.
    pub create: bool,
    /// The payload: a family's own header if it has one, then attributes.
    pub payload: Vec<u8>,
}

impl Request {
    /// The bytes to send under the sequence number `sequence`.
    pub fn bytes(&self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + self.payload.len())
            .expect("a request of ours is a few attributes");
        let dump = if self.dump { DUMP } else { 0 };
        let create = if self.create { CREATE } else { 0 };
        let flags = REQUEST | dump | create;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// One message of a reply.
#[derive(Debug)]
pub enum Message<'a> {
    /// An object.
    Data {
        /// Message type.
        kind: u16,
        /// The payload after the header.
        payload: &'a [u8],
    },
    /// End of the reply.
    End,
    /// The kernel rejected the request.
    Refused(io::Error),
}

/// Parses one datagram and returns the messages that answer the request `sequence`. Skips other messages (late answers
/// to an earlier request that timed out).
pub fn parse(datagram: &[u8], sequence: u32) -> Result<Vec<Message<'_>>, String> {
    let mut messages = Vec::new();
    let mut rest = datagram;
    while !rest.is_empty() {
        let header: &[u8; HEADER_BYTES] = rest
            .first_chunk()
            .ok_or_else(|| format!("{} bytes left, no header", rest.len()))?;
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let length = usize::try_from(word(0)).unwrap_or(usize::MAX);
        let payload = rest
            .get(HEADER_BYTES..length)
            .ok_or_else(|| format!("message of {length} bytes in {} bytes", rest.len()))?;
        let theirs = word(8);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        if theirs != sequence {
            continue;
        }
        match kind {
            NOOP => {}
            // A dump that fails half-way has the error in its end message.
            DONE => messages.push(match error_of(payload) {
                Some(error) => Message::Refused(error),
                None => Message::End,
            }),
            ERROR if payload.len() < 4 => return Err("an error without its number".to_owned()),
            ERROR => messages.push(match error_of(payload) {
                Some(error) => Message::Refused(error),
                None => Message::End,
            }),
            _ => messages.push(Message::Data { kind, payload }),
        }
    }
    Ok(messages)
}

/// The negative error number at the start of a payload; `None` for zero or an invalid number.
fn error_of(payload: &[u8]) -> Option<io::Error> {
    let number = i32::from_ne_bytes(*payload.first_chunk()?);
    (-4095..0)
        .contains(&number)
        .then(|| io::Error::from_raw_os_error(-number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), sequence in any::<u32>()) {
            let _ = parse(&bytes, sequence);
        }

        #[test]
        fn a_damaged_message_does_not_panic(at in 0usize..40, value in any::<u8>()) {
            let request = Request { kind: 0x1401, dump: true, create: false, payload: vec![8, 0, 1, 0, 7, 0, 0, 0] };
            let mut bytes = [request.bytes(5), request.bytes(5)].concat();
            bytes[at] = value;
            let _ = parse(&bytes, 5);
        }
    }

    #[test]
    fn answers_to_other_requests_are_left_out() {
        let request = Request {
            kind: 0x1401,
            dump: false,
            create: false,
            payload: vec![1, 2, 3, 4],
        };
        let bytes = [request.bytes(1), request.bytes(2)].concat();
        let messages = parse(&bytes, 2).unwrap();
        assert!(
            matches!(messages[..], [Message::Data { kind: 0x1401, payload }] if payload == [1, 2, 3, 4])
        );
    }

    #[test]
    fn zero_length_is_refused_and_does_not_loop() {
        assert!(parse(&[0; 32], 0).is_err());
    }

    #[test]
    fn refusals_carry_the_error_number() {
        let request = Request {
            kind: ERROR,
            dump: false,
            create: false,
            payload: (-1i32).to_ne_bytes().to_vec(),
        };
        let bytes = request.bytes(3);
        let messages = parse(&bytes, 3).unwrap();
        assert!(
            matches!(&messages[..], [Message::Refused(error)] if error.raw_os_error() == Some(1))
        );
    }
}
