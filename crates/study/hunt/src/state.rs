//! The state of a hunt on disk: a journal of its experiments, one JSON line each.
//!
//! Nothing else needs to be kept: everything a hunt decides follows from its seed and from results, so a hunt that is
//! started again with the journal repeats its decisions without running anything until it is where it was. The first
//! line says which build wrote it for which hunt, since another build may decide otherwise; the second holds the
//! bounds that the benchmarks gave. A last line cut short by a kill or a full disk is dropped, damage elsewhere is an
//! error. Limits: one writer at a time, kept by a lock on the file, where the file system has locks.

use crate::HuntError;
use crate::bench::Experiment;
use crate::bounds::Bounds;
use crate::experiment::Measured;
use crate::latency::Baseline;
use crate::victim::Alone;
use isolane_common_journal as lines;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// File name within the directory of a hunt.
pub const JOURNAL_NAME: &str = "hunt.jsonl";
/// Raised when the journal or the result changes its meaning.
pub const HUNT_VERSION: u32 = 2;
const KIND: &str = "isolane hunt journal";

/// Which hunt a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    kind: String,
    /// [`HUNT_VERSION`].
    version: u32,
    /// Which build of the program.
    build: String,
    /// The options that decide what is measured, and in which order.
    settings: String,
}

impl Header {
    /// Of the hunt that `settings` describes, by this `build`.
    pub fn new(build: &str, settings: &str) -> Self {
        Self {
            kind: KIND.to_owned(),
            version: HUNT_VERSION,
            build: build.to_owned(),
            settings: settings.to_owned(),
        }
    }

    /// Whether the journal in `directory` is of a hunt with these settings, by any build.
    pub fn describes(&self, directory: &Path) -> bool {
        let Ok(file) = File::open(directory.join(JOURNAL_NAME)) else {
            return false;
        };
        let mut line = String::new();
        let most = 1 << 20;
        let read = BufReader::new(file.take(most)).read_line(&mut line);
        read.is_ok()
            && serde_json::from_str::<Self>(&line).is_ok_and(|it| it.settings == self.settings)
    }
}

/// What the benchmarks gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Upper bounds; absent where a victim counts.
    pub bounds: Option<Bounds>,
    /// What latencies are held against, where they count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Baseline>,
    /// What the victim does alone, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Alone>,
    /// The counters of the target.
    pub counters: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    experiment: Experiment,
    measured: Measured,
}

/// What a journal holds.
#[derive(Debug, Default, PartialEq)]
pub struct Known {
    /// Absent where the hunt ended before it began to search.
    pub start: Option<Start>,
    /// Results.
    pub experiments: BTreeMap<Experiment, Measured>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: lines::Journal,
    path: PathBuf,
}

