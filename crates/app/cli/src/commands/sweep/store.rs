//! The output of a sweep, what is kept while it runs, and the merge of shards.
//!
//! While a sweep runs, `FILE.part` has a first line that says which sweep, then a line per finished point in the order in
//! which they finished. The last line may be cut off; it is done again.

use crate::inputs::bad;
use crate::output;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use isolane_common_journal::Journal;
use isolane_study_results::network::FabricResult;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Version of the JSON form; raised when a field changes meaning or goes.
pub(super) const DOCUMENT_VERSION: u32 = 1;

/// Numbers of missing points that a message lists.
const LISTED: usize = 5;

/// The output of a sweep or of a shard of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Document {
    /// [`DOCUMENT_VERSION`].
    pub(super) version: u32,
    /// The scenario's name.
    pub(super) scenario: String,
    /// What is varied, in the order given.
    pub(super) keys: Vec<String>,
    /// Equal for shards of one sweep.
    pub(super) digest: String,
    pub(super) points_total: u64,
    /// Which part this is; absent for the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shard: Option<String>,
    pub(super) points: Vec<PointResult>,
}

/// One point and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PointResult {
    /// Its number, from 0.
    pub(super) index: u64,
    /// Values of the keys.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) seed: u64,
    /// What came out.
    pub(super) result: FabricResult,
}

/// Points that are kept while a sweep runs.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    journal: Mutex<Journal>,
    points: Vec<PointResult>,
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Removes what was kept for `path`, which is complete now.
pub(super) fn forget(path: &Path) {
    // It is of no use any more, and harmless where it stays.
    let _ = fs::remove_file(part(path));
}

impl Kept {
    /// Goes on with what is kept for `path`, if it is of the same sweep.
    pub(super) fn open(path: &Path, document: &Document) -> Result<Self> {
        let mut points = read_whole(path, document)?;
        let part = part(path);
        let header = output::compact_json(document)?;
        let (journal, kept) = open_part(&part, &header)?;
        let mut known: BTreeSet<u64> = points.iter().map(|point| point.index).collect();
        points.extend(kept.into_iter().filter(|point| known.insert(point.index)));
        Ok(Self {
            path: part,
            journal: Mutex::new(journal),
            points,
        })
    }

    /// What was kept before.
    pub(super) fn points(&self) -> Vec<PointResult> {
        self.points.clone()
    }

    /// Keeps `point`.
    pub(super) fn keep(&self, point: &PointResult) -> Result<()> {
        let line = output::compact_json(point)?;
        let journal = self.journal.lock();
        let mut journal = journal.expect("no worker panics with the lock");
        journal
            .append(line.as_bytes())
            .with_context(|| format!("cannot write {}; free space", self.path.display()))
    }
}

/// The points of a finished file of the same sweep.
fn read_whole(path: &Path, document: &Document) -> Result<Vec<PointResult>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let known: Option<Document> = serde_json::from_str(&text).ok();
    match known {
        Some(known) if known.digest == document.digest && known.shard == document.shard => {
            Ok(known.points)
        }
        _ => bail!(bad(format!(
            "{} is there and is not of this sweep; move it away, or choose another --out",
            path.display()
        ))),
    }
}

/// The journal of the sweep that `header` describes, and the points in it.
fn open_part(path: &Path, header: &str) -> Result<(Journal, Vec<PointResult>)> {
    let name = path.display();
    let opened = match Journal::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = Journal::create_new(path);
            let made = made.with_context(|| format!("cannot write {name}; choose another place"));
            (made?, Vec::new())
        }
        opened => opened.with_context(|| format!("cannot read {name}"))?,
    };
    let (mut journal, lines) = opened;
    if lines.is_empty() {
        journal
            .append(header.as_bytes())
            .with_context(|| format!("cannot write {name}; free space"))?;
        return Ok((journal, Vec::new()));
    }
    let Some(lines) = lines.strip_prefix(header.as_bytes()) else {
        bail!(bad(format!(
            "{name} is of another sweep; move it away, or choose another --out"
        )));
    };
    let mut points = Vec::new();
    let mut length = header.len();
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let Ok(point) = serde_json::from_slice::<PointResult>(line) else {
            break;
        };
        length += line.len();
        points.push(point);
    }
    journal.cut(length as u64);
    Ok((journal, points))
}

