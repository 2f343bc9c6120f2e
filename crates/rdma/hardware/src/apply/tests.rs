//! The fault injection: a program that ends at any step leaves a state that restoration turns into the one before.
use super::kills::Film;
use super::*;
use crate::compile::compile;
use crate::host::Host;
use crate::policy;
use crate::record::Found;
use crate::setting::{Classes, Rate, Renamable};
use isolane_common_linux::{HostError, Root};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Objects in memory. It fails at a step for good, as a killed program would see it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) values: BTreeMap<Target, Value>,
    /// Steps until the program is killed; a write has one before and one after its effect, and one in between where a
    /// driver has several numbers.
    left: Option<u32>,
    /// An object whose driver keeps another value than the written one.
    rounds: Option<Target>,
    /// An object whose writes are rejected.
    rejects: Option<Target>,
    /// The name of every device, where it is another than the plan's; an empty one of devices that are gone.
    renamed: Option<String>,
    /// Records what a kill at each step would leave.
    pub(super) film: Option<Film>,
}

impl Memory {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut values = BTreeMap::new();
        for setting in &plan.settings {
            let value = match &setting.target {
                Target::RateNode { .. } => Value::Absent,
                Target::RateLeaf { .. } => Value::Rate(Rate {
                    share_bps: 0,
                    max_bps: 7_000_000,
                    parent: None,
                }),
                Target::FunctionRate { .. } => Value::FunctionRate {
                    share_mbps: 5,
                    max_mbps: 0,
                },
                Target::Classes { .. } => Value::Classes(Classes::default()),
                Target::Dscp { .. } => Value::Dscp {
                    priorities: vec![1, 2],
                },
                Target::FlowControl { .. } => Value::FlowControl { enabled: 0x10 },
                Target::Buffers { .. } => Value::Buffers {
                    buffer_of_priority: [0; 8],
                    sizes_bytes: [262_016, 0, 0, 0, 0, 0, 0, 0],
                },
                Target::Objects { .. } => Value::Objects {
                    handles_max: None,
                    objects_max: Some(9),
                },
            };
            values.insert(setting.target.clone(), value);
        }
        Self {
            values,
            left: None,
            rounds: None,
            rejects: None,
            renamed: None,
            film: None,
        }
    }

    fn step(&mut self) -> Result<(), HostError> {
        if let Some(film) = &mut self.film {
            film.take(&self.values);
        }
        match &mut self.left {
            Some(0) => Err(killed()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn members(&self, node: &str) -> bool {
        let is_member = |value: &Value| matches!(value, Value::Rate(rate) if rate.parent.as_deref() == Some(node));
        self.values.values().any(is_member)
    }
}

fn killed() -> HostError {
    rejected("killed")
}

fn rejected(words: &str) -> HostError {
    HostError::Kernel {
        action: "write".to_owned(),
        source: io::Error::other(words.to_owned()),
    }
}

impl Backend for Memory {
    fn read(&mut self, target: &Target) -> Result<Value, HostError> {
        self.step()?;
        Ok(self.values.get(target).cloned().unwrap_or(Value::Absent))
    }

    fn number(&mut self, _device: Renamable<'_>) -> Result<Option<u64>, HostError> {
        Ok(Some(7))
    }

    fn name(&mut self, device: Renamable<'_>, number: u64) -> Result<Option<String>, HostError> {
        let renamed = self.renamed.clone();
        let name = renamed.unwrap_or_else(|| device.name().to_owned());
        Ok(Some(name).filter(|name| number == 7 && !name.is_empty()))
    }

    fn write(&mut self, target: &Target, value: &Value) -> Result<(), HostError> {
        self.step()?;
        if self.rejects.as_ref() == Some(target) {
            return Err(rejected("rejected"));
        }
        // The rules of the kernel's tree: a parent exists, a group with members stays.
        if let (Target::RateNode { node, .. }, Value::Absent) = (target, value) {
            assert!(!self.members(node), "{node} has members");
        }
        if let Value::Rate(Rate {
            parent: Some(parent),
            ..
        }) = value
        {
            let exists = |(other, value): (&Target, &Value)| {
                matches!(other, Target::RateNode { node, .. } if node == parent)
                    && *value != Value::Absent
            };
            assert!(self.values.iter().any(exists), "{parent} does not exist");
        }
        let half = match (value, &self.values[target]) {
            (Value::Rate(new), Value::Rate(old)) => Some(Value::Rate(Rate {
                share_bps: new.share_bps,
                ..old.clone()
            })),
            (Value::Dscp { .. }, Value::Dscp { .. }) => Some(Value::Dscp {
                priorities: Vec::new(),
            }),
            _ => None,
        };
        if let Some(half) = half {
            self.values.insert(target.clone(), half);
            self.step()?;
        }
        let kept = match self.rounds.as_ref() == Some(target) {
            true => self.values[target].clone(),
            false => value.clone(),
        };
        self.values.insert(target.clone(), kept);
        self.step()
    }
}

pub(super) fn plan(host: &str) -> Plan {
    let files = Root::at(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/hardware"
    ));
    let policy = policy::parse("policy.toml", &files.read("policy.toml").unwrap()).unwrap();
    let host = Host::parse(&files.read(host).unwrap()).unwrap();
    compile(&policy, &host).unwrap()
}

/// A plan of other settings: the last ones of the first, and another rate.
pub(super) fn second(first: &Plan) -> Plan {
    let mut plan = first.clone();
    plan.settings.drain(..4);
    plan
}

pub(super) fn open(directory: &Path) -> Record {
    Record::open_or_make(directory, "device").unwrap()
}

/// Restores as `isolane rdma rollback` does; returns whether there was a journal.
pub(super) fn rollback(backend: &mut Memory, directory: &Path) -> bool {
    match Record::find(directory, "device").unwrap() {
        Found::Record(mut record) => {
            let done = restore(backend, &mut record, Foreign::Leave).unwrap();
            assert!(done.foreign.is_empty(), "{:?}", done.foreign);
            // A kill may come between the last line of the journal and its removal.
            backend.step().unwrap();
            record.remove().unwrap();
            true
        }
        _ => false,
    }
}

/// Steps that `work` takes.
fn steps(backend: &Memory, work: impl FnOnce(&mut Memory)) -> u32 {
    let mut counted = backend.clone();
    counted.left = Some(u32::MAX);
    work(&mut counted);
    u32::MAX - counted.left.unwrap()
}

#[test]
fn after_a_kill_at_any_step_restoration_gives_the_state_before() {
    for host in ["switchdev.json", "legacy.json"] {
        let plan = plan(host);
        let before = Memory::of(&plan);
        let all = steps(&before, |backend| {
            let directory = tempfile::tempdir().unwrap();
            apply(backend, &mut open(&directory.path().join("j")), &plan).unwrap();
        });
        assert!(all > 3 * plan.settings.len() as u32, "{all}");
        for kill in 0..=all {
            let folder = tempfile::tempdir().unwrap();
            let directory = folder.path().join("j");
            let mut backend = before.clone();
            backend.left = Some(kill);
            let applied = apply(&mut backend, &mut open(&directory), &plan);
            assert_eq!(
                applied.is_ok(),
                kill == all,
                "killed at step {kill} of {all}"
            );
            // The restoration is killed as well, at each of its steps.
            let in_between = backend.clone();
            let mut again = 0;
            loop {
                backend.left = Some(again);
                let ended = match Record::find(&directory, "device").unwrap() {
                    Found::Record(mut record) => {
                        restore(&mut backend, &mut record, Foreign::Leave).is_ok()
                    }
                    _ => true,
                };
                backend.left = None;
                if ended {
                    break;
                }
                assert!(again < 100, "the restoration does not end: {in_between:?}");
                again += 1;
            }
            rollback(&mut backend, &directory);
            assert_eq!(
                backend.values, before.values,
                "killed at step {kill} of {all}"
            );
            assert!(matches!(
                Record::find(&directory, "device").unwrap(),
                Found::Nothing
            ));
        }
    }
}

#[test]
fn a_second_plan_after_a_kill_restores_to_the_first_state_too() {
    let first = plan("switchdev.json");
    let second = second(&first);
    let before = Memory::of(&first);
    for kill in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("j");
        let mut backend = before.clone();
        backend.left = Some(kill);
        let _ = apply(&mut backend, &mut open(&directory), &first);
        backend.left = None;
        let done = apply(&mut backend, &mut open(&directory), &second).unwrap();
        assert_eq!(done.changed.len() + done.kept.len(), second.settings.len());
        let compared = differences(&mut backend, &second).unwrap();
        assert!(compared.iter().all(|one| one.equal));
        let not_planned = first.settings[..4].iter();
        for setting in not_planned {
            assert_eq!(
                backend.values[&setting.target],
                before.values[&setting.target]
            );
        }
        assert!(rollback(&mut backend, &directory));
        assert_eq!(backend.values, before.values, "killed at step {kill}");
    }
}

