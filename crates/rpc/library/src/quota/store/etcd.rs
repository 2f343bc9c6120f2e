//! Promises in etcd, through its JSON gateway (version 3 of the interface).
//!
//! Method: each tenant's terms and each client's latest promise have a key. A starting server increments the number
//! under `epoch`. Each of its writes is a transaction that requires its own number, so a replaced server can promise
//! nothing more. A write without an answer may reach etcd at any later time. The server therefore increments the number
//! before its next write, so that the late write fails, and removes terms that only the late write had. Numbers grow by
//! random steps, so that a server recognises its own. Promises expire in etcd too, after many terms, so ended clients
//! leave no keys: an etcd lease receives keys only for half its time, so each key outlives the longest term. Units:
//! seconds for etcd's leases. Limits: plain HTTP to one endpoint, without passwords; put a local proxy of etcd in front
//! of a cluster that needs them. Source: etcd's documentation of its gRPC gateway.

use super::{Loaded, Record, Store, StoreError};
use crate::clock;
use crate::quota::line::PATIENCE;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest answer, bytes: some hundred thousand promises.
const ANSWER_MAX: usize = 64 << 20;

/// Most writes in one transaction: etcd's own limit is 128.
const WRITES_MAX: usize = 100;

/// Duration of an etcd lease, seconds: more than twice any term.
const TTL_S: u64 = 3_600;

/// Longest duration of a write, all its calls together, and of settling before it. A client waits for two writes at
/// most, in all no longer than [`PATIENCE`] unless the store is unsure.
const WRITE_PATIENCE: Duration = Duration::from_millis(900);

/// An etcd.
#[derive(Debug)]
pub struct EtcdStore {
    address: SocketAddr,
    prefix: String,
    /// Our number under `epoch`, once it is set.
    epoch: Option<String>,
    /// The number that may have replaced it: the answer to that change is missing.
    next: Option<String>,
    /// Whether a write has no answer.
    unsure: bool,
    /// Whether our number was changed since, so that only the terms must be settled.
    fenced: bool,
    /// etcd's lease for promises, and the time of its request.
    lease: Option<(String, Instant)>,
    /// Deadline of the current write, if clients wait for it.
    until: Option<Instant>,
}

impl EtcdStore {
    /// At `address`, with keys that begin with `prefix`.
    pub fn new(address: SocketAddr, prefix: &str) -> Self {
        Self {
            address,
            prefix: prefix.trim_end_matches('/').to_owned(),
            epoch: None,
            next: None,
            unsure: false,
            fenced: false,
            lease: None,
            until: None,
        }
    }

    fn failed(&self, reason: impl ToString) -> StoreError {
        StoreError::Etcd {
            place: self.address.to_string(),
            reason: reason.to_string(),
        }
    }

