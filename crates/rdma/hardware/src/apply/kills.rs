//! A kill between any two writes, of the device or of the journal, also within a line of the journal.
//!
//! Goal: whatever a kill leaves, the next command restores the state before, or makes its own. Method: a kill leaves what
//! was written until then and no more. So one run to its end shows every state that a kill can leave: its values and the
//! bytes of its journal at each step, and in between each part of a line. Each state is put on a fresh disk, where the
//! next command runs.
use super::tests::{Memory, open, plan, rollback, second};
use super::*;
use crate::record::Found;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "device.journal";

/// What a kill leaves: the values, and the journal's bytes if there is one.
type Picture = (BTreeMap<Target, Value>, Option<Vec<u8>>);

/// The states at the steps of a run.
#[derive(Clone, Debug)]
pub(super) struct Film {
    directory: PathBuf,
    pictures: Vec<Picture>,
}

impl Film {
    fn of(directory: &Path) -> Option<Self> {
        Some(Self {
            directory: directory.to_owned(),
            pictures: Vec::new(),
        })
    }

    pub(super) fn take(&mut self, values: &BTreeMap<Target, Value>) {
        let journal = fs::read(self.directory.join(FILE)).ok();
        self.pictures.push((values.clone(), journal));
    }
}

/// A device and its journal.
struct Disk {
    folder: tempfile::TempDir,
    backend: Memory,
}

impl Disk {
    fn new(backend: &Memory) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            backend: backend.clone(),
        }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("j")
    }

    /// Puts what a kill left here.
    fn develop(picture: &Picture, backend: &Memory) -> Self {
        let mut disk = Self::new(backend);
        disk.backend.values.clone_from(&picture.0);
        drop(open(&disk.directory()));
        let file = disk.directory().join(FILE);
        match &picture.1 {
            Some(bytes) => fs::write(file, bytes).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        disk
    }

    fn apply(&mut self, plan: &Plan) {
        let mut record = open(&self.directory());
        apply(&mut self.backend, &mut record, plan).unwrap();
    }

    fn rollback(&mut self) {
        let directory = self.directory();
        rollback(&mut self.backend, &directory);
        let found = Record::find(&directory, "device").unwrap();
        assert!(!matches!(found, Found::Record(_)), "the journal is void");
    }

    /// All states that a kill during `work` can leave, in order.
    fn kills(mut self, work: impl FnOnce(&mut Self)) -> Vec<Picture> {
        let directory = self.directory();
        self.backend.film = Film::of(&directory);
        let mut film = Film::of(&directory).unwrap();
        film.take(&self.backend.values);
        work(&mut self);
        film.pictures
            .extend(self.backend.film.take().unwrap().pictures);
        film.take(&self.backend.values);
        let mut all = vec![film.pictures[0].clone()];
        for pair in film.pictures.windows(2) {
            all.extend(between(&pair[0], &pair[1]));
            all.push(pair[1].clone());
        }
        all.dedup();
        all
    }
}

/// The states between two steps, at which either the values or the journal changed. A line of the journal is cut off
/// after its first byte, in its middle, and before its end.
fn between(before: &Picture, after: &Picture) -> Vec<Picture> {
    let bytes = |picture: &Picture| picture.1.clone().unwrap_or_default();
    let (old, new) = (bytes(before), bytes(after));
    if old == new || after.1.is_none() {
        return Vec::new();
    }
    assert_eq!(before.0, after.0, "one write at a time");
    assert!(new.starts_with(&old), "the journal is appended to");
    let mut all = vec![(before.0.clone(), Some(old.clone()))];
    let mut end = old.len();
    for line in new[old.len()..].split_inclusive(|byte| *byte == b'\n') {
        for cut in [1, line.len() / 2, line.len() - 1, line.len()] {
            all.push((before.0.clone(), Some(new[..end + cut].to_vec())));
        }
        end += line.len();
    }
    all
}

/// Runs each next command on each state; all must end as if there had been no kill.
fn check(pictures: &[Picture], backend: &Memory, [first, second]: [&Plan; 2]) {
    for (number, picture) in pictures.iter().enumerate() {
        let place = format!("state {number} of {}", pictures.len());
        let mut disk = Disk::develop(picture, backend);
        disk.rollback();
        assert_eq!(disk.backend.values, backend.values, "{place}");
        for next in [first, second] {
            let mut disk = Disk::develop(picture, backend);
            disk.apply(next);
            let compared = differences(&mut disk.backend, next).unwrap();
            assert!(compared.iter().all(|one| one.equal), "{place}");
            let planned = |target: &Target| next.settings.iter().any(|one| one.target == *target);
            for (target, value) in &disk.backend.values {
                let before = &backend.values[target];
                assert!(planned(target) || value == before, "{place}: {target}");
            }
            disk.rollback();
            assert_eq!(disk.backend.values, backend.values, "{place}, then apply");
        }
    }
}

#[test]
fn after_a_kill_between_any_two_writes_the_next_command_ends_as_without_it() {
    for host in ["switchdev.json", "legacy.json"] {
        let first = plan(host);
        let second = second(&first);
        let plans = [&first, &second];
        let backend = Memory::of(&first);
        let applied = || {
            let mut disk = Disk::new(&backend);
            disk.apply(&first);
            disk
        };
        let apply = Disk::new(&backend).kills(|disk| disk.apply(&first));
        let lines = 2 * first.settings.len() + 2;
        assert!(apply.len() > 4 * lines, "{}", apply.len());
        check(&apply, &backend, plans);
        let restoration = applied().kills(Disk::rollback);
        assert!(restoration.len() > 4 * first.settings.len());
        check(&restoration, &backend, plans);
        let change = applied().kills(|disk| disk.apply(&second));
        check(&change, &backend, plans);
    }
}

/// The check above finds a program that changes a value before the journal has its previous one, and one that removes
/// the journal too early.
#[test]
fn a_state_that_no_kill_may_leave_is_found() {
    let first = plan("legacy.json");
    let backend = Memory::of(&first);
    let apply = Disk::new(&backend).kills(|disk| disk.apply(&first));
    let last = apply.last().unwrap();
    let lines: Vec<&[u8]> = last
        .1
        .as_ref()
        .unwrap()
        .split_inclusive(|byte| *byte == b'\n')
        .collect();
    for broken in [None, Some(lines[0].to_vec())] {
        let mut disk = Disk::develop(&(last.0.clone(), broken), &backend);
        disk.rollback();
        assert_ne!(disk.backend.values, backend.values);
    }
}