#[test]
fn a_new_plan_names_what_it_could_not_restore() {
    let first = plan("legacy.json");
    let second = second(&first);
    let folder = tempfile::tempdir().unwrap();
    let mut backend = Memory::of(&first);
    let mut record = open(&folder.path().join("j"));
    apply(&mut backend, &mut record, &first).unwrap();
    let [changed, removed] = [0, 1].map(|number: usize| first.settings[number].target.clone());
    let theirs = Value::FunctionRate {
        share_mbps: 77,
        max_mbps: 0,
    };
    backend.values.insert(changed.clone(), theirs.clone());
    backend.values.remove(&removed);
    let done = apply(&mut backend, &mut record, &second).unwrap();
    let foreign: Vec<&Target> = done.foreign.iter().map(|one| &one.target).collect();
    assert_eq!((foreign, &done.gone), (vec![&changed], &vec![removed]));
    assert_eq!(done.restored.len(), 2);
    assert_eq!(backend.values[&changed], theirs);
    let kept = record.entries().iter().any(|entry| entry.target == changed);
    assert!(kept, "rollback --force restores it");
}

#[test]
fn a_rejected_setting_restores_everything() {
    let plan = plan("switchdev.json");
    for setting in &plan.settings {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("j");
        let before = Memory::of(&plan);
        let mut backend = before.clone();
        backend.rejects = Some(setting.target.clone());
        let error = apply(&mut backend, &mut open(&directory), &plan).unwrap_err();
        assert!(matches!(error, HardwareError::Restored { .. }), "{error}");
        assert_eq!(backend.values, before.values);
    }
}