    fn key(&self, name: &str) -> String {
        encode(format!("{}/{name}", self.prefix).as_bytes())
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value, StoreError> {
        let (status, answer) = post(self.address, path, &body.to_string(), self.until())
            .map_err(|error| self.failed(error))?;
        let value: serde_json::Result<Value> = serde_json::from_str(&answer);
        if status == 200 {
            return value.map_err(|error| self.failed(error));
        }
        // The gateway uses one of two names for the text, depending on its version.
        let said = value.as_ref().ok().and_then(|value| {
            let words = value.get("error").or_else(|| value.get("message"));
            words.and_then(Value::as_str)
        });
        Err(self.failed(format!("status {status}: {}", said.unwrap_or("no reason"))))
    }

    fn until(&self) -> Instant {
        self.until.unwrap_or_else(|| Instant::now() + PATIENCE)
    }

    /// Takes the store over: from now on only our writes succeed.
    fn take_over(&mut self) -> Result<(), StoreError> {
        self.epoch = self.found_epoch()?;
        match self.advance()? {
            true => Ok(()),
            false => Err(StoreError::Taken(self.prefix.clone())),
        }
    }

    /// Changes our number, so that our earlier writes fail.
    fn renew_epoch(&mut self) -> Result<(), StoreError> {
        let found = self.found_epoch()?;
        if found.is_some() && found == self.next {
            // The change whose answer is missing was made.
            self.epoch = self.next.take();
            return Ok(());
        }
        if found != self.epoch {
            return Err(StoreError::Taken(self.prefix.clone()));
        }
        // An earlier attempt may have arrived since the reading; the next one then finds its number.
        match self.advance()? {
            true => Ok(()),
            false => Err(self.failed("epoch has changed just now")),
        }
    }

    fn found_epoch(&self) -> Result<Option<String>, StoreError> {
        let found = self.call("/v3/kv/range", &json!({ "key": self.key("epoch") }))?;
        let value = found["kvs"][0]["value"].as_str().map(decode);
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// Replaces the number in `self.epoch`, which was found just now, by a larger one. A repeated attempt uses the same
    /// number. Returns false if the number is another one now.
    fn advance(&mut self) -> Result<bool, StoreError> {
        let key = self.key("epoch");
        let (compare, number) = match &self.epoch {
            None => (json!({"key": key, "target": "VERSION", "version": "0"}), 0),
            Some(old) => {
                let number = old
                    .parse::<u64>()
                    .map_err(|_| self.failed("epoch is no number"))?;
                let value = encode(old.as_bytes());
                let compare = json!({"key": key, "target": "VALUE", "value": value});
                (compare, number)
            }
        };
        let next = number.wrapping_add(1 + u64::from(clock::random()));
        let next = self.next.get_or_insert(next.to_string());
        let put = json!({"requestPut": {"key": key, "value": encode(next.as_bytes())}});
        let done = self.call(
            "/v3/kv/txn",
            &json!({"compare": [compare], "success": [put]}),
        )?;
        let succeeded = done["succeeded"] == true;
        if succeeded {
            self.epoch = self.next.take();
        }
        Ok(succeeded)
    }

    fn lease(&mut self) -> Result<String, StoreError> {
        if let Some((lease, since)) = &self.lease
            && since.elapsed() < Duration::from_secs(TTL_S / 2)
        {
            return Ok(lease.clone());
        }
        let now = Instant::now();
        let granted = self.call("/v3/lease/grant", &json!({"TTL": TTL_S.to_string()}))?;
        let id = granted["ID"]
            .as_str()
            .ok_or_else(|| self.failed("no lease"))?
            .to_owned();
        self.lease = Some((id.clone(), now));
        Ok(id)
    }

    fn put(&mut self, record: &Record) -> Result<Value, StoreError> {
        let value = encode(&serde_json::to_vec(record).expect("records are plain data"));
        let part = |text: &str| encode(text.as_bytes());
        Ok(match record {
            Record::Set(terms) => {
                let name = format!("set/{}/{}/{}", terms.group, terms.class, terms.tenant);
                json!({"requestPut": {"key": self.key(&name), "value": value}})
            }
            Record::Grant {
                group,
                class,
                tenant,
                client,
                ..
            } => {
                let name = format!("grant/{group}/{class}/{tenant}/{}", part(client));
                let lease = self.lease()?;
                json!({"requestPut": {"key": self.key(&name), "value": value, "lease": lease}})
            }
        })
    }

    fn write(&self, writes: &[Value]) -> Result<(), StoreError> {
        let epoch = self
            .epoch
            .as_ref()
            .ok_or_else(|| self.failed("not loaded"))?;
        let epoch = encode(epoch.as_bytes());
        let ours = json!({"key": self.key("epoch"), "target": "VALUE", "value": epoch});
        for part in writes.chunks(WRITES_MAX) {
            let body = json!({"compare": [ours], "success": part});
            if self.call("/v3/kv/txn", &body)?["succeeded"] != true {
                return Err(StoreError::Taken(self.prefix.clone()));
            }
        }
        Ok(())
    }
}

impl Store for EtcdStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.take_over()?;
        let mut records = Vec::new();
        // Terms first: promises refer to existing tenants.
        for name in ["set", "grant"] {
            let (from, to) = (self.key(&format!("{name}/")), self.key(&format!("{name}0")));
            let found = self.call("/v3/kv/range", &json!({"key": from, "range_end": to}))?;
            let read = read_records(&found);
            records.extend(read.map_err(|error| self.failed(format!("a value: {error}")))?);
        }
        // etcd has stored on disk what it confirmed.
        let complete = true;
        Ok(Loaded {
            records,
            complete,
            term_ms: 0,
        })
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.in_time(|store| store.put_all(records))
    }

    /// Keys are replaced one by one. Called at the start, when no client waits yet. No promise is ever missing.
    fn replace(&mut self, records: &[Record], _missing_ms: u64) -> Result<(), StoreError> {
        let is_terms = |record: &Record| matches!(record, Record::Set(_));
        let (terms, promises) = records.iter().cloned().partition::<Vec<_>, _>(is_terms);
        let writes = self.differences(&terms)?;
        self.write(&writes)?;
        self.put_all(&promises)
    }

    fn is_long(&self) -> bool {
        false
    }

    fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// A step that is done is not repeated, so that a slow etcd does not prevent the next one for ever.
    fn settle(&mut self, terms: &[Record]) -> Result<(), StoreError> {
        self.in_time(|store| {
            if !store.fenced {
                store.renew_epoch()?;
                store.fenced = true;
            }
            let writes = store.differences(terms)?;
            // A write that fails can be late too.
            store.fenced = writes.is_empty();
            store.write(&writes)?;
            store.unsure = false;
            Ok(())
        })
    }
}

