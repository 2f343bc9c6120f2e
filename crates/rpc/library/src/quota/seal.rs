//! Seals lines so that only holders of a shared key can write them.
//!
//! Problem: over TCP every host that reaches the server could claim any tenant's name and change quotas. Method: the
//! client sends a nonce, the server answers with its own, and both derive a key of the connection from the shared key
//! and the two nonces. From then on each line begins with a seal: HMAC-SHA256 over the sender's role, the line's number
//! in its direction and its text. Others can neither add, repeat nor drop lines. A host without the key gets no data to
//! test guesses of the key on, because the client sends the first line under the key. Units: nonces of 32 bytes; nonces
//! and seals are written as hexadecimal digits. Limits: lines are authentic, not secret. All holders of the key are
//! equal: each may claim any tenant's name.

use isolane_common_linux::key::{Key, random};
use ring::hmac::{self, HMAC_SHA256};
use std::fmt::Write;

/// Bytes of a nonce.
const NONCE: usize = 32;

/// Digits of a seal.
const SEAL: usize = 64;

/// The end of a connection that sends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The state of the seals at one end of a connection.
pub(super) struct Seals {
    key: hmac::Key,
    end: End,
    written: u64,
    read: u64,
}

/// Makes a nonce. Fails if the kernel has no randomness.
pub(super) fn nonce() -> std::io::Result<String> {
    let mut bytes = [0; NONCE];
    random(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Whether `text` has the form of a nonce.
pub(super) fn is_nonce(text: &str) -> bool {
    text.len() == 2 * NONCE
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl Seals {
    pub(super) fn new(key: &Key, end: End, client_nonce: &str, server_nonce: &str) -> Self {
        let shared = hmac::Key::new(HMAC_SHA256, key.bytes());
        let said = format!("isolane quota 1\n{client_nonce}\n{server_nonce}");
        let own = hmac::sign(&shared, said.as_bytes());
        Self {
            key: hmac::Key::new(HMAC_SHA256, own.as_ref()),
            end,
            written: 0,
            read: 0,
        }
    }

    /// Prefixes `line` with its seal.
    pub(super) fn seal(&mut self, line: &str) -> String {
        let said = said(self.end, self.written, line);
        self.written += 1;
        format!("{} {line}", hex(hmac::sign(&self.key, &said).as_ref()))
    }

    /// The text of a sealed line; `None` if the peer did not write it as the next line of this connection.
    pub(super) fn open<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let (seal, text) = line.split_at_checked(SEAL)?;
        let text = text.strip_prefix(' ')?;
        let seal = unhex(seal)?;
        let said = said(self.end.other(), self.read, text);
        hmac::verify(&self.key, &said, &seal).ok()?;
        self.read += 1;
        Some(text)
    }
}

fn said(end: End, number: u64, line: &str) -> Vec<u8> {
    format!("{}\n{number}\n{line}", end.word()).into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(client: u8, server: u8) -> (Seals, Seals) {
        let (a, b) = ("0".repeat(64), "1".repeat(64));
        let key = |byte: u8| Key::new(vec![byte; 32]);
        let client = Seals::new(&key(client), End::Client, &a, &b);
        (client, Seals::new(&key(server), End::Server, &a, &b))
    }

    #[test]
    fn each_end_reads_what_the_other_wrote_once_and_in_order() {
        let (mut client, mut server) = ends(7, 7);
        let (first, second) = (client.seal("one"), client.seal("two"));
        assert_eq!(server.open(&second), None, "out of order");
        assert_eq!(server.open(&first), Some("one"));
        assert_eq!(server.open(&first), None, "said again");
        assert_eq!(server.open(&second), Some("two"));
        let answer = server.seal("three");
        assert_eq!(server.open(&answer), None, "its own word");
        assert_eq!(client.open(&answer), Some("three"));
    }

    #[test]
    fn another_key_and_another_connection_open_nothing() {
        let (mut client, mut server) = ends(7, 8);
        assert_eq!(server.open(&client.seal("one")), None);
        let (mut client, _) = ends(7, 7);
        let key = Key::new(vec![7; 32]);
        let mut elsewhere = Seals::new(&key, End::Server, &"0".repeat(64), &"2".repeat(64));
        assert_eq!(elsewhere.open(&client.seal("one")), None);
    }

    /// The client in Go makes the same seal: `go/isolane/seal_test.go`.
    #[test]
    fn the_seal_is_that_of_other_languages() {
        let (mut client, _) = ends(b'k', b'k');
        let seal = "b538e6f9786db4b10a69ccd9addbfcabea9481135c83e8aaa442b7361ba34c7d";
        let line = r#"{"ask":"show"}"#;
        assert_eq!(client.seal(line), format!("{seal} {line}"));
    }

    #[test]
    fn nonces_are_64_digits_and_differ() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert!(is_nonce(&one) && one != other);
        assert!(!is_nonce(&one[1..]) && !is_nonce(&one.to_uppercase().replace('0', "A")));
    }

    proptest! {
        /// Goal: changed lines are rejected. Method: a sealed line with one byte changed, and any text.
        #[test]
        fn a_changed_line_is_refused(line in "[ -~]{0,40}", place in 0usize..200, other in "\\PC{0,90}") {
            let (mut client, mut server) = ends(7, 7);
            let mut bytes = client.seal(&line).into_bytes();
            let place = place % bytes.len();
            bytes[place] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(server.open(&changed), None);
            prop_assert_eq!(server.open(&other), None);
        }
    }
}
