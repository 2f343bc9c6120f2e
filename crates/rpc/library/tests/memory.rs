//! 100,000 destinations stay below 64 MB, counted by the allocator; a decision does not allocate.

use isolane_rpc::settings::parse;
use isolane_rpc::table::{Ask, NAME_MAX, Table};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const SETTINGS: &str = concat!(
    "destinations_max = 100000\n",
    include_str!("data/three-classes.toml")
);

/// The longest kept names, all three classes in use.
fn a_hundred_thousand_destinations_stay_below_64_mb() {
    let profiler = dhat::Profiler::builder().testing().build();
    let settings = parse("test", SETTINGS).expect("sound");
    let before = dhat::HeapStats::get();
    let table = Table::new(&settings, 1, 0);
    let name = |host: u32| format!("{host:0>width$}", width = NAME_MAX);
    let call = |name: &str, class| {
        let ask = Ask {
            destination: name.as_bytes(),
            class,
            bytes: 32_768,
        };
        let verdict = table.decide(ask, 1, 0);
        table.complete(verdict.ticket, 1_000, 2).expect("ours");
    };
    for host in 0..100_000 {
        for class in 0..3 {
            call(&name(host), class);
        }
    }
    assert_eq!(table.len(), 100_000);
    let after = dhat::HeapStats::get();
    let bytes = after.curr_bytes - before.curr_bytes;
    println!("{bytes} bytes for 100,000 destinations of 3 classes and {NAME_MAX} bytes of name");
    assert!(bytes < 64_000_000, "{bytes} bytes");

    let first = name(0);
    let blocks = dhat::HeapStats::get().total_blocks;
    for class in 0..3 {
        call(&first, class);
    }
    assert_eq!(
        dhat::HeapStats::get().total_blocks,
        blocks,
        "a decision allocated"
    );

    // 100,000 further newcomers after the idle time: memory stays.
    let later = 3_600_000_000_000;
    for host in 100_000..200_000 {
        let name = name(host);
        let ask = Ask {
            destination: name.as_bytes(),
            class: 0,
            bytes: 1,
        };
        table.decide(ask, later, 0);
    }
    let grown = dhat::HeapStats::get().curr_bytes - before.curr_bytes;
    assert!(grown < 64_000_000, "{grown} bytes");
    drop(profiler);
}

/// Without the test harness, whose own thread allocates while it waits and would be counted.
fn main() {
    a_hundred_thousand_destinations_stay_below_64_mb();
    println!("test a_hundred_thousand_destinations_stay_below_64_mb ... ok");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