impl Journal {
    /// Starts a journal in `directory`, which holds none. Fails if one is there, or the file cannot be written.
    pub fn create(directory: &Path, header: &Header) -> Result<Self, HuntError> {
        let path = directory.join(JOURNAL_NAME);
        let file = lines::Journal::create_new(&path).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => HuntError::Exists { path: path.clone() },
            _ => write_error(&path, source),
        })?;
        let mut journal = Self { file, path };
        journal.lock()?;
        journal.line(header)?;
        Ok(journal)
    }

    /// Opens the journal in `directory` to go on with it. Fails if there is none, it belongs to another hunt or another
    /// build, or it is damaged.
    pub fn resume(directory: &Path, header: &Header) -> Result<(Self, Known), HuntError> {
        let path = directory.join(JOURNAL_NAME);
        let (file, lines) = lines::Journal::open(&path).map_err(|source| HuntError::Read {
            path: path.clone(),
            source,
        })?;
        let mut journal = Self { file, path };
        journal.lock()?;
        if lines.is_empty() {
            journal.line(header)?;
            return Ok((journal, Known::default()));
        }
        let known = parse(&journal.path, &lines, header)?;
        Ok((journal, known))
    }

    fn lock(&self) -> Result<(), HuntError> {
        self.file.lock().map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => HuntError::Busy {
                path: self.path.clone(),
            },
            _ => write_error(&self.path, source),
        })
    }

    /// Writes what the benchmarks gave. Fails if the file cannot be written.
    pub fn begin(&mut self, start: &Start) -> Result<(), HuntError> {
        self.line(start)
    }

    pub(crate) fn record(
        &mut self,
        experiment: &Experiment,
        measured: &Measured,
    ) -> Result<(), HuntError> {
        self.line(&Line {
            experiment: experiment.clone(),
            measured: measured.clone(),
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), HuntError> {
        let mut text = serde_json::to_vec(value).expect("journal lines are plain data");
        text.push(b'\n');
        self.file
            .append(&text)
            .map_err(|source| write_error(&self.path, source))
    }
}

fn write_error(path: &Path, source: std::io::Error) -> HuntError {
    HuntError::Write {
        path: path.to_owned(),
        source,
    }
}

fn parse(path: &Path, bytes: &[u8], ours: &Header) -> Result<Known, HuntError> {
    let damaged = |line: usize| HuntError::Damaged {
        path: path.to_owned(),
        line,
    };
    let mut lines = bytes.split(|&byte| byte == b'\n').enumerate();
    let first = lines.next().map_or(&[][..], |(_, line)| line);
    let header: Header = serde_json::from_slice(first).map_err(|_| damaged(1))?;
    if header.kind != ours.kind {
        return Err(damaged(1));
    }
    if (header.version, &header.build) != (ours.version, &ours.build) {
        let shown =
            |header: &Header| format!("version {} (build {})", header.version, header.build);
        return Err(HuntError::OtherVersion {
            path: path.to_owned(),
            found: shown(&header),
            ours: shown(ours),
        });
    }
    if header.settings != ours.settings {
        return Err(HuntError::OtherHunt {
            path: path.to_owned(),
            found: header.settings,
            ours: ours.settings.clone(),
        });
    }
    let mut known = Known::default();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        if index == 1 {
            known.start = Some(serde_json::from_slice(line).map_err(|_| damaged(2))?);
            continue;
        }
        let line: Line = serde_json::from_slice(line).map_err(|_| damaged(index + 1))?;
        known.experiments.insert(line.experiment, line.measured);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::plain;

    fn header() -> Header {
        Header::new("b1", "--seed 1")
    }

    fn start() -> Start {
        Start {
            bounds: Some(Bounds {
                link_gbps: 100.0,
                packets_per_s: 1e8 / 3.0,
                services: vec![None],
            }),
            latency: None,
            alone: None,
            counters: vec!["c".to_owned()],
        }
    }

    fn measured(value: f64) -> Measured {
        Measured {
            messages_per_s: value,
            counters: BTreeMap::from([("c".to_owned(), value / 7.0)]),
            ..Measured::default()
        }
    }

    fn written(directory: &Path) -> PathBuf {
        let mut journal = Journal::create(directory, &header()).unwrap();
        journal.begin(&start()).unwrap();
        for repeat in 0..3 {
            journal
                .record(&(plain(), repeat), &measured(f64::from(repeat) + 0.1))
                .unwrap();
        }
        directory.join(JOURNAL_NAME)
    }

    #[test]
    fn a_journal_gives_back_what_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        written(directory.path());
        let (_, known) = Journal::resume(directory.path(), &header()).unwrap();
        assert_eq!(known.start, Some(start()));
        assert_eq!(known.experiments.len(), 3);
        assert_eq!(known.experiments[&(plain(), 2)], measured(2.1));
    }

    #[test]
    fn a_cut_anywhere_costs_the_last_line_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = written(directory.path());
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, known) = Journal::resume(directory.path(), &header()).unwrap();
            let lines = whole[..length]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            assert_eq!(
                known.experiments.len(),
                lines.saturating_sub(2),
                "cut at {length}"
            );
            if known.start.is_none() {
                journal.begin(&start()).unwrap();
            }
            journal.record(&(plain(), 9), &measured(9.0)).unwrap();
            drop(journal);
            let (_, again) = Journal::resume(directory.path(), &header()).unwrap();
            assert_eq!(
                again.experiments.len(),
                known.experiments.len() + 1,
                "cut at {length}"
            );
        }
    }

    #[test]
    fn other_builds_hunts_and_writers_are_refused_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = written(directory.path());
        let refused = |header: &Header| {
            Journal::resume(directory.path(), header)
                .unwrap_err()
                .to_string()
        };
        let other = refused(&Header::new("b2", "--seed 1"));
        assert!(
            other.contains("build b1") && other.contains("build b2"),
            "{other}"
        );
        let other = refused(&Header::new("b1", "--seed 2"));
        assert!(
            other.contains("--seed 1") && other.contains("--report"),
            "{other}"
        );
        let exists = Journal::create(directory.path(), &header())
            .unwrap_err()
            .to_string();
        assert!(exists.contains("--resume"), "{exists}");
        let (_held, _) = Journal::resume(directory.path(), &header()).unwrap();
        assert!(refused(&header()).contains("another hunt"));
        drop(_held);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("{\"experiment\"", "experiment", 1)).unwrap();
        assert!(refused(&header()).contains("line 3"));
    }
}
