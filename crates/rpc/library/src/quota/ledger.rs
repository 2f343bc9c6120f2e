//! The book with its store: promises are stored before they are given, and no request waits for a write while it holds
//! the book's lock.
//!
//! Problem: a remote store can take any time for a write. If the book were locked meanwhile, one slow etcd would make
//! every client wait for all earlier ones. Method: a request changes the book under its lock and adds its records to a
//! queue. A request that finds no active writer writes the whole queue at once; the others wait for the write with
//! their records. An answer therefore waits for at most two writes, for any number of clients, and a request without
//! records waits for none. If a write fails, the promise is not given; the book then counts an unused promise for a
//! term. Limits: operators' changes of terms wait for each other.

use super::book::{Book, BookError, Step};
use super::outage::Outage;
use super::protocol::{Answer, Request};
use super::settings::Settings;
use super::store::{Record, Store, StoreError};
use isolane_common_quantities::units::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A book with its store.
pub struct Ledger {
    book: Mutex<Book>,
    /// Held during a change of terms.
    changes: Mutex<()>,
    queue: Mutex<Queue>,
    written: Condvar,
    store: Mutex<Box<dyn Store>>,
    /// The longest term of promises that may be missing now, ms, and whether the store still says that some are.
    missing_ms: AtomicU64,
    marked: AtomicBool,
    log: Mutex<Log>,
}

/// Outages of the store, with their lines that are not printed yet.
struct Log {
    append: Outage,
    replace: Outage,
    lines: Vec<String>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            append: Outage::new("the store can be written again"),
            replace: Outage::new("the store can be compacted again"),
            lines: Vec::new(),
        }
    }
}

/// The records to store.
#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    batch: Arc<Batch>,
    writing: bool,
}

/// Result of a batch of records: the reason if the write failed.
#[derive(Default)]
struct Batch(OnceLock<Result<(), String>>);

/// An active writer. If it ends early, its batch has failed.
struct Writer<'a> {
    ledger: &'a Ledger,
    batch: Arc<Batch>,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // Set unless the write panicked.
        let _ = self.batch.0.set(Err("a defect of the store".to_owned()));
        lock(&self.ledger.queue).writing = false;
        self.ledger.written.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Reads the stored records. Fails if the store cannot be read, or the file's guarantees exceed the capacity.
    pub fn open(
        settings: &Settings,
        mut store: Box<dyn Store>,
        now: Instant,
    ) -> Result<Self, BookError> {
        let loaded = store.load()?;
        let book = Book::open(settings, &loaded, now)?;
        let missing_ms = book.missing_ms(now);
        store.replace(&book.records(), missing_ms)?;
        Ok(Self {
            missing_ms: AtomicU64::new(missing_ms),
            marked: AtomicBool::new(missing_ms > 0),
            book: Mutex::new(book),
            changes: Mutex::default(),
            queue: Mutex::default(),
            written: Condvar::new(),
            store: Mutex::new(store),
            log: Mutex::default(),
        })
    }

    /// Takes the lines for the server's log: when the store began to fail, and when it ended.
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.log).lines)
    }

    /// Answers a request at `now`.
    pub fn answer(&self, now: Instant, request: Request) -> Answer {
        let terms = match &request {
            Request::Set(terms) => Some((terms.clone(), lock(&self.changes))),
            _ => None,
        };
        let mut book = lock(&self.book);
        self.missing_ms.store(book.missing_ms(now), Relaxed);
        let step = book.begin(now, request);
        let (answer, batch) = match step {
            Err(error) => return Answer::Error(error.to_string()),
            Ok(Step::Done(answer)) => return answer,
            // In the order of the book's changes.
            Ok(Step::Write { answer, records }) => (answer, self.enqueue(records)),
        };
        drop(book);
        let written = self.wait_for(now, &batch);
        let done = match (written, terms) {
            (Ok(()), Some((terms, _changes))) => {
                let set = lock(&self.book).set(&terms);
                set.map_err(|error| error.to_string())
            }
            (Err(reason), Some((_, _changes))) => {
                // The writer did that, unless it panicked.
                lock(&self.book).forget();
                Err(reason)
            }
            (written, None) => written,
        };
        done.map_or_else(Answer::Error, |()| answer)
    }

    fn enqueue(&self, records: Vec<Record>) -> Arc<Batch> {
        let mut queue = lock(&self.queue);
        queue.records.extend(records);
        Arc::clone(&queue.batch)
    }

    fn wait_for(&self, now: Instant, batch: &Arc<Batch>) -> Result<(), String> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(result) = batch.0.get() {
                return result.clone();
            }
            if queue.writing {
                let waited = self.written.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.writing = true;
            let records = std::mem::take(&mut queue.records);
            let writer = Writer {
                ledger: self,
                batch: std::mem::take(&mut queue.batch),
            };
            drop(queue);
            let result = self.write(now, &records).map_err(|error| error.to_string());
            let first = writer.batch.0.set(result);
            first.expect("a batch is written once");
            drop(writer);
            queue = lock(&self.queue);
        }
    }

    fn write(&self, now: Instant, records: &[Record]) -> Result<(), StoreError> {
        let mut store = lock(&self.store);
        let written = self.append(store.as_mut(), records);
        self.note(
            now,
            |log| &mut log.append,
            &written,
            |error| format!("{error}; clients get no promises until it can be written"),
        );
        let has_change = records
            .iter()
            .any(|record| matches!(record, Record::Set(_)));
        if written.is_err() && has_change {
            // Before another write can settle or compact the store with it.
            lock(&self.book).forget();
        }
        written?;
        let missing_ms = self.missing_ms.load(Relaxed);
        let is_long = store.is_long();
        // From now on no promise is missing.
        let is_over = missing_ms == 0 && self.marked.load(Relaxed);
        if is_long || is_over {
            // Records queued meanwhile are included, and written again afterwards.
            let all = lock(&self.book).records();
            let replaced = store.replace(&all, missing_ms);
            self.note(
                now,
                |log| &mut log.replace,
                &replaced,
                |error| match is_over {
                    true => {
                        format!("{error}; a server that starts now promises nothing for one term")
                    }
                    false => format!("{error}; the store grows until it can be compacted"),
                },
            );
            // After a failure the mark stays in the store: another server then promises nothing for a term.
            self.marked.store(missing_ms > 0, Relaxed);
            // Clients report a failure. A change is stored, so its sender must not learn that it failed.
            if is_long && !has_change {
                replaced?;
            }
        }
        Ok(())
    }

    /// Adds the line, if any, about what a task of the store did at `now`.
    fn note(
        &self,
        now: Instant,
        task: fn(&mut Log) -> &mut Outage,
        result: &Result<(), StoreError>,
        line: impl FnOnce(&StoreError) -> String,
    ) {
        let mut log = lock(&self.log);
        let line = task(&mut log).ended(now, result.as_ref().err().map(line));
        log.lines.extend(line);
    }

    fn append(&self, store: &mut dyn Store, records: &[Record]) -> Result<(), StoreError> {
        if store.is_unsure() {
            let terms = lock(&self.book).changed();
            store.settle(&terms)?;
        }
        store.append(records)
    }
}

#[cfg(test)]
mod tests;
