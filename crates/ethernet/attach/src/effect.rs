//! Checks whether flows get the chosen queues.
//!
//! Problem: a driver may choose queues itself, a later filter may change the choice, and XPS maps override it. Attached
//! programs then have no effect, and figures about them would be false. Method, in three places: a driver that is known
//! to ignore the choice is rejected ([`of_driver`]); every second the controller compares the queues of freed packets
//! with the chosen ones ([`Effect`]), where a choice counts only once one of its packets was sent; it also checks the maps. If a check fails, the programs step aside ([`Aside`])
//! and `status` reports the reason. Limits: a device that only passes packets on (veth) frees nothing itself. There the
//! kernel keeps a socket's queue while the receiver holds a packet, so only the maps are checked. Source of the table:
//! `ndo_select_queue` of each driver in the Linux kernel, and `netdev_pick_tx` for drivers without it.

use isolane_ethernet_bpf::DqaCounters;
use serde::{Deserialize, Serialize};

/// How a driver treats the queue recorded in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Uses it; the text holds restrictions, if any.
    Honoured(&'static str),
    /// Chooses itself; the text says how.
    Ignored(&'static str),
    /// Not in the table.
    Unknown,
}

/// Drivers by name: the bound driver in sysfs, else the kind of the device. Xen's network driver is bound as `vif`.
#[rustfmt::skip]
pub const DRIVERS: [(&str, Choice); 10] = [
    ("ena", Choice::Honoured("")),
    ("hv_netvsc", Choice::Honoured("")),
    ("mlx4_core", Choice::Honoured("without traffic classes")),
    ("mlx5_core", Choice::Honoured("within a traffic class; not with HTB offload")),
    ("virtio_net", Choice::Honoured("")),
    ("veth", Choice::Honoured("not measured: it only hands packets over")),
    ("ifb", Choice::Honoured("not measured: it only hands packets over")),
    ("dummy", Choice::Honoured("not measured: it only hands packets over")),
    ("tun", Choice::Ignored("chooses by a table of its own; only the program that opened the device can change that")),
    ("vif", Choice::Ignored("chooses by the packet's hash")),
];

/// The table's entry for a driver name.
pub fn of_driver(name: &str) -> Choice {
    let known = DRIVERS.iter().find(|(driver, _)| *driver == name);
    known.map_or(Choice::Unknown, |(_, choice)| *choice)
}

/// Why attached programs step aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Aside {
    /// The device has one queue.
    OneQueue,
    /// XPS maps are set, which override the programs.
    XpsMaps,
    /// Packets used other queues than the chosen ones.
    Overruled {
        /// Share of overruled choices, percent.
        percent: u8,
    },
}

/// Counts choices with a known effect over one second, or longer if there are few. A full ring drops all packets of many choices;
/// counted too, these would hide a driver that ignores every choice.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    before: DqaCounters,
    /// Counters at the last answer about sockets, which needs more choices.
    before_sockets: DqaCounters,
}

impl Effect {
    /// Fewest choices for a decision: with two queues, a driver that ignores them agrees with eight of eight once in
    /// 256.
    const CHOICES_MIN: u64 = 8;
    /// Largest tolerated share of overruled choices, percent.
    const PERCENT_MAX: u64 = 25;

    /// Fewest choices for a decision about sockets: a busy machine delays some choices in a row.
    const SOCKET_CHOICES_MIN: u64 = 64;
    /// Largest tolerated share of choices that sockets undo, percent.
    const SOCKET_PERCENT_MAX: u64 = 50;

    /// Starts from the current counters.
    pub fn new(counters: DqaCounters) -> Self {
        Self {
            before: counters,
            before_sockets: counters,
        }
    }

    /// The share of overruled choices since the last answer, percent, if it is too large. Choices that came after the kernel had
    /// decided to keep the socket's queue count only if most choices are of this kind: then they have no effect either.
    pub fn overruled(&mut self, now: DqaCounters) -> Option<u8> {
        if let Some(percent) = self.kept_by_sockets(now) {
            return Some(percent);
        }
        let chosen = choices(now, self.before);
        if chosen < Self::CHOICES_MIN {
            return None;
        }
        let overruled = now.moved.saturating_sub(self.before.moved);
        self.before = now;
        let percent = (overruled * 100 / chosen).min(100);
        (percent > Self::PERCENT_MAX).then_some(percent as u8)
    }

    fn kept_by_sockets(&mut self, now: DqaCounters) -> Option<u8> {
        let chosen = choices(now, self.before_sockets);
        if chosen < Self::SOCKET_CHOICES_MIN {
            return None;
        }
        let kept = now.socket.saturating_sub(self.before_sockets.socket);
        self.before_sockets = now;
        let percent = (kept * 100 / chosen).min(100);
        (percent > Self::SOCKET_PERCENT_MAX).then_some(percent as u8)
    }
}

/// Choices between two readings whose effect is known. Programs that an earlier version attached count only all choices.
fn choices(now: DqaCounters, before: DqaCounters) -> u64 {
    match now.checked {
        0 => now.assigned.saturating_sub(before.assigned),
        checked => checked.saturating_sub(before.checked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(checked: u64, moved: u64) -> DqaCounters {
        DqaCounters {
            assigned: checked * 4,
            checked,
            moved,
            ..DqaCounters::default()
        }
    }

    #[test]
    fn few_choices_say_nothing_and_add_up() {
        let mut effect = Effect::new(counted(100, 90));
        assert_eq!(effect.overruled(counted(107, 97)), None);
        assert_eq!(effect.overruled(counted(108, 98)), Some(100));
        assert_eq!(effect.overruled(counted(109, 99)), None);
    }

    #[test]
    fn choices_without_a_completed_packet_do_not_hide_a_driver() {
        let mut effect = Effect::new(DqaCounters::default());
        let mut counters = counted(70, 52);
        counters.assigned = 19_181;
        assert_eq!(effect.overruled(counters), Some(74));
    }

    #[test]
    fn programs_of_an_earlier_version_are_checked_by_all_choices() {
        let mut effect = Effect::new(DqaCounters::default());
        let mut counters = counted(0, 30);
        counters.assigned = 100;
        assert_eq!(effect.overruled(counters), Some(30));
    }

    #[test]
    fn a_socket_that_keeps_its_queue_now_and_then_is_no_reason() {
        let mut effect = Effect::new(DqaCounters::default());
        assert_eq!(effect.overruled(counted(100, 20)), None);
        assert_eq!(effect.overruled(counted(200, 60)), Some(40));
    }

    #[test]
    fn late_choices_count_only_where_most_choices_are_late() {
        let mut effect = Effect::new(DqaCounters::default());
        let mut counters = counted(20, 0);
        counters.socket = 11;
        assert_eq!(effect.overruled(counters), None);
        counters.checked = 64;
        counters.socket = 32;
        assert_eq!(effect.overruled(counters), None);
        counters.checked += 64;
        counters.socket += 33;
        assert_eq!(effect.overruled(counters), Some(51));
    }

    #[test]
    fn drivers_are_found_by_name() {
        assert!(matches!(of_driver("tun"), Choice::Ignored(_)));
        assert!(matches!(of_driver("mlx5_core"), Choice::Honoured(_)));
        assert_eq!(of_driver("e1000"), Choice::Unknown);
    }
}
