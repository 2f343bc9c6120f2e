//! Promises in a file: a journal that is compacted when it is long.
//!
//! Method: a [`Journal`] whose lines have checksums. Appends are not synced. A kill of the process loses nothing that
//! the kernel has; only a machine crash can. The journal's first line therefore names the boot, and a journal of
//! another boot counts as incomplete: the server then promises nothing for one term, its own or the first line's,
//! whichever is longer. A journal with an invalid terminated line counts as incomplete too. A server that is killed within
//! that term leaves a journal that is still incomplete: until its end the first line names no boot. Only the last line can
//! be half written, and its promise was never given. A lock on the directory excludes a second server. Units: milliseconds
//! for the term.

use super::{Loaded, Record, Store, StoreError};
use isolane_common_journal::Journal;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A longer journal is compacted, bytes.
const LONG: u64 = 4 << 20;

const JOURNAL: &str = "journal";

/// In the place of a boot: promises may be missing, whatever the boot. No boot has this name.
const NO_BOOT: &str = "-";

/// A directory with a journal.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    boot: String,
    /// The term of new promises, ms.
    term_ms: u64,
    _lock: File,
    journal: Option<Journal>,
    limit: u64,
}

/// Opens the lock file, never the target of a symbolic link in its place.
fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

impl FileStore {
    /// Opens the journal in `folder`, creating it if needed, for leases of `term_ms`. Fails if the directory cannot be
    /// made, or another server uses it.
    pub fn open(folder: &Path, term_ms: u64) -> Result<Self, StoreError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::with_boot(folder, boot.trim(), term_ms)
    }

    fn with_boot(folder: &Path, boot: &str, term_ms: u64) -> Result<Self, StoreError> {
        let failed = |error| failed(folder, error);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let lock = open_lock(&folder.join("lock")).map_err(failed)?;
        let taken = |_| StoreError::Taken(folder.display().to_string());
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(taken)?;
        Ok(Self {
            folder: folder.to_owned(),
            boot: boot.to_owned(),
            term_ms,
            _lock: lock,
            journal: None,
            limit: LONG,
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    fn rewrite(&mut self, records: &[Record], missing_ms: u64) -> io::Result<()> {
        let mut text = head(&self.boot, self.term_ms, missing_ms);
        text.extend(records.iter().map(line));
        // After a failure either file can have the name; the next append finds out.
        self.journal = None;
        self.journal = Some(Journal::replace(&self.path(), &text)?);
        self.limit = LONG.max(4 * text.len() as u64);
        Ok(())
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        match Journal::open(&self.path()) {
            // A byte that is not text makes its line invalid, not the whole file unreadable.
            Ok((_, lines)) => Ok(parse(&String::from_utf8_lossy(&lines), &self.boot)),
            // No promise was ever given.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Loaded {
                complete: true,
                ..Loaded::default()
            }),
            Err(error) => Err(failed(&self.path(), error)),
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let text: String = records.iter().map(line).collect();
        let path = self.path();
        let written = match &mut self.journal {
            Some(journal) => journal.append(text.as_bytes()),
            none => Journal::open(&path)
                .and_then(|(journal, _)| none.insert(journal).append(text.as_bytes())),
        };
        written.map_err(|error| failed(&path, error))
    }

    fn replace(&mut self, records: &[Record], missing_ms: u64) -> Result<(), StoreError> {
        let replaced = self.rewrite(records, missing_ms);
        if replaced.is_err() {
            // It is tried again when the journal is longer by that, not at each write.
            self.limit += LONG;
        }
        replaced.map_err(|error| failed(&self.path(), error))
    }

    fn is_long(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.bytes() > self.limit)
    }
}

fn failed(place: &Path, error: io::Error) -> StoreError {
    StoreError::File {
        place: place.display().to_string(),
        error,
    }
}

/// The first line of a journal for promises of `term_ms`, from which promises of up to `missing_ms` may be missing.
pub fn head(boot: &str, term_ms: u64, missing_ms: u64) -> String {
    match missing_ms {
        0 => format!("boot {boot} {term_ms}\n"),
        _ => format!("boot {NO_BOOT} {}\n", term_ms.max(missing_ms)),
    }
}

/// The line of a record, with its checksum and its end.
pub fn line(record: &Record) -> String {
    let json = serde_json::to_string(record).expect("records are plain data");
    format!("{:016x} {json}\n", checksum(&json))
}

