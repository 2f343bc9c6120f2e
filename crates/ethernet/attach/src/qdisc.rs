//! The queueing disciplines of a device, and the programs on its egress.
//!
//! Limits: only kind and parent are kept, and the traffic classes of `mqprio`. Source: rtnetlink(7), `linux/pkt_sched.h`.

use crate::error::NicError;
use crate::link::Route;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::{Attributes, Request};
use serde::Serialize;
use std::collections::BTreeMap;

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const ETH_P_ALL: u16 = 3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
/// `struct tc_mqprio_qopt`: number of classes, class of each priority, flag, then number and first of each class's queues.
const MQPRIO_BYTES: usize = 82;
const MQPRIO_COUNTS: usize = 18;
const PRIORITIES: usize = 16;
/// `struct tcmsg`: family, padding, device, handle, parent, info.
const HEADER_BYTES: usize = 20;
/// The parent of the root discipline, and of clsact.
const ROOT: u32 = 0xffff_ffff;
const CLSACT: u32 = 0xffff_fff1;
/// Parent of clsact's egress programs.
const EGRESS: u32 = 0xffff_fff3;

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Discipline {
    /// Kind, such as `mq` or `fq_codel`.
    pub kind: String,
    /// Handle of the discipline.
    #[serde(skip)]
    pub handle: u32,
    /// Handle of its parent.
    #[serde(skip)]
    pub parent: u32,
}

/// A program or rule on egress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Filter {
    /// Kind, such as `bpf` or `u32`.
    pub kind: String,
    /// Priority; lower values run first.
    pub preference: u16,
    /// Handle among those of its priority.
    #[serde(skip)]
    pub handle: u32,
    /// Name of the program; empty if it has none.
    pub name: String,
}

/// The disciplines of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Disciplines {
    /// All disciplines in the kernel's order.
    pub all: Vec<Discipline>,
    /// The queues of the traffic class of each priority, by `mqprio`; empty without classes.
    #[serde(skip)]
    pub priority_queues: [u64; PRIORITIES],
}

impl Disciplines {
    /// The root's kind; `None` if the device has none (`noqueue`).
    pub fn root(&self) -> Option<&str> {
        let root = self.all.iter().find(|discipline| discipline.parent == ROOT);
        root.map(|root| root.kind.as_str())
    }

    /// Kinds of the disciplines at the transmit queues of `mq`, with their number.
    pub fn leaves(&self) -> BTreeMap<&str, usize> {
        let mut leaves = BTreeMap::new();
        let below = |discipline: &&Discipline| !matches!(discipline.parent, ROOT | CLSACT);
        for leaf in self.all.iter().filter(below) {
            *leaves.entry(leaf.kind.as_str()).or_insert(0) += 1;
        }
        leaves
    }

    /// Whether clsact, which our program needs, is present.
    pub fn has_clsact(&self) -> bool {
        self.all
            .iter()
            .any(|discipline| discipline.kind == "clsact")
    }

    /// Whether a discipline splits segments into packets before the device, as cake does.
    pub fn cuts_segments(&self) -> bool {
        self.all.iter().any(|discipline| discipline.kind == "cake")
    }

    /// The disciplines as text: `mq with 8 fq_codel`.
    pub fn text(&self) -> String {
        let root = self.root().unwrap_or("noqueue");
        let leaves = self.leaves();
        let leaves: Vec<String> = leaves
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        match leaves.is_empty() {
            true => root.to_owned(),
            false => format!("{root} with {}", leaves.join(", ")),
        }
    }
}

/// Reads the disciplines of the device with that index.
pub fn read(route: &mut Route, index: u32) -> Result<Disciplines, NicError> {
    let request = dump(RTM_GETQDISC, index, 0);
    let mut disciplines = Disciplines::default();
    route.ask("list queueing disciplines", &request, |kind, payload| {
        let parsed = (kind == RTM_NEWQDISC).then(|| parse(payload)).flatten();
        // The kernel lists the disciplines of all devices.
        let Some((_, discipline)) = parsed.filter(|(device, _)| *device == index) else {
            return;
        };
        if discipline.kind == "mqprio" && discipline.parent == ROOT {
            disciplines.priority_queues = priority_queues(payload).unwrap_or_default();
        }
        disciplines.all.push(discipline);
    })?;
    Ok(disciplines)
}

/// The programs on the device's egress; `None` without clsact.
pub fn egress(route: &mut Route, index: u32) -> Result<Vec<Filter>, NicError> {
    let request = dump(RTM_GETTFILTER, index, EGRESS);
    let mut filters: Vec<Filter> = Vec::new();
    let asked = route.ask("list egress programs", &request, |kind, payload| {
        filters.extend((kind == RTM_NEWTFILTER).then(|| filter(payload)).flatten());
    });
    match asked {
        Ok(()) | Err(NicError::Host(HostError::NotOffered { .. })) => Ok(filters),
        Err(error) => Err(error),
    }
}

