//! Protocols in every interleaving, by stateright and loom, and the quota server by seed and over a real etcd.
//!
//! Each model is small: a few messages, clients and faults, all orders of them. Each also runs with one planted defect,
//! which the checker must find: a model without that proves nothing.

mod daemon;
mod handover;
mod histories;
mod journal;
mod lease;
mod quota;
mod vopr;
mod words;

use stateright::{Checker, Model};
use std::fmt::Debug;
use std::hash::Hash;

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
