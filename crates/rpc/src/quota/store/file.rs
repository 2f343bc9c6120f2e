//! Promises in a file: a journal that is replaced by a short one when it is long.
//!
//! Method: each line has a checksum; a line that was half written when the process died ends the journal. A new journal is
//! written beside the old one, synced, and renamed over it. Appends are not synced, since a kill of the process loses
//! nothing that the kernel has: only a machine that goes down does, so the journal's first line names the boot, and a
//! journal of another boot counts as incomplete (the server then promises nothing for one term). A lock on the folder
//! keeps a second server out.

use super::{Loaded, Record, Store, StoreError};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A journal longer than this is replaced, bytes.
const LONG: u64 = 4 << 20;

const JOURNAL: &str = "journal";

/// A folder with a journal.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    boot: String,
    /// Holds the lock.
    _lock: File,
    journal: Option<File>,
    bytes: u64,
    limit: u64,
}

impl FileStore {
    /// In `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or another server has it.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::with_boot(folder, boot.trim())
    }

    fn with_boot(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let failed = |error| failed(folder, error);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        let taken = |_| StoreError::Taken(folder.display().to_string());
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(taken)?;
        Ok(Self {
            folder: folder.to_owned(),
            boot: boot.to_owned(),
            _lock: lock,
            journal: None,
            bytes: 0,
            limit: LONG,
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    fn rewrite(&mut self, records: &[Record]) -> io::Result<()> {
        let next = self.folder.join("journal.new");
        let mut file = File::create(&next)?;
        let mut text = format!("boot {}\n", self.boot);
        text.extend(records.iter().map(line));
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&next, self.path())?;
        File::open(&self.folder)?.sync_all()?;
        self.bytes = text.len() as u64;
        self.limit = LONG.max(4 * self.bytes);
        self.journal = Some(file);
        Ok(())
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        match std::fs::read_to_string(self.path()) {
            Ok(text) => Ok(read(&text, &self.boot)),
            // Nothing was ever promised.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Loaded {
                records: Vec::new(),
                complete: true,
            }),
            Err(error) => Err(failed(&self.path(), error)),
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let text: String = records.iter().map(line).collect();
        let journal = self.journal.as_mut().expect("replaced after loading");
        journal
            .write_all(text.as_bytes())
            .map_err(|error| failed(&self.folder.join(JOURNAL), error))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.rewrite(records)
            .map_err(|error| failed(&self.path(), error))
    }

    fn is_long(&self) -> bool {
        self.bytes > self.limit
    }
}

fn failed(place: &Path, error: io::Error) -> StoreError {
    StoreError::File {
        place: place.display().to_string(),
        error,
    }
}

fn line(record: &Record) -> String {
    let json = serde_json::to_string(record).expect("records are plain data");
    format!("{:016x} {json}\n", checksum(&json))
}

/// FNV-1a, 64 bits: finds torn lines, not forgeries.
fn checksum(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn read(text: &str, boot: &str) -> Loaded {
    let mut lines = text.split_inclusive('\n');
    let same_boot = !boot.is_empty() && lines.next() == Some(&format!("boot {boot}\n"));
    let record = |line: &str| {
        let (sum, json) = line.strip_suffix('\n')?.split_once(' ')?;
        let sound = u64::from_str_radix(sum, 16) == Ok(checksum(json));
        sound.then(|| serde_json::from_str(json).ok())?
    };
    let lines: Vec<&str> = lines.collect();
    let records: Vec<Record> = lines.iter().map_while(|line| record(line)).collect();
    // One torn line at the end was never promised; a wrong one before that hides what was.
    let complete = same_boot && records.len() + 1 >= lines.len();
    Loaded { records, complete }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(serial: u64) -> Record {
        Record::Grant {
            group: "g".to_owned(),
            class: "high".to_owned(),
            tenant: "t".to_owned(),
            client: "a \"client\"\n".to_owned(),
            serial,
            rate_bytes_per_s: 10 * serial,
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_second_server_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "one").unwrap();
        assert!(store.load().unwrap().complete, "nothing was ever promised");
        store.replace(&[grant(1)]).unwrap();
        store.append(&[grant(2), grant(3)]).unwrap();
        let second = FileStore::with_boot(folder.path(), "one").unwrap_err();
        assert!(second.to_string().contains("another quota server"));
        drop(store);
        let mut store = FileStore::with_boot(folder.path(), "one").unwrap();
        let loaded = store.load().unwrap();
        assert_eq!(loaded.records, [grant(1), grant(2), grant(3)]);
        assert!(loaded.complete);
        store.replace(&[grant(3)]).unwrap();
        drop(store);
        let mut store = FileStore::with_boot(folder.path(), "two").unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.records, loaded.complete), (vec![grant(3)], false));
    }

    proptest! {
        /// Cut anywhere: what is read is the beginning of what was written, and at most the torn line is missing.
        #[test]
        fn a_torn_journal_is_read_to_the_tear(count in 0u64..20, cut in 0usize..100) {
            let records: Vec<Record> = (0..count).map(grant).collect();
            let text: String = records.iter().map(line).collect();
            let text = format!("boot x\n{text}");
            let kept = text.len().saturating_sub(cut).max(7);
            let loaded = read(&text[..kept], "x");
            let whole = text[..kept].matches('\n').count() - 1;
            prop_assert_eq!(&loaded.records[..], &records[..whole]);
            prop_assert!(loaded.complete);
        }

        /// One wrong byte is found, wherever it is.
        #[test]
        fn a_wrong_byte_is_found(at in 7usize..300) {
            let records: Vec<Record> = (0..8).map(grant).collect();
            let text: String = records.iter().map(line).collect();
            let mut bytes = format!("boot x\n{text}").into_bytes();
            bytes[at] ^= 1;
            let loaded = read(&String::from_utf8_lossy(&bytes), "x");
            prop_assert!(loaded.records.len() < 8 && records.starts_with(&loaded.records));
            prop_assert!(!loaded.complete);
        }
    }
}
