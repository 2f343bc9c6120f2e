//! Protocols in every interleaving, by stateright and loom, services by seed, and the quota server over a real etcd.
//!
//! Each model is small: a few messages, clients and faults, all orders of them. Each also runs with one planted defect,
//! which the checker must find: a model without that proves nothing.

mod daemon;
mod guardian;
mod handover;
mod histories;
mod journal;
mod lease;
mod memory;
mod peers;
mod quota;
mod vopr;
mod words;

use stateright::{Checker, Model};
use std::fmt::{Debug, Display};
use std::hash::Hash;

/// Runs the product, without a defect, on seeds 1 to `seeds` and returns the sum of their reports.
fn keeps<R, B>(seeds: u64, run: impl Fn(u64) -> Result<R, B>, add: fn(&mut R, &R)) -> R
where
    R: Debug + Default,
    B: Display,
{
    let mut sum = R::default();
    for seed in 1..=seeds {
        match run(seed) {
            Ok(report) => add(&mut sum, &report),
            Err(broken) => panic!(
                "{broken}\nrun it alone: cargo run -p isolane-tools-models --bin vopr -- --seed {seed}"
            ),
        }
    }
    println!("{seeds} seeds: {sum:?}");
    sum
}

/// Runs seeds 1 to `within` with each planted defect until one fails, and requires that this seed, which `seed_of` reads from
/// the failure, fails again in the same way.
fn finds_planted<D, R, B>(
    run: fn(u64, D) -> Result<R, B>,
    seed_of: fn(&B) -> u64,
    within: u64,
    defects: &[D],
) where
    D: Copy + Debug,
    R: Debug + PartialEq,
    B: Debug + Display + PartialEq,
{
    for &defect in defects {
        let found = (1..=within).find_map(|seed| run(seed, defect).err());
        let broken =
            found.unwrap_or_else(|| panic!("{defect:?} was not found within {within} seeds"));
        println!("{defect:?}: {broken}");
        assert_eq!(run(seed_of(&broken), defect), Err(broken));
    }
}

/// Checks every state of `model`. Returns the number of states.
///
/// # Panics
/// A property does not hold; the message has the shortest sequence of actions.
fn holds<M>(model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Debug + PartialEq + Clone,
{
    let checker = model.checker().spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{states} states");
    states
}

/// The actions of the shortest way to a state where `property` does not hold.
fn counterexample<M>(model: M, property: &'static str) -> Vec<String>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Debug + PartialEq + Clone,
{
    let checker = model.checker().spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.expect("the planted defect breaks the property");
    let actions: Vec<String> = path
        .into_actions()
        .iter()
        .map(|action| format!("{action:?}"))
        .collect();
    println!("{}", actions.join(", "));
    actions
}
