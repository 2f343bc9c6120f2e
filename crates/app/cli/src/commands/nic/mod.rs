//! `isolane nic`: flows of this host share an ordinary network card fairly.
//!
//! One file for each question; everything that decides lives in `isolane-ethernet-attach` and below.

mod advise;
mod attach;
mod claims;
mod detach;
mod paired;
mod rounds;
mod soft;
mod status;
mod study;
mod top;
mod vhost;
mod view;

use crate::status::Status;
use anyhow::Result;
use isolane_ethernet_attach::System;

/// What the help of the command ends with.
const AFTER: &str = "\
Exit codes:
  0    done
  1    advise: something should be changed; status: the device is not attached, or attach
       has no effect on it
  2    a mistake on the command line: no such device, attached already, top of a device that is not
       attached, a value out of range
  3    the machine cannot: no NIC, one transmit queue, no privilege or no BPF; nothing changed
  130  interrupted";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = AFTER)]
pub(crate) enum Arguments {
    /// Give each new flow of a device the queue with the least weight, until detach
    Attach(attach::Arguments),
    /// Restore the device as it was before any attach
    Detach(detach::Arguments),
    /// Show queues, flows, fairness and cost of an attached device
    Status(status::Arguments),
    /// Watch an attached device
    Top(top::Arguments),
    /// List settings of a device that cost fairness or latency, and the commands that change them
    Advise(advise::Arguments),
    /// Compare configurations of a host: throughput, processor time, ping latency and fairness
    Study(study::Arguments),
    /// Run one configuration with real traffic over a NIC in this process
    Soft(soft::Arguments),
}

/// Where the device is.
#[derive(Debug, clap::Args)]
struct Place {
    /// The network device, like eth0
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Its network namespace, a name of `ip netns` or a path
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
}

impl Place {
    /// The machine, as seen from the device's namespace, which this thread is in from now on.
    fn enter(&self) -> Result<System> {
        Ok(match &self.netns {
            Some(name) => System::enter(name)?,
            // `/sys` may be another namespace's (`unshare -n`, `nsenter --net`); without privilege it is all there is.
            None => System::here().unwrap_or_else(|_| System::machine()),
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match arguments {
        Arguments::Attach(arguments) => attach::run(arguments),
        Arguments::Detach(arguments) => detach::run(arguments),
        Arguments::Status(arguments) => status::run(arguments),
        Arguments::Top(arguments) => top::run(arguments),
        Arguments::Advise(arguments) => advise::run(arguments),
        Arguments::Study(arguments) => study::run(arguments),
        Arguments::Soft(arguments) => soft::run(arguments),
    }
}
