//! Planted defects: `make miri` and `make sanitize` first require that Miri and the sanitizers report them. The argument names the defect.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

struct Shared(UnsafeCell<u64>, AtomicBool);

// SAFETY: none; this is the defect of `race`.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(0), AtomicBool::new(false));

fn main() {
    let defect = std::env::args().nth(1).expect("overflow, freed or race");
    let values = vec![1u8; std::hint::black_box(16)];
    match defect.as_str() {
        // A byte beyond the end.
        "overflow" => println!("{}", unsafe { values.as_ptr().add(values.len()).read() }),
        "freed" => {
            let start = values.as_ptr();
            drop(values);
            println!("{}", unsafe { start.read() });
        }
        // A word that is published without a release.
        "race" => {
            let writer = std::thread::spawn(|| {
                unsafe { *SHARED.0.get() = 7 };
                SHARED.1.store(true, Ordering::Relaxed);
            });
            while !SHARED.1.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            println!("{}", unsafe { *SHARED.0.get() });
            writer.join().expect("it does not panic");
        }
        other => panic!("{other}: no defect has this name"),
    }
}
