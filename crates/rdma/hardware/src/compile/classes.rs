//! Traffic classes as data centre bridging: scheduling, DSCP, flow control, buffers.
//!
//! Method: traffic class 0 keeps every priority without a class of the policy. Classes with a share follow, then strict
//! ones, because a strict class is served before every class with a lower number. Class 0 and classes without a share of
//! their own divide what explicit shares leave in proportion to their tenants' rates. Priorities 6 and 7 are not chosen:
//! RNICs send congestion notifications with 6, switches control packets with 7.

use super::{CompileError, Draft};
use crate::host::LinkLayer;
use crate::plan::Actuator;
use crate::policy::Class;
use crate::setting::{Classes, Selection, Target, Value};

/// A class of the policy on the device.
pub(super) struct Placed {
    pub(super) name: String,
    /// Priority of its packets; on InfiniBand the service level.
    pub(super) priority: u8,
    pub(super) dscp: Option<u8>,
    pub(super) strict: bool,
    /// Whether the device schedules it. On InfiniBand the subnet manager does.
    pub(super) scheduled: bool,
}

/// Priority of a lossless class by custom; doctor and switches' guides use it too.
const LOSSLESS: u8 = 3;
/// Priorities to choose from, strict classes from the front.
const FREE: [u8; 5] = [5, 4, 2, 1, 3];

/// Adds the classes; returns those that packets can be put into.
pub(super) fn add(draft: &mut Draft<'_>) -> Result<Vec<Placed>, CompileError> {
    let policy = draft.policy;
    if policy.classes.is_empty() {
        return Ok(Vec::new());
    }
    let priorities = priorities(&policy.classes)?;
    if draft.device.link_layer == LinkLayer::Infiniband {
        return Ok(add_infiniband(draft, &priorities));
    }
    let Some(bridging) = draft
        .device
        .bridging
        .as_ref()
        .filter(|found| found.classes > 0)
    else {
        for class in &policy.classes {
            let reason = format!(
                "the driver {} has no traffic classes (data centre bridging)",
                draft.device.driver
            );
            remain(draft, class, reason);
        }
        return Ok(Vec::new());
    };
    // Class 0 is for everything else.
    let most = usize::from(bridging.classes.min(8)) - 1;
    let (kept, dropped) = kept(&policy.classes, most);
    for class in dropped {
        let reason = format!(
            "the device has {} traffic classes, and one is for all other traffic",
            bridging.classes
        );
        remain(draft, class, reason);
    }
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    add_scheduling(draft, &kept, &priorities);
    add_dscp(draft, &kept, &priorities);
    add_flow_control(draft, &kept, &priorities);
    let place = |class: &&Class| Placed {
        name: class.name.clone(),
        priority: priority(&priorities, class),
        dscp: class.dscp,
        strict: class.strict,
        scheduled: true,
    };
    Ok(kept.iter().map(place).collect())
}

fn remain(draft: &mut Draft<'_>, class: &Class, reason: String) {
    let need = match (class.strict, class.share_percent) {
        (true, _) => "served first".to_owned(),
        (false, Some(percent)) => format!("{percent} % of the port"),
        (false, None) => "a share of the port".to_owned(),
    };
    let by = draft.software(Actuator::Daemon);
    draft.remain(format!("class {}", class.name), need, by, reason);
}

/// The priority of each class, by name.
fn priorities(classes: &[Class]) -> Result<Vec<(String, u8)>, CompileError> {
    let mut taken: Vec<u8> = classes.iter().filter_map(|class| class.priority).collect();
    let mut chosen = Vec::new();
    // Strict classes choose first, so that they get the highest.
    let order = classes
        .iter()
        .filter(|class| class.strict)
        .chain(classes.iter().filter(|class| !class.strict));
    for class in order {
        let free = |priority: &u8| !taken.contains(priority);
        let lossless = class.lossless.then_some(LOSSLESS).filter(free);
        let priority = class
            .priority
            .or(lossless)
            .or_else(|| FREE.into_iter().find(free));
        let priority = priority.ok_or_else(|| CompileError::NoPriority {
            class: class.name.clone(),
        })?;
        taken.push(priority);
        chosen.push((class.name.clone(), priority));
    }
    Ok(chosen)
}

fn priority(priorities: &[(String, u8)], class: &Class) -> u8 {
    let found = priorities.iter().find(|(name, _)| *name == class.name);
    found.expect("every class has a priority").1
}

