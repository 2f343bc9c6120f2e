//! The measurement of a call with a test's kernel.

use super::*;

#[derive(Debug, Default)]
struct Scripted(AtomicU64);

impl Acknowledges for Scripted {
    fn acknowledged(&self) -> Option<u64> {
        match self.0.load(Ordering::Relaxed) {
            u64::MAX => None,
            count => Some(count),
        }
    }
}

fn acknowledge(wire: &Wire<Scripted>, bytes: u64) {
    wire.kernel.0.store(bytes, Ordering::Relaxed);
}

#[test]
fn a_call_arrives_when_its_last_byte_is_acknowledged() {
    let wire = Wire::new(Scripted::default());
    wire.on_written(100);
    wire.on_flushed();
    let mut passage = Passage::new(&wire);
    acknowledge(&wire, 100);
    assert_eq!(passage.look(&wire, None), Progress::Sending);
    assert_eq!(
        passage.look(&wire, Some(1_000)),
        Progress::Sending,
        "an older flush"
    );
    wire.on_written(600);
    wire.on_flushed();
    assert_eq!(
        passage.look(&wire, Some(1_000)),
        Progress::Sending,
        "a part of it"
    );
    wire.on_written(450);
    assert_eq!(
        passage.look(&wire, Some(1_000)),
        Progress::Sending,
        "not flushed"
    );
    wire.on_flushed();
    assert_eq!(passage.look(&wire, Some(1_000)), Progress::OnTheWay(1_150));
    // Later bytes do not move the end.
    wire.on_written(5_000);
    wire.on_flushed();
    acknowledge(&wire, 1_149);
    assert_eq!(passage.look(&wire, Some(1_000)), Progress::OnTheWay(1_150));
    acknowledge(&wire, 1_150);
    assert_eq!(passage.look(&wire, Some(1_000)), Progress::Arrived);
}

#[test]
fn without_a_count_nothing_is_said() {
    let wire = Wire::new(Scripted::default());
    let mut passage = Passage::new(&wire);
    acknowledge(&wire, u64::MAX);
    wire.on_written(10);
    wire.on_flushed();
    assert_eq!(passage.look(&wire, Some(5)), Progress::Unknown);
}
