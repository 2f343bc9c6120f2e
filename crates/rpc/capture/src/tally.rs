//! Bytes and calls by client, server, class and DSCP, and the verdict.
//!
//! Limits: at most [`ROWS_MAX`] rows; bytes of further ones are counted in [`Report::unlisted_bytes`].

use crate::Options;
use core::net::{IpAddr, SocketAddr};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most rows.
pub const ROWS_MAX: usize = 65_536;
/// Most unknown names of classes in a report.
const NAMES_MAX: usize = 16;

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the client.
    Request,
    /// From the server.
    Response,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All judged calls have the DSCP of their class, within the tolerance.
    Aligned,
    /// Some do not.
    Misaligned,
    /// No call and no connection declares a class; or those that do are aligned, and of others it is unknown: calls name a class
    /// that no settings have, or more bytes than the tolerance belong to calls that were not read.
    Undecided,
}

/// Bytes and calls of one code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Marked {
    /// The code point.
    pub dscp: u8,
    /// Calls whose request header had it.
    pub calls: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// One client, server, class and direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Address of the client.
    pub client: IpAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Declared class; none if calls and tables declare none.
    pub class: Option<String>,
    /// DSCP of the class.
    pub dscp: Option<u8>,
    /// Direction.
    pub direction: Direction,
    /// Calls whose header was read; 0 in responses.
    pub calls: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes with another DSCP than that of the class.
    pub misaligned_bytes: u64,
    /// Calls whose header had another DSCP.
    pub misaligned_calls: u64,
    /// Whether the row counts for the verdict.
    pub judged: bool,
    /// Bytes by DSCP, most bytes first.
    pub marked: Vec<Marked>,
}

/// How connections were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Connections with payload.
    pub seen: u64,
    /// HTTP/2 in plain text from the first byte on.
    pub readable: u64,
    /// Of these, connections whose reading ended at a gap or an invalid frame.
    pub broken: u64,
    /// Not readable, with a class from the table.
    pub in_table: u64,
    /// Not readable and not in the table.
    pub undeclared: u64,
}

/// What a capture has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of the document; the meaning of a field changes only with it.
    pub version: u32,
    /// The answer.
    pub verdict: Verdict,
    /// Packets in the capture.
    pub packets: u64,
    /// Packets that are TCP segments.
    pub segments: u64,
    /// Connections.
    pub connections: Connections,
    /// Bytes of HTTP/2 that belong to no call.
    pub control_bytes: u64,
    /// Bytes of readable connections whose call is unknown, because the reading had ended.
    pub unread_bytes: u64,
    /// Bytes beyond the bounds of connections and rows.
    pub unlisted_bytes: u64,
    /// Names of classes in calls that no class has.
    pub unknown_classes: Vec<String>,
    /// Whether the file ends within a packet.
    pub cut_off: bool,
    /// By client, server, class and direction.
    pub rows: Vec<Row>,
}

/// What bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) client: IpAddr,
    pub(crate) server: SocketAddr,
    pub(crate) class: Option<u8>,
    pub(crate) direction: Direction,
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rows: BTreeMap<Key, BTreeMap<u8, (u64, u64)>>,
    pub(crate) connections: Connections,
    pub(crate) packets: u64,
    pub(crate) segments: u64,
    pub(crate) control_bytes: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) unlisted_bytes: u64,
    pub(crate) cut_off: bool,
    /// Bytes of the judged directions whose call is unknown.
    pub(crate) unjudged_bytes: u64,
    unknown: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, key: Key, dscp: u8, calls: u64, bytes: u64) {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
            self.unlisted_bytes += bytes;
            return;
        }
        let sum = self.rows.entry(key).or_default().entry(dscp).or_default();
        sum.0 += calls;
        sum.1 += bytes;
    }

    /// Notes a name that no class has.
    pub(crate) fn unknown(&mut self, name: &str) {
        if self.unknown.len() < NAMES_MAX && !self.unknown.iter().any(|other| other == name) {
            let printable = |letter: char| match letter.is_control() {
                true => '?',
                false => letter,
            };
            self.unknown
                .push(name.chars().take(64).map(printable).collect());
        }
    }

    pub(crate) fn report(self, options: &Options) -> Report {
        let unjudged_bytes = self.unjudged_bytes + self.unlisted_bytes;
        let rows: Vec<Row> = self
            .rows
            .into_iter()
            .map(|(key, marked)| row(options, key, &marked))
            .collect();
        Report {
            version: 1,
            verdict: match verdict(&rows, options.tolerance) {
                Verdict::Aligned
                    if hides(&rows, unjudged_bytes, options.tolerance)
                        || !self.unknown.is_empty() =>
                {
                    Verdict::Undecided
                }
                verdict => verdict,
            },
            packets: self.packets,
            segments: self.segments,
            connections: self.connections,
            control_bytes: self.control_bytes,
            unread_bytes: self.unread_bytes,
            unlisted_bytes: self.unlisted_bytes,
            unknown_classes: self.unknown,
            cut_off: self.cut_off,
            rows,
        }
    }
}

impl Row {
    /// Misaligned part of the bytes.
    pub fn misaligned(&self) -> f64 {
        self.misaligned_bytes as f64 / self.bytes.max(1) as f64
    }
}

fn row(options: &Options, key: Key, marked: &BTreeMap<u8, (u64, u64)>) -> Row {
    let class = key.class.map(|class| &options.classes[usize::from(class)]);
    let mut marked: Vec<Marked> = marked
        .iter()
        .map(|(&dscp, &(calls, bytes))| Marked { dscp, calls, bytes })
        .collect();
    marked.sort_by_key(|marked| (std::cmp::Reverse(marked.bytes), marked.dscp));
    let elsewhere = |marked: &&Marked| class.is_some_and(|class| class.dscp != marked.dscp);
    Row {
        client: key.client,
        server: key.server,
        class: class.map(|class| class.name.clone()),
        dscp: class.map(|class| class.dscp),
        direction: key.direction,
        calls: marked.iter().map(|marked| marked.calls).sum(),
        bytes: marked.iter().map(|marked| marked.bytes).sum(),
        misaligned_bytes: marked.iter().filter(elsewhere).map(|one| one.bytes).sum(),
        misaligned_calls: marked.iter().filter(elsewhere).map(|one| one.calls).sum(),
        judged: class.is_some() && (key.direction == Direction::Request || options.responses),
        marked,
    }
}

fn verdict(rows: &[Row], tolerance: f64) -> Verdict {
    let mut judged = rows.iter().filter(|row| row.judged).peekable();
    if judged.peek().is_none() {
        return Verdict::Undecided;
    }
    match judged.any(|row| row.misaligned() > tolerance) {
        true => Verdict::Misaligned,
        false => Verdict::Aligned,
    }
}

/// Whether so many bytes may be misaligned beside those of aligned rows that a row of them would be misaligned.
fn hides(rows: &[Row], unjudged_bytes: u64, tolerance: f64) -> bool {
    let judged: u64 = rows
        .iter()
        .filter(|row| row.judged)
        .map(|row| row.bytes)
        .sum();
    unjudged_bytes as f64 > tolerance * (judged + unjudged_bytes) as f64
}