/// Classes in the order of their numbers, and those for which there is none: strict classes are kept first.
fn kept(classes: &[Class], most: usize) -> (Vec<&Class>, Vec<&Class>) {
    let strict = classes.iter().filter(|class| class.strict);
    let shared = classes.iter().filter(|class| !class.strict);
    let by_need: Vec<&Class> = strict.chain(shared).collect();
    let (kept, dropped) = by_need.split_at(by_need.len().min(most));
    let mut kept = kept.to_vec();
    // Stable: the file's order within each kind. The first strict class of the file gets the highest number.
    let strict = kept.iter().filter(|class| class.strict).count();
    kept[..strict].reverse();
    kept.rotate_left(strict);
    (kept, dropped.to_vec())
}

fn add_scheduling(draft: &mut Draft<'_>, kept: &[&Class], priorities: &[(String, u8)]) {
    let Some(device) = draft.device.network_device.clone() else {
        return;
    };
    let mut classes = Classes::default();
    let mut words = Vec::new();
    classes.selection[0] = Selection::Share;
    for (index, class) in kept.iter().enumerate() {
        let number = index + 1;
        let number_u8 = u8::try_from(number).expect("at most seven classes are kept");
        classes.class_of_priority[usize::from(priority(priorities, class))] = number_u8;
        classes.selection[number] = match class.strict {
            true => Selection::Strict,
            false => Selection::Share,
        };
        words.push(format!("{} is class {number}", class.name));
    }
    classes.share_percent = percents(draft, kept);
    let reason = format!("{}, all else is class 0", words.join(", "));
    let target = Target::Classes {
        network_device: device,
    };
    draft.set(target, Value::Classes(classes), reason);
}

/// Shares of class 0 and of the classes in `kept`, which sum to 100.
fn percents(draft: &Draft<'_>, kept: &[&Class]) -> [u8; 8] {
    let rate_of = |class: Option<&str>| -> u128 {
        let of_class = |(index, tenant): (usize, &crate::policy::Tenant)| {
            (tenant.class.as_deref() == class).then(|| u128::from(draft.shares[index].bps))
        };
        draft.tenants().filter_map(of_class).sum()
    };
    // Explicit shares first; the others as numbers of classes with their tenants' rates, each at least 1 b/s.
    let mut percents = [0u8; 8];
    let mut others: Vec<(usize, u128)> = vec![(0, rate_of(None).max(1))];
    for (index, class) in kept.iter().enumerate().filter(|(_, class)| !class.strict) {
        match class.share_percent {
            Some(percent) => percents[index + 1] = percent,
            None => others.push((index + 1, rate_of(Some(&class.name)).max(1))),
        }
    }
    let explicit: u8 = percents.iter().sum();
    let left = 100 - explicit;
    let sum: u128 = others.iter().map(|(_, rate)| rate).sum();
    let mut rest = left;
    // Rounded down, at least 1 %; the rest goes to the class with the largest rate, class 0 first of equals.
    for (number, rate) in &others {
        let part =
            u8::try_from(u128::from(left) * rate / sum).expect("a part of 100 is at most 100");
        percents[*number] = part.max(1).min(rest);
        rest -= percents[*number];
    }
    let largest = others
        .iter()
        .rev()
        .max_by_key(|(_, rate)| *rate)
        .expect("class 0 is there")
        .0;
    percents[largest] += rest;
    percents
}

fn add_dscp(draft: &mut Draft<'_>, kept: &[&Class], priorities: &[(String, u8)]) {
    let Some(device) = draft.device.network_device.clone() else {
        return;
    };
    for class in kept {
        let priority = priority(priorities, class);
        let Some(dscp) = class.dscp else {
            let reason = format!(
                "it has no dscp, so packets carry its priority {priority} only in a VLAN tag"
            );
            draft.remain(
                format!("class {}", class.name),
                "marked packets".to_owned(),
                Actuator::Operator,
                reason,
            );
            continue;
        };
        let target = Target::Dscp {
            network_device: device.clone(),
            dscp,
        };
        let value = Value::Dscp {
            priorities: vec![priority],
        };
        draft.set(
            target,
            value,
            format!("class {}: DSCP {dscp} is priority {priority}", class.name),
        );
    }
}