impl EtcdStore {
    /// Does a write, or settles, with a deadline.
    fn in_time<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        self.until = Some(Instant::now() + WRITE_PATIENCE);
        let done = act(self);
        self.until = None;
        done
    }

    /// The writes after which etcd has these terms and no others.
    fn differences(&mut self, terms: &[Record]) -> Result<Vec<Value>, StoreError> {
        let (from, to) = (self.key("set/"), self.key("set0"));
        let found = self.call("/v3/kv/range", &json!({"key": from, "range_end": to}))?;
        let found = found["kvs"].as_array().into_iter().flatten();
        let mut others: BTreeMap<&str, &Value> = found
            .filter_map(|pair| Some((pair["key"].as_str()?, &pair["value"])))
            .collect();
        let mut writes = Vec::new();
        for terms in terms {
            let put = self.put(terms)?;
            let request = &put["requestPut"];
            let known = request["key"].as_str().and_then(|key| others.remove(key));
            if known != Some(&request["value"]) {
                writes.push(put);
            }
        }
        let removed = others.into_keys();
        writes.extend(removed.map(|key| json!({"requestDeleteRange": {"key": key}})));
        Ok(writes)
    }

    fn put_all(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let writes: Result<Vec<Value>, StoreError> =
            records.iter().map(|record| self.put(record)).collect();
        let written = self.write(&writes?);
        if written.is_err() {
            (self.unsure, self.fenced) = (true, false);
            // The lease may be gone: an operator can revoke it, and it can expire while a machine is suspended.
            self.lease = None;
        }
        written
    }
}

/// The answer's status and body, received by `until`.
fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    until: Instant,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, left(until)?)?;
    stream.set_write_timeout(Some(left(until)?))?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let answer = read_until(&mut stream, until)?;
    let parsed = status_and_body(&answer).map(|(status, body)| (status, body.to_owned()));
    parsed.ok_or_else(|| std::io::Error::other("no HTTP answer"))
}

/// Status and body of an answer in HTTP; `None` for what is none.
pub fn status_and_body(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body))
}

/// The records in an answer to a request for a range of keys. Fails on a value that is no record.
pub fn read_records(found: &Value) -> serde_json::Result<Vec<Record>> {
    let pairs = found["kvs"].as_array().into_iter().flatten();
    let value = |pair: &Value| decode(pair["value"].as_str().unwrap_or_default());
    pairs
        .map(|pair| serde_json::from_slice(&value(pair)))
        .collect()
}

/// Reads to the end, which must come by `until` even if bytes arrive slowly.
fn read_until(stream: &mut TcpStream, until: Instant) -> std::io::Result<String> {
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let bytes = stream.read(&mut part)?;
        if bytes == 0 {
            return String::from_utf8(answer).map_err(std::io::Error::other);
        }
        answer.extend_from_slice(&part[..bytes]);
        if answer.len() > ANSWER_MAX {
            return Err(std::io::Error::other(format!(
                "an answer of more than {ANSWER_MAX} bytes"
            )));
        }
    }
}

/// The remaining time.
fn left(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "no answer in time",
        )),
        false => Ok(left),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three
            .iter()
            .fold(0u32, |word, &byte| word << 8 | u32::from(byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let sextet = (word >> (18 - 6 * place)) & 63;
            text.push(if place <= three.len() {
                ALPHABET[sextet as usize].into()
            } else {
                '='
            });
        }
    }
    text
}

/// Decodes base64; skips other characters.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for letter in text.bytes() {
        if let Some(sextet) = ALPHABET.iter().position(|&known| known == letter) {
            word = word << 6 | sextet as u32;
            bits += 6;
            if bits >= 8 {
                bits -= 8;
                bytes.push((word >> bits) as u8);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_is_the_common_one() {
        assert_eq!(encode(b"foob"), "Zm9vYg==");
        assert_eq!(encode(b"fooba"), "Zm9vYmE=");
        assert_eq!(encode(b"foobar"), "Zm9vYmFy");
    }

    /// Goal: an etcd that answers with an error does not count as empty. Method: a server that gives one answer to
    /// everything, in the words of both versions of etcd's gateway.
    #[test]
    fn an_error_is_not_an_empty_store() {
        for (head, body, said) in [
            (
                "503 Service Unavailable",
                r#"{"error":"no leader","code":14}"#,
                "no leader",
            ),
            (
                "503 Service Unavailable",
                r#"{"code":14,"message":"no leader"}"#,
                "no leader",
            ),
            ("404 Not Found", "nothing here", "status 404: no reason"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let answer = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // Reads the whole request, because closing earlier would look like a reset.
                std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            });
            let error = EtcdStore::new(address, "/x").load().unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            server.join().unwrap();
        }
    }

    /// Goal: an etcd that answers slowly does not block a write beyond its time. Method: a server that sends single
    /// bytes, each within the limit of a read.
    #[test]
    fn an_answer_that_trickles_is_not_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"H").is_ok() {
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        let until = Instant::now() + Duration::from_millis(200);
        let error = post(address, "/v3/kv/range", "{}", until).unwrap_err();
        let kinds = [std::io::ErrorKind::TimedOut, std::io::ErrorKind::WouldBlock];
        assert!(kinds.contains(&error.kind()), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }
    }
}
