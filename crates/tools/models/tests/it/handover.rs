//! Listeners handed over from an enforcer to its successor: no trapped call waits for ever.
//!
//! The kernel numbers the calls of a listener upwards. An enforcer receives a call, records it in the table that the
//! guardian keeps, and answers it later; it can be killed between any two steps, and the two words of a row are two
//! steps. Its successor answers the calls in [`open_calls`] of the row, the real function. Without an enforcer, the
//! guardian lets calls pass. The one exception is the documented one: the very first call of a listener, received and not
//! recorded. Limits: three calls, two deaths.

use crate::{counterexample, holds};
use isolane_rdma_enforcer::guardian::table::open_calls;
use stateright::{Model, Property};
use std::collections::BTreeSet;

const CALLS: usize = 3;
const DEATHS: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// An answer is recorded before it is sent.
    RecordedBeforeAnswered,
    /// The successor looks only at recorded calls.
    RecordedOnly,
}

struct Handover(Defect);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    /// Trapped, and not received.
    Waits,
    /// An enforcer received it.
    Taken,
    /// It went on.
    Done,
}

/// What an enforcer still has to do before it looks at calls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Ready,
    WriteOldest,
    WriteLatest,
    /// Only with a defect: answer a call that was recorded as answered.
    Answer(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Enforcer {
    taken: BTreeSet<usize>,
    latest: Option<usize>,
    step: Step,
    then: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    calls: Vec<Call>,
    enforcer: Option<Enforcer>,
    /// Oldest and latest number, each plus one, as in the table.
    row: (u64, u64),
    deaths: u8,
    /// Calls that were received before the first record of the listener, and not recorded.
    unrecorded: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Trap,
    Receive,
    Answer(usize),
    Step,
    Kill,
    Connect,
    Pass,
}

impl Model for Handover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            calls: Vec::new(),
            enforcer: None,
            row: (0, 0),
            deaths: 0,
            unrecorded: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.calls.len() < CALLS {
            actions.push(Action::Trap);
        }
        let waits = state.calls.contains(&Call::Waits);
        let Some(enforcer) = &state.enforcer else {
            actions.push(Action::Connect);
            if waits {
                actions.push(Action::Pass);
            }
            return;
        };
        match enforcer.step {
            Step::Ready => {
                if waits {
                    actions.push(Action::Receive);
                }
                actions.extend(enforcer.taken.iter().map(|&call| Action::Answer(call)));
            }
            _ => actions.push(Action::Step),
        }
        if state.deaths < DEATHS {
            actions.push(Action::Kill);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Trap => state.calls.push(Call::Waits),
            Action::Pass => {
                let first = state.first_waiting();
                state.calls[first] = Call::Done;
            }
            Action::Connect => state.connect(self.0),
            Action::Kill => {
                if state.row.1 == 0 {
                    let taken = state.calls.iter().enumerate();
                    let taken = taken.filter(|(_, call)| **call == Call::Taken);
                    state.unrecorded.extend(taken.map(|(number, _)| number));
                }
                state.enforcer = None;
                state.deaths += 1;
            }
            Action::Receive => {
                let first = state.first_waiting();
                state.calls[first] = Call::Taken;
                let enforcer = state.enforcer.as_mut()?;
                enforcer.taken.insert(first);
                enforcer.latest = Some(first);
                (enforcer.step, enforcer.then) = (Step::WriteOldest, Step::Ready);
            }
            Action::Answer(call) => state.answer(call, self.0)?,
            Action::Step => state.step()?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no call is forgotten", |model: &Self, state: &State| {
                let known = |call: usize| match &state.enforcer {
                    Some(enforcer) => {
                        enforcer.taken.contains(&call) || enforcer.step == Step::Answer(call)
                    }
                    None => {
                        model.0 == Defect::RecordedOnly
                            || state.range(model.0).contains(&(call as u64))
                    }
                };
                let taken = state
                    .calls
                    .iter()
                    .enumerate()
                    .filter(|(_, call)| **call == Call::Taken);
                let mut taken = taken.filter(|(number, _)| !state.unrecorded.contains(number));
                taken.all(|(number, _)| known(number))
            }),
            Property::sometimes("a successor answers", |_, state: &State| {
                state.deaths == 2 && state.calls == [Call::Done; CALLS]
            }),
        ]
    }
}

impl State {
    fn first_waiting(&self) -> usize {
        let waits = self.calls.iter().position(|call| *call == Call::Waits);
        waits.expect("a call waits")
    }

    fn range(&self, defect: Defect) -> std::ops::Range<u64> {
        let range = open_calls(self.row.0, self.row.1);
        match defect {
            Defect::RecordedOnly => range.start..self.row.1,
            _ => range,
        }
    }

    fn connect(&mut self, defect: Defect) {
        let range = self.range(defect);
        for (number, call) in self.calls.iter_mut().enumerate() {
            if *call == Call::Taken && range.contains(&(number as u64)) {
                *call = Call::Done;
            }
        }
        // The row keeps its latest number.
        self.row.0 = 0;
        self.enforcer = Some(Enforcer {
            taken: BTreeSet::new(),
            latest: None,
            step: Step::Ready,
            then: Step::Ready,
        });
    }

    fn answer(&mut self, call: usize, defect: Defect) -> Option<()> {
        let enforcer = self.enforcer.as_mut()?;
        enforcer.taken.remove(&call);
        enforcer.step = Step::WriteOldest;
        match defect {
            Defect::RecordedBeforeAnswered => enforcer.then = Step::Answer(call),
            _ => {
                self.calls[call] = Call::Done;
                enforcer.then = Step::Ready;
            }
        }
        Some(())
    }

    fn step(&mut self) -> Option<()> {
        let enforcer = self.enforcer.as_mut()?;
        enforcer.step = match enforcer.step {
            Step::WriteOldest => {
                let oldest = enforcer.taken.first();
                self.row.0 = oldest.map_or(0, |call| *call as u64 + 1);
                Step::WriteLatest
            }
            Step::WriteLatest => {
                let latest = enforcer.latest.map_or(0, |call| call as u64 + 1);
                self.row.1 = self.row.1.max(latest);
                enforcer.then
            }
            Step::Answer(call) => {
                self.calls[call] = Call::Done;
                Step::Ready
            }
            Step::Ready => return None,
        };
        Some(())
    }
}

#[test]
fn no_trapped_call_waits_for_ever() {
    assert!(holds(Handover(Defect::None)) > 500);
}

#[test]
fn an_answer_that_is_recorded_early_and_a_successor_that_looks_at_too_few_calls_are_found() {
    for defect in [Defect::RecordedBeforeAnswered, Defect::RecordedOnly] {
        let actions = counterexample(Handover(defect), "no call is forgotten");
        assert!(actions.contains(&"Kill".to_owned()));
    }
}
