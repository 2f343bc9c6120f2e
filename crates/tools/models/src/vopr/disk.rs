//! A disk whose program and machine can crash at any byte.
//!
//! The bytes are the product's journal: [`file::line`] writes them and [`file::parse`] reads them. A kill of the server
//! cuts the append that is on its way after any byte. A crash of the machine also loses bytes that were not synced, from
//! the end, and gives the machine a new boot id. A full disk fails an append and leaves nothing or a part, which the next
//! append removes, as `isolane_common_journal` does.

use isolane_common_quantities::rng::Stream;
use isolane_rpc::quota::store::{Loaded, Record, Store, StoreError, file};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Chance in a thousand that an append fails because the disk is full.
const FULL_PER_MILLE: u64 = 10;
/// Chance in a thousand that the server is killed during an append.
const KILL_PER_MILLE: u64 = 15;
/// A longer journal is compacted, bytes: short, so that it happens often.
const LONG: usize = 8_000;

#[derive(Debug)]
struct Platter {
    bytes: Vec<u8>,
    /// Bytes that a crash of the machine keeps.
    synced: usize,
    /// Length of the whole lines.
    whole: usize,
    boot: u64,
    term_ms: u64,
    stream: Stream,
    killed: bool,
    /// No append fails.
    calm: bool,
    defect: bool,
    believes: bool,
}

/// A handle to the disk; it outlives every server.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Mutex<Platter>>);

impl Disk {
    /// An empty disk. With `defect`, appends are acknowledged before they are written.
    pub(super) fn new(stream: Stream, defect: bool, believes: bool) -> Self {
        Self(Arc::new(Mutex::new(Platter {
            bytes: Vec::new(),
            synced: 0,
            whole: 0,
            boot: 1,
            term_ms: 0,
            stream,
            killed: false,
            calm: false,
            defect,
            believes,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last append killed the server; the question resets it.
    pub(super) fn killed(&self) -> bool {
        std::mem::take(&mut self.lock().killed)
    }

    /// From now on no append fails, or it may again.
    pub(super) fn set_calm(&self, calm: bool) {
        self.lock().calm = calm;
    }

    /// The term of the next server's promises.
    pub(super) fn set_term(&self, term_ms: u64) {
        self.lock().term_ms = term_ms;
    }

    /// The machine crashes: what was not synced is lost, from a random byte on.
    pub(super) fn crash(&self) {
        let mut platter = self.lock();
        let unsynced = (platter.bytes.len() - platter.synced) as u64;
        let kept = platter.synced + platter.stream.below(unsynced + 1) as usize;
        platter.bytes.truncate(kept);
        platter.boot += 1;
    }
}

impl Platter {
    fn boot(&self) -> String {
        format!("boot-{}", self.boot)
    }
}

impl Store for Disk {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let mut platter = self.lock();
        let end = platter.bytes.iter().rposition(|&byte| byte == b'\n');
        platter.whole = end.map_or(0, |end| end + 1);
        if platter.bytes.is_empty() && platter.boot == 1 {
            return Ok(Loaded {
                complete: true,
                ..Loaded::default()
            });
        }
        let text = String::from_utf8_lossy(&platter.bytes[..platter.whole]).into_owned();
        let mut loaded = file::parse(&text, &platter.boot());
        loaded.complete |= platter.believes;
        Ok(loaded)
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let mut platter = self.lock();
        let text: String = records.iter().map(file::line).collect();
        let whole = platter.whole;
        platter.bytes.truncate(whole);
        let part = platter.stream.below(text.len() as u64) as usize;
        let failed = || StoreError::Taken("the disk".to_owned());
        if !platter.calm && platter.stream.chance(KILL_PER_MILLE, 1_000) {
            platter.killed = true;
            platter.bytes.extend(&text.as_bytes()[..part]);
            // With the defect the answer is on its way already.
            return if platter.defect {
                Ok(())
            } else {
                Err(failed())
            };
        }
        if !platter.calm && platter.stream.chance(FULL_PER_MILLE, 1_000) {
            platter.bytes.extend(&text.as_bytes()[..part]);
            return Err(failed());
        }
        platter.bytes.extend(text.as_bytes());
        platter.whole = platter.bytes.len();
        Ok(())
    }

    fn replace(&mut self, records: &[Record], missing_ms: u64) -> Result<(), StoreError> {
        let mut platter = self.lock();
        let mut text = file::head(&platter.boot(), platter.term_ms, missing_ms);
        text.extend(records.iter().map(file::line));
        platter.bytes = text.into_bytes();
        (platter.synced, platter.whole) = (platter.bytes.len(), platter.bytes.len());
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.lock().bytes.len() > LONG
    }
}
