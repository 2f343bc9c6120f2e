//! A plan: settings of a device with reasons, environments of programs, and what remains for software.

use crate::setting::{Target, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the plan's JSON.
pub const PLAN_VERSION: u32 = 2;

/// What a policy becomes on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Name of the device.
    pub device: String,
    /// Settings of the device and of cgroups, in the order in which they are made.
    pub settings: Vec<Setting>,
    /// Variables that put the traffic of a tenant's programs into its class.
    pub environments: Vec<Environment>,
    /// What the device cannot do.
    pub remaining: Vec<Remaining>,
    /// The file for the daemon that does what remains; absent if the daemon has nothing to do.
    pub daemon: Option<String>,
    /// The policy of the simulator that has the same mechanisms: `isolane audit --policies` takes it.
    pub simulated_by: String,
    /// What this policy has of each kind of setting.
    pub simulated: Vec<Simulated>,
    /// Weight of each tenant in a scenario whose shares are those of this plan.
    pub simulated_weights: BTreeMap<String, u64>,
}

/// What the simulator has of one kind of setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Simulated {
    /// The kind of setting, or the software that does what remains.
    pub setting: String,
    /// The part of a policy with this mechanism; absent if the simulator has none.
    pub by: Option<String>,
    /// How the simulator differs.
    pub difference: String,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Setting {
    /// The object.
    pub target: Target,
    /// Its value.
    pub value: Value,
    /// The part of the policy that needs it.
    pub reason: String,
}

/// Variables of a tenant's programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Environment {
    /// The tenant.
    pub tenant: String,
    /// Values by name.
    pub variables: BTreeMap<String, String>,
    /// The part of the policy that needs them.
    pub reason: String,
}

/// A need that the device does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Remaining {
    /// The tenant or class.
    pub subject: String,
    /// What it needs.
    pub need: String,
    /// What can do it.
    pub by: Actuator,
    /// Why the device cannot.
    pub reason: String,
}

/// What does a part of a policy that the device cannot do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Actuator {
    /// `isolaned` and the preload library.
    Daemon,
    /// `isolane rdma enforce`, with the daemon.
    Enforcer,
    /// The program itself, by libibverbs.
    Program,
    /// The subnet manager of InfiniBand.
    SubnetManager,
    /// The operator.
    Operator,
}

impl Actuator {
    /// Its name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "isolaned",
            Self::Enforcer => "isolane rdma enforce",
            Self::Program => "the program",
            Self::SubnetManager => "the subnet manager",
            Self::Operator => "you",
        }
    }
}
