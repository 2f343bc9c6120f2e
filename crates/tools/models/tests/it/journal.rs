//! A journal of lines: what was appended is read after every kill, and a torn line harms no other.
//!
//! The file is a sequence of bytes: a record is its number, and a line ends with [`END`]. An append is two steps, the
//! removal of a torn line and the write; a kill can come before each step and can cut the write after its first byte; a
//! full disk cuts it too, and the program goes on. A replacement is written beside and renamed. Limits: three records, two
//! kills, one full disk.

use crate::{counterexample, holds};
use stateright::{Model, Property};

const END: u8 = b'\n';
const RECORDS: u8 = 3;
const KILLS: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// An append does not remove the torn line before it.
    KeepsTorn,
    /// A replacement truncates the journal and writes it in place.
    InPlace,
}

struct Journal(Defect);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    file: Vec<u8>,
    beside: Vec<u8>,
    /// The program's idea of the length of whole lines; none while it is dead.
    whole: Option<usize>,
    /// What it does.
    step: Step,
    next: u8,
    acknowledged: Vec<u8>,
    kills: u8,
    is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Ready,
    Write,
    WriteBeside,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Append,
    WriteAll,
    /// The first byte only, then the kill.
    WriteCut,
    /// The first byte only, then an error.
    DiskFull,
    Replace,
    Rename,
    Kill,
    Open,
}

/// Whole lines of a file that are records, in order; `Err` when a whole line is none.
fn read(file: &[u8]) -> Result<Vec<u8>, ()> {
    let whole = file
        .iter()
        .rposition(|byte| *byte == END)
        .map_or(0, |end| end + 1);
    let lines = file[..whole].split_inclusive(|byte| *byte == END);
    lines
        .map(|line| match line {
            [record, END] => Ok(*record),
            _ => Err(()),
        })
        .collect()
}

impl Model for Journal {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            file: Vec::new(),
            beside: Vec::new(),
            whole: Some(0),
            step: Step::Ready,
            next: 0,
            acknowledged: Vec::new(),
            kills: 0,
            is_full: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.whole.is_none() {
            actions.push(Action::Open);
            return;
        }
        let can_die = state.kills < KILLS;
        match state.step {
            Step::Ready => {
                actions.push(Action::Replace);
                if state.next < RECORDS {
                    actions.push(Action::Append);
                }
            }
            Step::Write => {
                actions.push(Action::WriteAll);
                if !state.is_full {
                    actions.push(Action::DiskFull);
                }
                if can_die {
                    actions.push(Action::WriteCut);
                }
            }
            Step::WriteBeside => actions.push(Action::Rename),
        }
        if can_die {
            actions.push(Action::Kill);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Append => {
                if self.0 != Defect::KeepsTorn {
                    state.file.truncate(state.whole?);
                }
                state.step = Step::Write;
            }
            Action::WriteAll => {
                state.file.extend([state.next, END]);
                state.whole = Some(state.file.len());
                state.acknowledged.push(state.next);
                (state.next, state.step) = (state.next + 1, Step::Ready);
            }
            Action::WriteCut | Action::DiskFull => {
                state.file.push(state.next);
                (state.next, state.step) = (state.next + 1, Step::Ready);
                match action {
                    Action::DiskFull => state.is_full = true,
                    _ => state.kill(),
                }
            }
            Action::Replace => {
                let lines: Vec<u8> = state.file[..state.whole?].to_vec();
                (state.beside, state.step) = (lines, Step::WriteBeside);
                if self.0 == Defect::InPlace {
                    state.file.clear();
                }
            }
            Action::Rename => {
                state.file = std::mem::take(&mut state.beside);
                (state.whole, state.step) = (Some(state.file.len()), Step::Ready);
            }
            Action::Kill => state.kill(),
            Action::Open => {
                let end = state.file.iter().rposition(|byte| *byte == END);
                state.whole = Some(end.map_or(0, |end| end + 1));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("every whole line is a record", |_, state: &State| {
                read(&state.file).is_ok()
            }),
            Property::always("what was acknowledged is read", |_, state: &State| {
                read(&state.file).map_or(true, |records| records == state.acknowledged)
            }),
            Property::sometimes("an append follows a torn line", |_, state: &State| {
                state.kills > 0 && state.acknowledged == [1]
            }),
        ]
    }
}

impl State {
    fn kill(&mut self) {
        (self.whole, self.step) = (None, Step::Ready);
        self.beside.clear();
        self.kills += 1;
    }
}

#[test]
fn appended_lines_survive_every_kill() {
    assert!(holds(Journal(Defect::None)) > 100);
}

#[test]
fn a_torn_line_that_stays_and_a_replacement_in_place_are_found() {
    let actions = counterexample(Journal(Defect::KeepsTorn), "every whole line is a record");
    assert!(actions.contains(&"WriteCut".to_owned()) || actions.contains(&"DiskFull".to_owned()));
    let actions = counterexample(Journal(Defect::InPlace), "what was acknowledged is read");
    assert!(actions.contains(&"Replace".to_owned()));
}