/// The shards in `files` as one.
pub(super) fn merge(files: &[PathBuf]) -> Result<Document> {
    let mut whole: Option<(Document, &Path)> = None;
    for path in files {
        let name = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| bad(format!("cannot read {name}: {error}")))?;
        let one: Document = serde_json::from_str(&text)
            .map_err(|error| bad(format!("{name} is no sweep in JSON: {error}")))?;
        if one.version != DOCUMENT_VERSION {
            bail!(bad(format!(
                "{name} has version {} of the form, and this program reads {DOCUMENT_VERSION}",
                one.version
            )));
        }
        match &mut whole {
            None => whole = Some((one, path)),
            Some((whole, first)) if whole.digest == one.digest => {
                let known: BTreeSet<u64> = whole.points.iter().map(|point| point.index).collect();
                if let Some(twice) = one.points.iter().find(|point| known.contains(&point.index)) {
                    bail!(bad(format!(
                        "{name} has point {} as {} or another file has: give each shard once",
                        twice.index,
                        first.display()
                    )));
                }
                whole.points.extend(one.points);
            }
            Some((_, first)) => bail!(bad(format!(
                "{name} is of another sweep than {}: scenario, settings and seeds must be equal",
                first.display()
            ))),
        }
    }
    let (mut whole, _) = whole.ok_or_else(|| bad("--merge needs the shards' files"))?;
    whole.points.sort_by_key(|point| point.index);
    let missing: Vec<u64> = (0..whole.points_total)
        .filter(|index| {
            whole
                .points
                .binary_search_by_key(index, |point| point.index)
                .is_err()
        })
        .collect();
    if !missing.is_empty() {
        let shown: Vec<String> = missing.iter().take(LISTED).map(u64::to_string).collect();
        let dots = if missing.len() > LISTED { ", ..." } else { "" };
        bail!(bad(format!(
            "{} of {} missing ({}{dots}): a shard's file is not given",
            missing.len(),
            counted(whole.points_total, "point"),
            shown.join(", ")
        )));
    }
    whole.shard = None;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document {
            version: DOCUMENT_VERSION,
            scenario: "x".to_owned(),
            keys: Vec::new(),
            digest: "0".to_owned(),
            points_total: 2,
            shard: None,
            points: Vec::new(),
        }
    }

    #[test]
    fn a_cut_off_line_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        let kept = Kept::open(&path, &document()).unwrap();
        assert!(kept.points().is_empty());
        let part = part(&path);
        let mut text = fs::read_to_string(&part).unwrap();
        text.push_str("{\"index\":0,\"sett");
        fs::write(&part, &text).unwrap();
        let again = Kept::open(&path, &document()).unwrap();
        assert!(again.points().is_empty());
        again.journal.lock().unwrap().append(b"{}\n").unwrap();
        assert!(fs::read_to_string(&part).unwrap().ends_with("}\n{}\n"));
    }

    #[test]
    fn the_file_of_another_sweep_is_not_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        drop(Kept::open(&path, &document()).unwrap());
        let other = Document {
            digest: "1".to_owned(),
            ..document()
        };
        let error = Kept::open(&path, &other).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
        fs::write(&path, "{}").unwrap();
        let error = Kept::open(&path, &document()).unwrap_err().to_string();
        assert!(error.contains("not of this sweep"), "{error}");
    }

    #[test]
    fn a_merge_names_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        fs::write(&path, output::json(&document()).unwrap()).unwrap();
        let error = merge(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("2 of 2 points missing (0, 1)"), "{error}");
        fs::write(&path, "[]").unwrap();
        assert!(merge(&[path]).unwrap_err().to_string().contains("no sweep"));
    }
}
