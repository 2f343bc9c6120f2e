//! Sets weights on a substitute of the kernel's side, and checks its state after success and after a failure of any
//! request.
//!
//! The substitute keeps the kernel's rules: a device's own shaper outlives its queues', missing objects are not found,
//! a node is set one at a time. The request that a test names fails with `EBUSY`.

use super::devlink::{self, Devlink};
use super::net_shaper::{self, NetShaper};
use super::*;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::generic::Ask;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

const EBUSY: i32 = 16;
const ENOENT: i32 = 2;
const INDEX: u32 = 3;

/// State of the kernel's side.
#[derive(Debug, Default)]
struct Side {
    /// Number of requests so far, and the one that fails.
    requests: usize,
    refused: Option<usize>,
    /// Shapers by scope and number, with their weights.
    shapers: BTreeMap<(u32, u32), u32>,
    takes_weights: bool,
    /// devlink nodes by name, with their weights.
    nodes: BTreeMap<String, u32>,
}

#[derive(Clone, Debug, Default)]
struct Kernel(Rc<RefCell<Side>>);

impl Kernel {
    fn shaper(takes_weights: bool) -> Self {
        let kernel = Self::default();
        kernel.0.borrow_mut().takes_weights = takes_weights;
        kernel
    }

    fn nodes(weights: &[u32]) -> Self {
        let kernel = Self::default();
        for (queue, weight) in weights.iter().enumerate() {
            let name = format!("queue_{queue}");
            kernel.0.borrow_mut().nodes.insert(name, *weight);
        }
        kernel
    }

    /// Makes a later request fail: `after` requests succeed first.
    fn refuse(&self, after: usize) {
        let mut side = self.0.borrow_mut();
        side.refused = Some(side.requests + after);
    }

    fn shapers(&self) -> Vec<((u32, u32), u32)> {
        let side = self.0.borrow();
        side.shapers
            .iter()
            .map(|(of, weight)| (*of, *weight))
            .collect()
    }

    fn weights(&self) -> Vec<u32> {
        self.0.borrow().nodes.values().copied().collect()
    }

    fn open_shaper(&self) -> Result<Result<NetShaper, String>, NicError> {
        NetShaper::over(Box::new(self.clone()), INDEX)
    }

    fn open_devlink(&self, queues: u16) -> Result<Result<Devlink, String>, NicError> {
        Devlink::over(Box::new(self.clone()), INDEX, queues)
    }
}

fn refusal(action: &str, number: i32) -> HostError {
    let source = io::Error::from_raw_os_error(number);
    let action = action.to_owned();
    match number {
        ENOENT => HostError::NotOffered { action, source },
        _ => HostError::Kernel { action, source },
    }
}

fn handle(attributes: &Attributes<'_>) -> (u32, u32) {
    let handle = attributes.nested(net_shaper::HANDLE);
    let scope = handle.u32(net_shaper::HANDLE_SCOPE).expect("a scope");
    (scope, handle.u32(net_shaper::HANDLE_ID).unwrap_or(0))
}

impl Side {
    fn answer(
        &mut self,
        command: u8,
        asked: &Attributes<'_>,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), i32> {
        match command {
            net_shaper::CAPABILITIES => {
                let mut answer = AttributesBuilder::new();
                if self.takes_weights {
                    answer = answer.with(net_shaper::CAPABILITIES_WEIGHT, &[]);
                }
                each(Attributes::new(answer.bytes()));
            }
            net_shaper::GET => {
                for _ in &self.shapers {
                    each(Attributes::new(&[]));
                }
            }
            net_shaper::GROUP => {
                self.shapers.insert(handle(asked), 0);
                for leaf in asked.each_nested(net_shaper::LEAVES) {
                    let weight = leaf.u32(net_shaper::WEIGHT).expect("a weight");
                    self.shapers.insert(handle(&leaf), weight);
                }
            }
            net_shaper::DELETE => {
                let of = handle(asked);
                let has_leaves = self
                    .shapers
                    .keys()
                    .any(|of| of.0 == net_shaper::SCOPE_QUEUE);
                if of.0 == net_shaper::SCOPE_DEVICE && has_leaves {
                    return Err(EBUSY);
                }
                self.shapers.remove(&of).ok_or(ENOENT)?;
            }
            other => panic!("unexpected request {other}"),
        }
        Ok(())
    }

    fn answer_devlink(
        &mut self,
        command: u8,
        asked: &Attributes<'_>,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), i32> {
        let instance = || {
            AttributesBuilder::new()
                .with_text(devlink::BUS, "pci")
                .with_text(devlink::DEVICE, "0000:3b:00.0")
        };
        match command {
            devlink::PORT_GET => {
                let port = instance().with_u32(devlink::PORT_NETWORK_DEVICE, INDEX);
                each(Attributes::new(port.bytes()));
            }
            devlink::RATE_GET => {
                for (name, weight) in &self.nodes {
                    let rate = instance()
                        .with_text(devlink::RATE_NODE, name)
                        .with_u32(devlink::RATE_WEIGHT, *weight);
                    each(Attributes::new(rate.bytes()));
                }
            }
            devlink::RATE_SET => {
                let name = asked.text(devlink::RATE_NODE).expect("a node");
                let node = self.nodes.get_mut(&name).ok_or(ENOENT)?;
                *node = asked.u32(devlink::RATE_WEIGHT).expect("a weight");
            }
            other => panic!("unexpected request {other}"),
        }
        Ok(())
    }
}