/// FNV-1a, 64 bits: detects torn lines, not forgeries.
fn checksum(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The records of a journal's `text`, read in the boot `boot`. Damaged lines make it incomplete.
pub fn parse(text: &str, boot: &str) -> Loaded {
    let mut lines = text.split_inclusive('\n');
    let head = lines.next().and_then(|line| {
        let words = line.strip_suffix('\n')?.strip_prefix("boot ")?;
        let (boot, term_ms) = words.split_once(' ').unwrap_or((words, "0"));
        Some((boot, term_ms.parse::<u64>().ok()?))
    });
    let record = |line: &str| {
        let (sum, json) = line.strip_suffix('\n')?.split_once(' ')?;
        let sound = u64::from_str_radix(sum, 16) == Ok(checksum(json));
        sound.then(|| serde_json::from_str(json).ok())?
    };
    let lines: Vec<&str> = lines.collect();
    let records: Vec<Record> = lines.iter().map_while(|line| record(line)).collect();
    // A last line without an end was never promised; an invalid terminated line hides a promise.
    let whole = lines.iter().filter(|line| line.ends_with('\n')).count();
    let same_boot = !boot.is_empty() && head.is_some_and(|(known, _)| known == boot);
    Loaded {
        complete: same_boot && records.len() == whole,
        records,
        term_ms: head.map_or(0, |(_, term_ms)| term_ms),
    }
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
            term_ms: Some(3_000),
        }
    }

    #[test]
    fn a_journal_from_which_promises_are_missing_says_so_to_every_later_server() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "boot", 1_000).unwrap();
        store.load().unwrap();
        store.replace(&[grant(1)], 5_000).unwrap();
        store.append(&[grant(2)]).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.complete, loaded.term_ms), (false, 5_000));
        assert_eq!(loaded.records, [grant(1), grant(2)]);
        store.replace(&loaded.records, 0).unwrap();
        assert!(store.load().unwrap().complete);
    }

    /// Goal: a privileged server writes nothing elsewhere for a user who can write to its directory.
    #[test]
    fn a_symbolic_link_in_the_place_of_a_file_is_not_followed() {
        for name in ["lock", "journal", "journal.new"] {
            let folder = tempfile::tempdir().unwrap();
            let precious = folder.path().join("precious");
            std::fs::write(&precious, "data").unwrap();
            let store = folder.path().join("store");
            std::fs::create_dir(&store).unwrap();
            std::os::unix::fs::symlink(&precious, store.join(name)).unwrap();
            let opened = FileStore::with_boot(&store, "boot", 1_000);
            let used =
                opened.and_then(|mut store| store.load().and_then(|_| store.replace(&[], 0)));
            assert!(used.is_err(), "{name}");
            assert_eq!(
                std::fs::read_to_string(&precious).unwrap(),
                "data",
                "{name}"
            );
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_second_server_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "one", 3_000).unwrap();
        assert!(store.load().unwrap().complete, "nothing was ever promised");
        store.replace(&[grant(1)], 0).unwrap();
        store.append(&[grant(2), grant(3)]).unwrap();
        let second = FileStore::with_boot(folder.path(), "one", 3_000).unwrap_err();
        assert!(second.to_string().contains("another quota server"));
        drop(store);
        let mut store = FileStore::with_boot(folder.path(), "one", 3_000).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!(loaded.records, [grant(1), grant(2), grant(3)]);
        assert!(loaded.complete);
        store.replace(&[grant(3)], 0).unwrap();
        drop(store);
        let mut store = FileStore::with_boot(folder.path(), "two", 300).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.records, loaded.complete), (vec![grant(3)], false));
        assert_eq!(loaded.term_ms, 3_000, "the term of what may be missing");
    }

    #[test]
    fn a_half_line_that_another_follows_hides_a_promise() {
        let (torn, next) = (line(&grant(1)), line(&grant(2)));
        let text = format!("boot x 3000\n{}{next}", &torn[..30]);
        let loaded = parse(&text, "x");
        assert_eq!((loaded.records, loaded.complete), (Vec::new(), false));
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "one", 3_000).unwrap();
        store.replace(&[grant(1)], 0).unwrap();
        store.journal = Some(Journal::create(Path::new("/dev/full")).unwrap());
        let error = store.append(&[grant(2)]).unwrap_err().to_string();
        assert!(error.contains("journal"), "{error}");
        assert_eq!(store.load().unwrap().records, [grant(1)]);
    }

    /// Goal: after a replacement that failed, promises go to the file that the next server reads. Method: once the old
    /// file has the name, and once the new one.
    #[test]
    fn after_a_failed_replacement_the_file_with_the_name_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "one", 3_000).unwrap();
        store.replace(&[grant(1)], 0).unwrap();
        let beside = folder.path().join("journal.new");
        std::fs::create_dir(&beside).unwrap();
        store.replace(&[grant(2)], 0).unwrap_err();
        store.append(&[grant(3)]).unwrap();
        assert_eq!(store.load().unwrap().records, [grant(1), grant(3)]);
        store.replace(&[grant(2)], 0).unwrap_err();
        std::fs::write(store.path(), format!("boot one 3000\n{}", line(&grant(4)))).unwrap();
        std::fs::remove_dir(&beside).unwrap();
        store.append(&[grant(5)]).unwrap();
        assert_eq!(store.load().unwrap().records, [grant(4), grant(5)]);
    }

    #[test]
    fn a_byte_that_is_no_text_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::with_boot(folder.path(), "one", 3_000).unwrap();
        store.replace(&[grant(1), grant(2)], 0).unwrap();
        let mut bytes = std::fs::read(store.path()).unwrap();
        let last = bytes.len() - 10;
        bytes[last] = 0xff;
        std::fs::write(store.path(), bytes).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.records, loaded.complete), (vec![grant(1)], false));
    }

    proptest! {
        /// Cut anywhere: the result is a prefix of the written records, and at most the torn line is missing.
        #[test]
        fn a_torn_journal_is_read_to_the_tear(count in 0u64..20, cut in 0usize..100) {
            let records: Vec<Record> = (0..count).map(grant).collect();
            let text: String = records.iter().map(line).collect();
            let text = format!("boot x\n{text}");
            let kept = text.len().saturating_sub(cut).max(7);
            let loaded = parse(&text[..kept], "x");
            let whole = text[..kept].matches('\n').count() - 1;
            prop_assert_eq!(&loaded.records[..], &records[..whole]);
            prop_assert!(loaded.complete);
        }

        /// One wrong byte is detected anywhere except the end of the last line.
        #[test]
        fn a_wrong_byte_is_found(part in 0.0f64..1.0) {
            let records: Vec<Record> = (0..8).map(grant).collect();
            let text: String = records.iter().map(line).collect();
            let mut bytes = format!("boot x\n{text}").into_bytes();
            let at = 7 + ((bytes.len() - 8) as f64 * part) as usize;
            bytes[at] ^= 1;
            let loaded = parse(&String::from_utf8_lossy(&bytes), "x");
            prop_assert!(loaded.records.len() < 8 && records.starts_with(&loaded.records));
            prop_assert!(!loaded.complete);
        }
    }
}
