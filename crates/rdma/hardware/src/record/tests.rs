//! Concurrent callers of one journal.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Goal: of many concurrent callers one at a time has the journal, and reads what the last one left, although each
/// removes the file. Method: a holder counts itself, and leaves an empty journal or none.
#[test]
fn one_caller_at_a_time_has_the_journal_although_each_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("j");
    let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    let target = Target::FlowControl {
        network_device: "eth0".to_owned(),
    };
    let value = |enabled| Value::FlowControl { enabled };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while taken.load(Ordering::Relaxed) < 2000 {
                    let mut record = match Record::open_or_make(&directory, "device") {
                        Ok(record) => record,
                        Err(HardwareError::Busy { .. }) => {
                            std::thread::yield_now();
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(record.entries(), [], "the last holder undid its change");
                    record.change(&target, None, &value(0), &value(8)).unwrap();
                    std::thread::yield_now();
                    record.undone(&target).unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if taken.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
                        record.remove().unwrap();
                    }
                }
            });
        }
    });
}
