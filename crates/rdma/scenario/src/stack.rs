//! Policies as stacks of parts: what each part controls, and which combinations there are.
//!
//! A policy is one part, or several joined with `+`: `justitia+hw-tc`. Every part names the *slots* of the device and
//! the host that it uses; two parts may be in one stack when they use different slots. There is no list of
//! combinations: every combination with different slots is allowed, except for the pairs in [`REFUSED`] that would run
//! without a meaning.
//!
//! A stack's name lists its parts in the order of [`POLICIES`], however it was written. A parameter reaches every
//! part of the stack that has it.

use crate::policy_parts::POLICIES;
use crate::profile::{LinkLayer, Profile};
use isolane_common_toml_input::policy_parameter::PolicyParameter;

/// What a part of a policy controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// No policy; the only part of its stack.
    Nothing,
    /// When an application's work requests reach the NIC: a shim and a daemon.
    Pacing,
    /// How much a queue pair sends in its turn: the NIC's transmit scheduler.
    Scheduler,
    /// Hardware queues with their share of link and buffer: traffic classes, virtual lanes, priorities.
    Classes,
    /// Virtual functions with their own rate limiters and error handling.
    Functions,
    /// Who uses what inside the NIC, seen from its PCIe port, and rate limits that follow from it.
    Monitor,
    /// All slots; the only part of its stack.
    Whole,
}

/// One part of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyPart {
    /// As scenarios name it.
    pub name: &'static str,
    /// What it controls.
    pub slots: &'static [Slot],
    /// What it needs that a device may lack.
    pub needs: Feature,
    /// One line for help and reports.
    pub about: &'static str,
    /// Its parameters.
    pub parameters: &'static [PolicyParameter],
}

/// What a device must have for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Any device will do.
    Any,
    /// Virtual functions, at least one for each tenant.
    VirtualFunctions,
    /// Traffic classes (lossless queues), at least one for each tenant.
    TrafficClasses,
    /// A RoCE link: the part slows senders with congestion notifications.
    CongestionNotification,
}

/// Pairs whose slots agree and that are refused all the same, with the reason.
#[rustfmt::skip]
pub const REFUSED: &[(&str, &str, &str)] = &[
    ("justitia", "sriov", "Justitia isolates tenants of one function; with SR-IOV each tenant has its own (husky 4.5, note 2)"),
    ("lite", "sriov", "LITE's kernel module shares one function among its tenants; with SR-IOV each has its own"),
];

/// What `--policies all` compares, in the order of tables: every published approach, the combinations that
/// husky tests, and ours.
pub const ALL: &[&str] = &[
    "none",
    "hw-priority",
    "lite",
    "sw-chunking",
    "justitia",
    "hw-tc",
    "vl-qos",
    "sriov",
    "hw-tc+sriov",
    "justitia+hw-tc",
    "palos",
    "harmonic",
    "isolane-sw",
    "isolane",
];

/// Parts that divide the NIC by the tenants' weights; the others treat all tenants alike.
#[rustfmt::skip]
const WEIGHTED: &[&str] = &["justitia", "palos", "hw-tc", "vl-qos", "sriov", "harmonic", "isolane-sw", "isolane"];

/// Parts that need hardware which no vendor sells: they are known from papers and prototypes, or from this project.
const UNBUILT: &[&str] = &["palos", "harmonic", "isolane"];

/// Why a name is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum StackError {
    #[error("{part:?} is not a policy; the parts are {}", part_names().collect::<Vec<_>>().join(", "))]
    UnknownPart { part: String },
    #[error("{part} is in {name:?} twice: write it once")]
    Twice { name: String, part: &'static str },
    #[error("{first}+{second}: both control {what}: choose one of them")]
    SameSlot {
        first: &'static str,
        second: &'static str,
        what: &'static str,
    },
    /// A part that the device cannot do, or not for so many tenants.
    #[error("{part}: {profile} {lacks}")]
    Device {
        part: &'static str,
        profile: String,
        lacks: String,
    },
    #[error("{first}+{second}: {reason}")]
    Refused {
        first: &'static str,
        second: &'static str,
        reason: &'static str,
    },
}

