//! The soft card by itself: between two namespaces, until it is interrupted, saying what passes each queue.
//!
//! Method: existing namespaces are used; otherwise two are made, and removed at the end. Queues are the kernel's hash;
//! weights may be given. Each second the counters of the last one are reported. Units: bytes and packets in a second.
//! Limits: see [`crate::nic`]. Source: ours.

use crate::card::{Discipline, QueueCount, WEIGHT_MAX};
use crate::error::SoftNicError;
use crate::nic::{Nic, NicOptions};
use crate::spaces::{self, DeviceOptions, Pair, RECEIVER};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_policy::titan::QUEUES_MAX;
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames that a queue holds: a usual ring of 512 descriptors, 17 a frame of 64 KiB.
const QUEUE_FRAMES: u32 = 30;
/// How often the wait looks whether it is interrupted.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// What is to be served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Line rate.
    pub rate: BitRate,
    /// Transmit queues.
    pub queues: u16,
    /// Weight of each queue; all one if none are given.
    pub weights: Option<Vec<u32>>,
    /// Serve queues in turn and ignore their weights.
    pub round_robin: bool,
    /// Existing namespaces of sender and receiver; two are made if none are given.
    pub spaces: Option<(String, String)>,
    /// The processor of the card's thread.
    pub processor: Option<usize>,
}

/// What passed in a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Of each queue.
    pub queues: Vec<QueueCount>,
    /// Their weights.
    pub weights: Vec<u32>,
    /// How long the second was.
    pub length: Duration,
}

impl ServeOptions {
    fn check(&self) -> Result<(), SoftNicError> {
        let queues = self.queues;
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(SoftNicError::Input(format!(
                "--queues {queues}: 1 to {QUEUES_MAX} are possible"
            )));
        }
        if self.rate.as_bps() == 0 {
            return Err(SoftNicError::Input(
                "--rate 0: a wire carries something".to_owned(),
            ));
        }
        let Some(weights) = &self.weights else {
            return Ok(());
        };
        if weights.len() != usize::from(queues) {
            return Err(SoftNicError::Input(format!(
                "--weights has {} values for {queues} queues; give one for each",
                weights.len()
            )));
        }
        match weights
            .iter()
            .find(|weight| !(1..=WEIGHT_MAX).contains(*weight))
        {
            Some(weight) => Err(SoftNicError::Input(format!(
                "--weights has {weight}; weights are 1 to {WEIGHT_MAX}"
            ))),
            None => Ok(()),
        }
    }
}

/// Serves until `interrupted` is set. `ready` is called with the names of sender's and receiver's namespace and the
/// receiver's address; `report` is called once a second with the packets of the last one. Fails for bad options, for
/// namespaces that are not there, and on a machine that lacks a part.
pub fn serve(
    options: &ServeOptions,
    interrupted: &AtomicBool,
    ready: &mut dyn FnMut(&str, &str, &str),
    report: &mut dyn FnMut(&Second),
) -> Result<(), SoftNicError> {
    options.check()?;
    let pair = match options.spaces {
        Some(_) => None,
        None => Some(Pair::make()?),
    };
    let (sender, receiver) = match (&options.spaces, &pair) {
        (Some((sender, receiver)), _) => (sender.as_str(), receiver.as_str()),
        (None, Some(pair)) => (pair.sender(), pair.receiver()),
        (None, None) => unreachable!("made where none are given"),
    };
    let device = DeviceOptions {
        queues: options.queues,
        segmentation: true,
        queue_frames: QUEUE_FRAMES,
        mtu: 1_500,
    };
    let (from, to) = spaces::open_devices(sender, receiver, &device)?;
    let card = NicOptions {
        rate: options.rate,
        discipline: match options.round_robin {
            true => Discipline::RoundRobin,
            false => Discipline::Weighted,
        },
        interrupt: Duration::from_us(100),
        complete_checksums: false,
        processor: options.processor,
    };
    let mut nic = Nic::start(from, to, card, None)?;
    if let Some(weights) = &options.weights {
        nic.set_weights(weights.clone())?;
    }
    ready(sender, receiver, RECEIVER);
    tell_each_second(&mut nic, interrupted, report)
}

fn tell_each_second(
    nic: &mut Nic,
    interrupted: &AtomicBool,
    report: &mut dyn FnMut(&Second),
) -> Result<(), SoftNicError> {
    let mut last = nic.counts()?;
    let mut begin = std::time::Instant::now();
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let length = begin.elapsed();
        if length.as_secs() == 0 {
            continue;
        }
        begin = std::time::Instant::now();
        let now = nic.counts()?;
        let pairs = now.queues.iter().zip(&last.queues);
        let queues = pairs.map(|(now, last)| now.since(last)).collect();
        report(&Second {
            queues,
            weights: now.weights.clone(),
            length: Duration::from_ns(length.as_nanos() as u64),
        });
        last = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ServeOptions {
        ServeOptions {
            rate: BitRate::from_gbps(1),
            queues: 2,
            weights: None,
            round_robin: false,
            spaces: None,
            processor: None,
        }
    }

    #[test]
    fn bad_options_are_named_with_their_range() {
        let check = |change: fn(&mut ServeOptions), want: &str| {
            let mut options = options();
            change(&mut options);
            let error = options.check().expect_err("refused");
            assert_eq!(error.to_string(), want);
        };
        check(
            |options| options.queues = 0,
            "--queues 0: 1 to 64 are possible",
        );
        check(
            |options| options.rate = BitRate::from_bps(0),
            "--rate 0: a wire carries something",
        );
        check(
            |options| options.weights = Some(vec![1]),
            "--weights has 1 values for 2 queues; give one for each",
        );
        check(
            |options| options.weights = Some(vec![1, 70_000]),
            "--weights has 70000; weights are 1 to 65535",
        );
        assert!(options().check().is_ok());
    }

    #[test]
    fn namespaces_that_are_not_there_are_named() {
        let mut options = options();
        options.spaces = Some(("isolane-no-such-space".to_owned(), "neither".to_owned()));
        let stop = AtomicBool::new(true);
        let error = serve(&options, &stop, &mut |_, _, _| {}, &mut |_| {}).expect_err("refused");
        assert!(
            error.to_string().contains("`isolane-no-such-space`"),
            "{error}"
        );
    }
}