impl Ask for Kernel {
    fn ask(
        &mut self,
        action: &str,
        command: u8,
        _dump: bool,
        attributes: &AttributesBuilder,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), HostError> {
        let mut side = self.0.borrow_mut();
        side.requests += 1;
        if side.refused == Some(side.requests - 1) {
            return Err(refusal(action, EBUSY));
        }
        let asked = Attributes::new(attributes.bytes());
        // Families use the same command numbers.
        let answered = match side.nodes.is_empty() {
            true => side.answer(command, &asked, each),
            false => side.answer_devlink(command, &asked, each),
        };
        answered.map_err(|number| refusal(action, number))
    }
}

#[test]
fn queues_become_leaves_with_their_weights_and_nothing_is_left_afterwards() {
    let kernel = Kernel::shaper(true);
    let mut shaper = kernel.open_shaper().unwrap().unwrap();
    assert!(shaper.is_free().unwrap());
    shaper.push(&[127, 64]).unwrap();
    shaper.push(&[1, 127]).unwrap();
    let leaf = |queue| (net_shaper::SCOPE_QUEUE, queue);
    let device = (net_shaper::SCOPE_DEVICE, 0);
    assert_eq!(
        kernel.shapers(),
        [(device, 0), (leaf(0), 1), (leaf(1), 127)]
    );
    shaper.undo(2).unwrap();
    assert_eq!(kernel.shapers(), []);
    shaper.undo(2).unwrap();
}

#[test]
fn drivers_without_weights_and_shapers_of_others_are_left_alone() {
    let reason = |kernel: &Kernel| kernel.open_shaper().unwrap().unwrap_err();
    assert!(reason(&Kernel::shaper(false)).contains("does not support weights"));
    let kernel = Kernel::shaper(true);
    let mut shaper = kernel.open_shaper().unwrap().unwrap();
    let theirs = (net_shaper::SCOPE_QUEUE, 5);
    kernel.0.borrow_mut().shapers.insert(theirs, 9);
    assert!(!shaper.is_free().unwrap());
    assert!(reason(&kernel).contains("1 shapers"));
}

/// One failure anywhere: opening reports it, and a repeated undo takes everything back.
#[test]
fn a_refused_request_leaves_nothing_that_undoing_again_does_not_take_back() {
    let open = |kernel: &Kernel| kernel.open_shaper().map(|opened| opened.unwrap());
    for after in 0..2 {
        let kernel = Kernel::shaper(true);
        kernel.refuse(after);
        let error = open(&kernel).unwrap_err();
        assert!(error.to_string().contains("shapers"), "{error}");
        assert!(open(&kernel).is_ok());
    }
    for after in 0..5 {
        let kernel = Kernel::shaper(true);
        let mut shaper = open(&kernel).unwrap();
        kernel.refuse(after);
        let pushed = shaper.push(&[3, 2, 1]);
        assert_eq!(pushed.is_err(), after == 0);
        assert_eq!(shaper.undo(3).is_err(), after > 0, "{after}");
        shaper.undo(3).unwrap();
        assert_eq!(kernel.shapers(), [], "{after}");
    }
}

/// Nodes are set one after the other. If any of them fails, undo makes all of them equal again.
#[test]
fn nodes_that_were_set_in_part_are_equal_again() {
    for after in 0..4 {
        let kernel = Kernel::nodes(&[1, 1, 1]);
        let mut nodes = kernel.open_devlink(3).unwrap().unwrap();
        kernel.refuse(after);
        assert_eq!(nodes.push(&[200, 100, 50]).is_err(), after < 3);
        let limits = [200, 100, 50].into_iter().take(after);
        assert_eq!(
            kernel.weights(),
            limits.chain([1; 3]).take(3).collect::<Vec<_>>()
        );
        if nodes.undo(3).is_err() {
            nodes.undo(3).unwrap();
        }
        assert_eq!(kernel.weights(), [1, 1, 1]);
    }
    let unequal = Kernel::nodes(&[1, 7]).open_devlink(2).unwrap();
    assert!(unequal.unwrap_err().contains("already"));
    let few = Kernel::nodes(&[1]).open_devlink(2).unwrap();
    assert!(few.unwrap_err().contains("no devlink node"));
}

/// A kernel that answers every request with the same bytes.
#[derive(Debug)]
struct Garbled(Vec<u8>);

impl Ask for Garbled {
    fn ask(
        &mut self,
        _action: &str,
        _command: u8,
        _dump: bool,
        _attributes: &AttributesBuilder,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), HostError> {
        each(Attributes::new(&self.0));
        Ok(())
    }
}

proptest! {
    /// For all bytes, no weights are set without nodes or capabilities in the answer.
    #[test]
    fn garbled_answers_are_refused_and_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        // An answer to the list of shapers counts as a shaper, so the device is never free.
        let shaper = NetShaper::over(Box::new(Garbled(bytes.clone())), INDEX).unwrap();
        prop_assert!(shaper.is_err());
        let nodes = Devlink::over(Box::new(Garbled(bytes)), INDEX, 2).unwrap();
        prop_assert!(nodes.is_err());
    }
}
