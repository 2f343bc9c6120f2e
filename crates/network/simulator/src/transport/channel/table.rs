//! Which channel serves (sender, receiver, class).
//!
//! Small networks have a flat array, made row by row when a host first sends; large ones an ordered map, because the
//! array would grow with the square of the hosts. It is read once per message, never per packet.

use crate::packet::{HostId, NIL};
use isolane_network_scenario::model::CLASSES_MAX;
use std::collections::BTreeMap;

/// Hosts up to which rows are flat: a row of 1,024 hosts and 8 classes has 32 KiB.
const FLAT_HOSTS: u32 = 1_024;

#[derive(Clone, Debug)]
pub(crate) enum Table {
    Flat(Vec<Vec<u32>>),
    Ordered(BTreeMap<(u16, u16, u8), u32>),
}

impl Table {
    pub(crate) fn new(hosts: u32) -> Self {
        if hosts <= FLAT_HOSTS {
            Self::Flat(vec![Vec::new(); hosts as usize])
        } else {
            Self::Ordered(BTreeMap::new())
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
            Self::Flat(rows) => {
                let hosts = rows.len();
                let row = &mut rows[usize::from(from.0)];
                if row.is_empty() {
                    row.resize(hosts * CLASSES_MAX, NIL);
                }
                let slot = &mut row[usize::from(to.0) * CLASSES_MAX + usize::from(class)];
                if *slot == NIL {
                    *slot = fresh;
                }
                *slot
            }
            Self::Ordered(map) => *map.entry((from.0, to.0, class)).or_insert(fresh),
        }
    }
}