#[test]
fn a_driver_that_keeps_another_value_is_found() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let mut backend = Memory::of(&plan);
    backend.rounds = Some(plan.settings[1].target.clone());
    let error = apply(&mut backend, &mut open(&folder.path().join("j")), &plan).unwrap_err();
    expect_test::expect!["the rate of ens1f0np0 vf 1: wrote tx_share 30 Gb/s, no tx_max, and the driver has tx_share 5 Mb/s, no tx_max; this device cannot do it; nothing is changed: every setting has its previous value again"]
        .assert_eq(&error.to_string());
}

#[test]
fn values_of_other_programs_stay_unless_they_are_overwritten() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("j");
    let before = Memory::of(&plan);
    let mut backend = before.clone();
    let mut record = open(&directory);
    apply(&mut backend, &mut record, &plan).unwrap();
    let target = plan.settings[0].target.clone();
    let theirs = Value::FunctionRate {
        share_mbps: 77,
        max_mbps: 0,
    };
    backend.values.insert(target.clone(), theirs.clone());
    let drifted = drift(&mut backend, &record).unwrap();
    assert_eq!(drifted.iter().filter(|one| !one.equal).count(), 1);
    let done = restore(&mut backend, &mut record, Foreign::Leave).unwrap();
    assert_eq!((done.foreign.len(), &backend.values[&target]), (1, &theirs));
    assert_eq!(record.entries().len(), 1, "the journal keeps it");
    restore(&mut backend, &mut record, Foreign::Overwrite).unwrap();
    record.remove().unwrap();
    assert_eq!(backend.values, before.values);
}