/// The parts' names.
pub fn part_names() -> impl Iterator<Item = &'static str> + Clone {
    POLICIES.iter().map(|part| part.name)
}

/// The part called `name`.
pub fn part(name: &str) -> Option<&'static PolicyPart> {
    POLICIES.iter().find(|part| part.name == name)
}

/// The parts of the policy called `name`, in the order of [`POLICIES`]. Fails if a part does not exist, or two parts
/// cannot be in one stack.
pub fn parts(name: &str) -> Result<Vec<&'static PolicyPart>, StackError> {
    let mut found: Vec<&'static PolicyPart> = Vec::new();
    for word in name.split('+').map(str::trim) {
        let unknown = || StackError::UnknownPart {
            part: word.to_owned(),
        };
        let next = part(word).ok_or_else(unknown)?;
        for other in &found {
            agree(name, other, next)?;
        }
        found.push(next);
    }
    found.sort_by_key(|part| POLICIES.iter().position(|known| known.name == part.name));
    Ok(found)
}

/// The name of the stack: its parts in the order of [`POLICIES`]. Fails as [`parts`] does.
pub fn canonical(name: &str) -> Result<String, StackError> {
    let names: Vec<&str> = parts(name)?.iter().map(|part| part.name).collect();
    Ok(names.join("+"))
}

/// Every parameter of the policy called `name`, each once; none for a name that is no policy.
pub fn parameters(name: &str) -> Vec<&'static PolicyParameter> {
    let mut all: Vec<&'static PolicyParameter> = Vec::new();
    for parameter in parts(name)
        .unwrap_or_default()
        .iter()
        .flat_map(|part| part.parameters)
    {
        if all.iter().all(|known| known.name != parameter.name) {
            all.push(parameter);
        }
    }
    all
}

/// Whether the policy called `name` divides the NIC by the tenants' weights.
pub fn honours_weights(name: &str) -> bool {
    let parts = parts(name).unwrap_or_default();
    parts.iter().any(|part| WEIGHTED.contains(&part.name))
}

/// Whether what the policy called `name` needs can be bought: false where a part needs hardware that no vendor sells.
pub fn is_on_sale(name: &str) -> bool {
    let parts = parts(name).unwrap_or_default();
    !parts.iter().any(|part| UNBUILT.contains(&part.name))
}

/// `name`, with a star where it needs hardware that is not on sale: as tables show it, above [`NOT_ON_SALE`].
pub fn marked(name: &str) -> String {
    match is_on_sale(name) {
        true => name.to_owned(),
        false => format!("{name} *"),
    }
}

/// What the star of [`marked`] means.
pub const NOT_ON_SALE: &str = "* needs hardware that is not on sale";

/// Those of the policies called `names` that need hardware which no vendor sells, in the same order.
pub fn unbuilt<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.filter(|name| !is_on_sale(name)).collect()
}

/// Whether the device of `profile` can run the policy called `name` for so many tenants. Fails as [`parts`] does, and
/// if a part needs what the device lacks.
pub fn check_device(name: &str, profile: &Profile, tenants: usize) -> Result<(), StackError> {
    for part in parts(name)? {
        let lacks = match part.needs {
            Feature::Any => None,
            Feature::VirtualFunctions => {
                too_few(profile.virtual_functions, tenants, "virtual function")
            }
            Feature::TrafficClasses => too_few(profile.traffic_classes, tenants, "traffic class"),
            Feature::CongestionNotification if profile.link_layer == LinkLayer::Roce => None,
            Feature::CongestionNotification => Some(
                "has no congestion notifications, which are RoCEv2's: choose a RoCE profile"
                    .to_owned(),
            ),
        };
        if let Some(lacks) = lacks {
            return Err(StackError::Device {
                part: part.name,
                profile: profile.name.clone(),
                lacks,
            });
        }
    }
    Ok(())
}

fn too_few(has: u32, tenants: usize, what: &str) -> Option<String> {
    match has as usize {
        0 => Some(format!(
            "has no {what} support: choose another policy or profile"
        )),
        has if has < tenants => Some(format!(
            "has {has} of them and there are {tenants} tenants, which need one {what} each: \
             choose another policy or run fewer tenants"
        )),
        _ => None,
    }
}

