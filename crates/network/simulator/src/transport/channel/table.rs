//! Which channel serves (sender, receiver, class).
//!
//! Small networks have a flat array of zeros, of which the system provides the pages that are used; large ones an ordered map,
//! because the array would grow with the square of the hosts. It is read once per message, never per packet.

use crate::packet::HostId;
use isolane_network_scenario::model::CLASSES_MAX;
use std::collections::BTreeMap;

/// Hosts up to which the array is flat: 32 MiB for 1,024 hosts and 8 classes.
const FLAT_HOSTS: u32 = 1_024;

#[derive(Clone, Debug)]
pub(crate) enum Table {
    Flat {
        hosts: usize,
        /// One more than the channel, 0 for none; by sender, receiver and class.
        channels: Vec<u32>,
    },
    Ordered(BTreeMap<(u16, u16, u8), u32>),
}

impl Table {
    pub(crate) fn new(hosts: u32) -> Self {
        if hosts > FLAT_HOSTS {
            return Self::Ordered(BTreeMap::new());
        }
        let hosts = hosts as usize;
        Self::Flat {
            hosts,
            channels: vec![0; hosts * hosts * CLASSES_MAX],
        }
    }

    /// The channel of these, or `fresh`, which it then is.
    #[inline]
    pub(crate) fn find_or_insert(
        &mut self,
        from: HostId,
        to: HostId,
        class: u8,
        fresh: u32,
    ) -> u32 {
        match self {
            Self::Flat { hosts, channels } => {
                let pair = usize::from(from.0) * *hosts + usize::from(to.0);
                let slot = &mut channels[pair * CLASSES_MAX + usize::from(class)];
                if *slot == 0 {
                    *slot = fresh + 1;
                }
                *slot - 1
            }
            Self::Ordered(map) => *map.entry((from.0, to.0, class)).or_insert(fresh),
        }
    }
}