#[test]
fn a_device_that_is_gone_does_not_stop_the_restoration() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("j");
    let mut backend = Memory::of(&plan);
    let mut record = open(&directory);
    apply(&mut backend, &mut record, &plan).unwrap();
    let target = plan.settings[2].target.clone();
    backend.values.remove(&target);
    let done = restore(&mut backend, &mut record, Foreign::Leave).unwrap();
    assert_eq!(done.gone, [target]);
    record.remove().unwrap();
}

/// Goal: the previous values of a renamed device stay in the journal, and another device with its name is not written.
#[test]
fn a_renamed_device_keeps_its_journal() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let before = Memory::of(&plan);
    let mut backend = before.clone();
    let mut record = open(&folder.path().join("j"));
    apply(&mut backend, &mut record, &plan).unwrap();
    let applied = backend.values.clone();
    backend.renamed = Some("wan0".to_owned());
    let done = restore(&mut backend, &mut record, Foreign::Overwrite).unwrap();
    assert_eq!(
        (done.unreached.len(), done.gone.len()),
        (plan.settings.len(), 0)
    );
    let reason = &done.unreached[0].reason;
    assert!(reason.contains("wan0 now; rename it to"), "{reason}");
    assert!(!done.is_all() && backend.values == applied);
    let error = apply(&mut backend, &mut record, &plan).unwrap_err();
    assert!(matches!(error, HardwareError::Left { .. }), "{error}");
    assert_eq!(
        (record.entries().len(), &backend.values),
        (plan.settings.len(), &applied)
    );
    backend.renamed = None;
    assert!(
        restore(&mut backend, &mut record, Foreign::Leave)
            .unwrap()
            .is_all()
    );
    assert_eq!(backend.values, before.values);
}

#[test]
fn a_device_with_the_name_of_a_removed_one_is_not_written() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let mut backend = Memory::of(&plan);
    let mut record = open(&folder.path().join("j"));
    apply(&mut backend, &mut record, &plan).unwrap();
    let applied = backend.values.clone();
    backend.renamed = Some(String::new());
    let done = restore(&mut backend, &mut record, Foreign::Overwrite).unwrap();
    assert_eq!(
        (done.gone.len(), record.entries().len()),
        (plan.settings.len(), 0)
    );
    assert_eq!(backend.values, applied);
}

#[test]
fn an_object_that_does_not_exist_is_named() {
    let plan = plan("legacy.json");
    let folder = tempfile::tempdir().unwrap();
    let mut backend = Memory::of(&plan);
    backend.values.remove(&plan.settings[0].target);
    let error = apply(&mut backend, &mut open(&folder.path().join("j")), &plan).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the rate of ens1f0np0 vf 0 does not exist"),
        "{error}"
    );
}

#[test]
fn two_processes_do_not_change_one_device() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("j");
    let _first = open(&directory);
    let error = Record::open_or_make(&directory, "device").unwrap_err();
    assert!(matches!(error, HardwareError::Busy { .. }), "{error}");
}

#[test]
fn a_journal_of_another_boot_or_with_foreign_lines_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("j");
    drop(open(&directory));
    let path = directory.join("device.journal");
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        r#"{"begin":{"version":1,"boot":"another"}}"#.to_owned() + "\n",
    )
    .unwrap();
    assert!(matches!(
        Record::find(&directory, "device").unwrap(),
        Found::OtherBoot(_)
    ));
    std::fs::write(&path, format!("{written}{{\"write\":1}}\n")).unwrap();
    let error = Record::find(&directory, "device").unwrap_err();
    assert!(
        matches!(error, HardwareError::Damaged { line: 2, .. }),
        "{error}"
    );
    // A torn last line is dropped: its write was not made.
    std::fs::write(&path, format!("{written}{{\"chan")).unwrap();
    assert!(matches!(
        Record::find(&directory, "device").unwrap(),
        Found::Record(_)
    ));
}