fn agree(
    name: &str,
    first: &'static PolicyPart,
    second: &'static PolicyPart,
) -> Result<(), StackError> {
    if first.name == second.name {
        return Err(StackError::Twice {
            name: name.to_owned(),
            part: first.name,
        });
    }
    let refused = REFUSED.iter().find(|(a, b, _)| {
        [*a, *b] == [first.name, second.name] || [*b, *a] == [first.name, second.name]
    });
    if let Some((_, _, reason)) = refused {
        return Err(StackError::Refused {
            first: first.name,
            second: second.name,
            reason,
        });
    }
    let alone = |part: &PolicyPart| {
        part.slots
            .iter()
            .any(|slot| matches!(slot, Slot::Nothing | Slot::Whole))
    };
    let shared = first.slots.iter().find(|slot| second.slots.contains(slot));
    let what = match shared {
        Some(slot) => slot.what(),
        None if alone(first) || alone(second) => "everything",
        None => return Ok(()),
    };
    Err(StackError::SameSlot {
        first: first.name,
        second: second.name,
        what,
    })
}

impl Slot {
    /// In words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Nothing | Self::Whole => "everything",
            Self::Pacing => "when work requests reach the RDMA NIC",
            Self::Scheduler => "the RDMA NIC's transmit scheduler",
            Self::Classes => "the RDMA NIC's hardware queues",
            Self::Functions => "virtual functions",
            Self::Monitor => "rate limits from inside the RDMA NIC",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_with_a_part_that_is_not_on_sale_is_marked() {
        for (name, shown) in [
            ("justitia", "justitia"),
            ("isolane-sw", "isolane-sw"),
            ("isolane", "isolane *"),
            ("palos+hw-tc", "palos+hw-tc *"),
        ] {
            assert_eq!(marked(name), shown);
        }
    }

    #[test]
    fn parts_of_different_slots_combine_in_any_order() {
        assert_eq!(canonical("sriov+hw-tc").unwrap(), "hw-tc+sriov");
        assert_eq!(canonical("hw-tc + justitia").unwrap(), "justitia+hw-tc");
        assert_eq!(
            canonical("palos+hw-tc+sriov+harmonic").unwrap(),
            "palos+hw-tc+sriov+harmonic"
        );
    }

    #[test]
    fn what_does_not_combine_says_why() {
        let says = |name: &str| parts(name).unwrap_err().to_string();
        assert!(
            says("justitia+lite").contains("both control when work requests reach the RDMA NIC")
        );
        assert!(says("sriov+justitia").contains("one function"));
        assert!(says("none+justitia").contains("everything"));
        assert!(says("isolane+palos").contains("everything"));
        assert!(says("hw-priority+hw-tc").contains("hardware queues"));
        assert!(says("palos+palos").contains("twice"));
        assert!(says("palos+plaos").contains("\"plaos\" is not a policy"));
        assert!(says("").contains("is not a policy"));
    }

    #[test]
    fn everything_side_by_side_is_canonical_and_complete() {
        for name in ALL {
            assert_eq!(canonical(name).as_deref(), Ok(*name));
        }
        for part in POLICIES {
            assert!(ALL.contains(&part.name), "{}", part.name);
        }
    }

    #[test]
    fn a_stack_honours_weights_when_a_part_does() {
        assert!(WEIGHTED.iter().all(|name| part(name).is_some()));
        assert!(honours_weights("justitia+hw-tc") && honours_weights("hw-tc+lite"));
        assert!(!honours_weights("none") && !honours_weights("nonsense"));
    }

    #[test]
    fn a_stack_needs_new_hardware_when_a_part_does() {
        assert!(UNBUILT.iter().all(|name| part(name).is_some()));
        let names = ["isolane-sw", "isolane", "palos+hw-tc", "none", "nonsense"];
        assert_eq!(unbuilt(names.into_iter()), ["isolane", "palos+hw-tc"]);
    }

    #[test]
    fn a_stack_has_the_parameters_of_its_parts() {
        let names: Vec<&str> = parameters("justitia+hw-tc")
            .iter()
            .map(|p| p.name)
            .collect();
        assert!(names.contains(&"target_us") && names.contains(&"rate_limit"));
        assert!(parameters("nonsense").is_empty());
    }
}