fn add_flow_control(draft: &mut Draft<'_>, kept: &[&Class], priorities: &[(String, u8)]) {
    let (Some(device), Some(bridging)) =
        (draft.device.network_device.clone(), &draft.device.bridging)
    else {
        return;
    };
    let mut enabled = bridging.flow_control_enabled;
    let mut lossless = Vec::new();
    for class in kept {
        let bit = 1u8 << priority(priorities, class);
        enabled &= !bit;
        if class.lossless {
            enabled |= bit;
            lossless.push(*class);
        }
    }
    let names: Vec<&str> = lossless.iter().map(|class| class.name.as_str()).collect();
    let count = u8::try_from(lossless.len()).expect("at most seven classes are kept");
    if count > bridging.flow_control {
        let reason = format!("the port can pause {} priorities", bridging.flow_control);
        let subject = format!("class {}", names.join(", "));
        draft.remain(subject, "lossless".to_owned(), Actuator::Operator, reason);
        return;
    }
    if bridging.flow_control == 0 {
        return;
    }
    let reason = match names.is_empty() {
        true => "no class is lossless".to_owned(),
        false => format!(
            "lossless: {}; the switch must pause the same priorities",
            names.join(", ")
        ),
    };
    let target = Target::FlowControl {
        network_device: device,
    };
    draft.set(target, Value::FlowControl { enabled }, reason);
    if !lossless.is_empty() {
        add_buffers(draft, &lossless, priorities);
    }
}

/// A receive buffer for lossless classes: as large as mlx5 requires for the cable, and half as much again to use.
fn add_buffers(draft: &mut Draft<'_>, lossless: &[&Class], priorities: &[(String, u8)]) {
    let Some(metres) = draft.policy.cable_m else {
        return;
    };
    let remain = |draft: &mut Draft<'_>, reason: String| {
        let need = format!("a buffer for {metres} m of cable");
        let subject = format!("class {}", lossless[0].name);
        draft.remain(subject, need, Actuator::Operator, reason);
    };
    let buffers = draft
        .device
        .bridging
        .as_ref()
        .and_then(|found| found.buffers.clone());
    let (Some(device), Some(buffers)) = (draft.device.network_device.clone(), buffers) else {
        remain(draft, "the driver shows no receive buffers".to_owned());
        return;
    };
    let headroom = headroom_bytes(
        metres,
        draft.device.rate_bps.max(draft.rate_bps),
        draft.device.mtu_bytes,
    );
    let lossless_bytes = headroom + headroom / 2;
    let Some(left) = u64::from(buffers.total_bytes)
        .checked_sub(lossless_bytes)
        .filter(|left| *left >= headroom)
    else {
        let reason = format!(
            "it needs {lossless_bytes} B, and all buffers have {} B",
            buffers.total_bytes
        );
        remain(draft, reason);
        return;
    };
    let fits = |bytes: u64| u32::try_from(bytes).expect("a part of a 32-bit size");
    let mut buffer_of_priority = [0; 8];
    for class in lossless {
        buffer_of_priority[usize::from(priority(priorities, class))] = 1;
    }
    let mut sizes_bytes = [0; 8];
    (sizes_bytes[0], sizes_bytes[1]) = (fits(left), fits(lossless_bytes));
    let value = Value::Buffers {
        buffer_of_priority,
        sizes_bytes,
    };
    let target = Target::Buffers {
        network_device: device,
    };
    let reason =
        format!("lossless priorities need {headroom} B of headroom for {metres} m of cable");
    draft.set(target, value, reason);
}

/// Bytes that arrive after a pause was sent, as mlx5 computes them: (301 + 2.16 * metres) * Gb/s + 2.72 * MTU, at least
/// at 40 Gb/s, plus one frame; rounded up to 1 KiB, because drivers have cells of up to that size.
fn headroom_bytes(metres: u32, rate_bps: u64, mtu_bytes: u32) -> u64 {
    const FRAME_OVERHEAD: u64 = 26;
    let gbps = (rate_bps / 1_000_000_000).max(40);
    let frame = u64::from(mtu_bytes) + FRAME_OVERHEAD;
    let bytes = (30_100 + 216 * u64::from(metres)) * gbps / 100 + 272 * frame / 100 + frame;
    bytes.next_multiple_of(1_024)
}

/// On InfiniBand a class is a service level, which the subnet manager maps to a lane of the port.
fn add_infiniband(draft: &mut Draft<'_>, priorities: &[(String, u8)]) -> Vec<Placed> {
    let mut placed = Vec::new();
    for class in &draft.policy.classes {
        let priority = priority(priorities, class);
        let reason = format!(
            "on InfiniBand the subnet manager maps service level {priority} to a lane and schedules lanes (opensm: qos_sl2vl, qos_vlarb_high)"
        );
        let need = if class.strict {
            "served first"
        } else {
            "a share of the port"
        };
        draft.remain(
            format!("class {}", class.name),
            need.to_owned(),
            Actuator::SubnetManager,
            reason,
        );
        placed.push(Placed {
            name: class.name.clone(),
            priority,
            dscp: None,
            strict: class.strict,
            scheduled: false,
        });
    }
    placed
}
