//! Promises in etcd, through its JSON gateway (version 3 of the interface).
//!
//! Method: each tenant's terms and each client's latest promise have a key. A server that starts raises the number under
//! `epoch`; each of its writes is a transaction that holds only while the number is its own, so that a server which was
//! replaced can promise nothing more. Promises expire in etcd too, after many terms, so that gone clients leave no keys.
//! Units: seconds for etcd's leases.
//! Limits: plain HTTP to one endpoint, without passwords: put a local proxy of etcd in front of a cluster that has them.
//! Source: etcd's documentation of its gRPC gateway.

use super::{Loaded, Record, Store, StoreError};
use crate::quota::line::PATIENCE;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Longest answer that is read, bytes: some hundred thousand promises.
const ANSWER_MAX: u64 = 64 << 20;

/// Most writes in one transaction: etcd's own limit is 128.
const WRITES_MAX: usize = 100;

/// A promise's key lives so long, seconds: longer than any term.
const TTL_S: u64 = 3_600;

/// An etcd.
#[derive(Debug)]
pub struct EtcdStore {
    address: SocketAddr,
    prefix: String,
    /// Our number under `epoch`, once we have one.
    epoch: Option<String>,
    /// etcd's lease for promises, and how many writes it has served.
    lease: Option<String>,
    writes: u64,
}

impl EtcdStore {
    /// At `address`, with keys that begin with `prefix`.
    pub fn new(address: SocketAddr, prefix: &str) -> Self {
        Self {
            address,
            prefix: prefix.trim_end_matches('/').to_owned(),
            epoch: None,
            lease: None,
            writes: 0,
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
        let answer =
            post(self.address, path, &body.to_string()).map_err(|error| self.failed(error))?;
        let value: Value = serde_json::from_str(&answer).map_err(|error| self.failed(error))?;
        match value.get("error").and_then(Value::as_str) {
            Some(error) => Err(self.failed(error)),
            None => Ok(value),
        }
    }

    /// Takes the store over: from here on our writes hold and nobody else's.
    fn take_over(&mut self) -> Result<(), StoreError> {
        let key = self.key("epoch");
        let found = self.call("/v3/kv/range", &json!({ "key": key }))?;
        let old = found["kvs"][0]["value"].as_str().map(decode);
        let (compare, number) = match old {
            None => (json!({"key": key, "target": "VERSION", "version": "0"}), 1),
            Some(old) => {
                let text = String::from_utf8_lossy(&old).into_owned();
                let number = text
                    .parse::<u64>()
                    .map_err(|_| self.failed("epoch is no number"))?;
                let value = encode(text.as_bytes());
                (
                    json!({"key": key, "target": "VALUE", "value": value}),
                    number + 1,
                )
            }
        };
        let next = encode(number.to_string().as_bytes());
        let put = json!({"requestPut": {"key": key, "value": next}});
        let done = self.call(
            "/v3/kv/txn",
            &json!({"compare": [compare], "success": [put]}),
        )?;
        if done["succeeded"] != true {
            return Err(StoreError::Taken(self.prefix.clone()));
        }
        self.epoch = Some(next);
        Ok(())
    }

    fn lease(&mut self) -> Result<String, StoreError> {
        // A fresh one now and then, so that a key in use outlives its lease's start by far less than the lease.
        const WRITES_PER_LEASE: u64 = 1_000;
        self.writes += 1;
        if let Some(lease) = &self.lease
            && !self.writes.is_multiple_of(WRITES_PER_LEASE)
        {
            return Ok(lease.clone());
        }
        let granted = self.call("/v3/lease/grant", &json!({"TTL": TTL_S.to_string()}))?;
        let id = granted["ID"]
            .as_str()
            .ok_or_else(|| self.failed("no lease"))?
            .to_owned();
        self.lease = Some(id.clone());
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
        // Terms first: promises are to tenants that exist.
        for name in ["set", "grant"] {
            let (from, to) = (self.key(&format!("{name}/")), self.key(&format!("{name}0")));
            let found = self.call("/v3/kv/range", &json!({"key": from, "range_end": to}))?;
            for pair in found["kvs"].as_array().into_iter().flatten() {
                let value = decode(pair["value"].as_str().unwrap_or_default());
                let record = serde_json::from_slice(&value);
                records.push(record.map_err(|error| self.failed(format!("a value: {error}")))?);
            }
        }
        // etcd has on disk what it confirmed.
        let complete = true;
        Ok(Loaded { records, complete })
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let writes: Result<Vec<Value>, StoreError> =
            records.iter().map(|record| self.put(record)).collect();
        self.write(&writes?)
    }

    /// Keys are replaced one by one anyway.
    fn replace(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.append(records)
    }

    fn is_long(&self) -> bool {
        false
    }
}

fn post(address: SocketAddr, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer is not in chunks and ends with the connection.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((_, body)) => Ok(body.to_owned()),
        None => Err(std::io::Error::other("no HTTP answer")),
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

/// Base64 back; what is none of its letters is left out.
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

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }
    }
}
