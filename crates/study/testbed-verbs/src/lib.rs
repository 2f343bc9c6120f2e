//! Scenarios on real RDMA devices, on this machine or on several.
//!
//! [`VerbsTestbed`] is the second testbed beside the simulator: the same scenario, the same result, other hardware. It
//! steers one worker process per tenant and host (`isolane rdma traffic --worker`) through one agent per machine
//! (`isolane rdma agent`), reached by a pipe, by ssh or over TLS.
//!
//! * [`target`] - what `--target verbs:...` names;
//! * [`testbed`] - the testbed; [`calibrate`] - what the devices can do; `error` - what goes wrong;
//! * [`message`] - what controller and agent say to each other; [`link`] - the controller's end; [`agent`] - the other;
//! * [`identity`] - certificates; [`listen`] - an agent on a TCP port.
//!
//! How it works in prose: `docs/internals/verbs-testbed.md`.
#![forbid(unsafe_code)]

pub mod agent;
pub mod calibrate;
mod error;
pub mod identity;
pub mod link;
pub mod listen;
pub mod message;
pub mod target;
pub mod testbed;

mod conduct;
mod fleet;
mod gather;
mod lines;
pub mod pace;
mod policy;
mod process;
mod secure;
mod sources;

pub use conduct::Stage;
pub use error::VerbsError;
pub use link::Reach;
pub use target::Target;
pub use testbed::VerbsTestbed;