/// Removes a filter from the device's egress. A missing filter is not an error.
pub fn remove_egress(route: &mut Route, index: u32, filter: &Filter) -> Result<(), NicError> {
    let mut request = dump(RTM_DELTFILTER, index, EGRESS);
    request.dump = false;
    request.payload[8..12].copy_from_slice(&filter.handle.to_ne_bytes());
    let info = u32::from(filter.preference) << 16 | u32::from(ETH_P_ALL.to_be());
    request.payload[16..20].copy_from_slice(&info.to_ne_bytes());
    match route.ask("remove our egress program", &request, |_, _| {}) {
        Ok(()) | Err(NicError::Host(HostError::NotOffered { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

fn dump(kind: u16, index: u32, parent: u32) -> Request {
    let mut payload = vec![0; HEADER_BYTES];
    payload[4..8].copy_from_slice(&index.to_ne_bytes());
    payload[12..16].copy_from_slice(&parent.to_ne_bytes());
    Request {
        kind,
        dump: true,
        create: false,
        payload,
    }
}

/// Interface index and discipline of the message's payload.
pub fn parse(payload: &[u8]) -> Option<(u32, Discipline)> {
    let attributes = Attributes::new(payload.get(HEADER_BYTES..)?);
    let discipline = Discipline {
        kind: attributes.text(TCA_KIND)?,
        handle: word(payload, 8)?,
        parent: word(payload, 12)?,
    };
    Some((word(payload, 4)?, discipline))
}

/// The queues of the class of each priority, of a message about `mqprio`. Queues above 64 are not managed.
fn priority_queues(payload: &[u8]) -> Option<[u64; PRIORITIES]> {
    let attributes = Attributes::new(payload.get(HEADER_BYTES..)?);
    let options = attributes.bytes(TCA_OPTIONS)?.get(..MQPRIO_BYTES)?;
    let short = |at: usize| u32::from(u16::from_ne_bytes([options[at], options[at + 1]]));
    let mut queues = [0; PRIORITIES];
    for (priority, queues) in queues.iter_mut().enumerate() {
        let class = usize::from(options[1 + priority]) % PRIORITIES;
        let count = short(MQPRIO_COUNTS + 2 * class);
        let first = short(MQPRIO_COUNTS + 2 * (PRIORITIES + class));
        let all = u64::MAX.checked_shr(64_u32.saturating_sub(count));
        *queues = all.unwrap_or(0).checked_shl(first).unwrap_or(0);
    }
    Some(queues)
}

/// The filter of a message; `None` for the message of a whole priority.
fn filter(payload: &[u8]) -> Option<Filter> {
    let attributes = Attributes::new(payload.get(HEADER_BYTES..)?);
    let handle = word(payload, 8)?;
    let kind = attributes.text(TCA_KIND)?;
    let name = match kind.as_str() {
        "bpf" => attributes.nested(TCA_OPTIONS).text(TCA_BPF_NAME),
        _ => None,
    };
    (handle != 0).then_some(Filter {
        kind,
        handle,
        preference: (word(payload, 16)? >> 16) as u16,
        name: name.unwrap_or_default(),
    })
}

fn word(payload: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        payload.get(at..at + 4)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::netlink::AttributesBuilder;
    use proptest::prelude::*;

    fn message(kind: &str, handle: u32, parent: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&9u32.to_ne_bytes());
        bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
        bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
        bytes.extend(AttributesBuilder::new().with_text(TCA_KIND, kind).bytes());
        bytes
    }

    #[test]
    fn a_tree_is_described_in_a_few_words() {
        let leaves = (1..=8u32).map(|queue| message("pfifo_fast", 0, 0x1_0000 | queue));
        let all: Vec<Discipline> = leaves
            .chain([
                message("mq", 0x1_0000, ROOT),
                message("clsact", 0xffff_0000, CLSACT),
            ])
            .map(|bytes| parse(&bytes).unwrap().1)
            .collect();
        let disciplines = Disciplines {
            all,
            ..Disciplines::default()
        };
        assert_eq!(disciplines.text(), "mq with 8 pfifo_fast");
        assert!(disciplines.has_clsact());
        assert_eq!(Disciplines::default().text(), "noqueue");
    }

    #[test]
    fn loopback_has_no_queue_and_no_program() {
        let mut route = Route::open().unwrap();
        assert_eq!(read(&mut route, 1).unwrap().text(), "noqueue");
        assert_eq!(egress(&mut route, 1).unwrap(), []);
    }

    #[test]
    fn priorities_have_the_queues_of_their_class() {
        let mut options = vec![0; MQPRIO_BYTES];
        options[0] = 2;
        options[1 + 5] = 1;
        for (at, value) in [(0, 6), (1, 2), (PRIORITIES, 0), (PRIORITIES + 1, 6)] {
            options[MQPRIO_COUNTS + 2 * at] = value;
        }
        let mut bytes = message("mqprio", 0x8001_0000, ROOT);
        bytes.extend(AttributesBuilder::new().with(TCA_OPTIONS, &options).bytes());
        let queues = priority_queues(&bytes).unwrap();
        assert_eq!((queues[0], queues[5], queues[15]), (0x3f, 0xc0, 0x3f));
        assert_eq!(priority_queues(&message("mqprio", 0, ROOT)), None);
    }

    proptest! {
        #[test]
        fn damaged_messages_are_read_without_a_panic(at in any::<proptest::sample::Index>(), value in any::<u8>(), cut in any::<proptest::sample::Index>()) {
            let mut bytes = message("bpf", 1, EGRESS);
            let length = bytes.len();
            bytes[at.index(length)] = value;
            bytes.truncate(cut.index(length + 1));
            let _ = (parse(&bytes), filter(&bytes), priority_queues(&bytes));
        }
    }
}
