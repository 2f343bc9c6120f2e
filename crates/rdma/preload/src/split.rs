//! Splits a message's memory list: the part that belongs to a range of its bytes.
//!
//! Problem: a chunk of a large message needs its own list of local memory, cut anywhere in the application's list, even
//! where entries are empty. Method: walk the list, skip entries before the range, cut entries at its ends. Units:
//! bytes. Pure.

use isolane_rdma_verbs_sys::ibv_sge;

/// Writes the memory of `bytes` from `offset` on of a message with this memory list to `pieces`, and returns the number
/// of entries. Empty entries are left out. Panics if `pieces` is shorter than `list`.
pub(crate) fn cut(list: &[ibv_sge], offset: u64, bytes: u64, pieces: &mut [ibv_sge]) -> usize {
    let end = offset + bytes;
    let mut at = 0u64;
    let mut count = 0;
    for entry in list {
        let next = at + u64::from(entry.length);
        let (from, to) = (at.max(offset), next.min(end));
        if from < to {
            pieces[count] = ibv_sge {
                addr: entry.addr.wrapping_add(from - at),
                length: (to - from) as u32,
                lkey: entry.lkey,
            };
            count += 1;
        }
        at = next;
        if at >= end {
            break;
        }
    }
    count
}

/// Payload of a memory list.
pub(crate) fn total(list: &[ibv_sge]) -> u64 {
    list.iter().map(|entry| u64::from(entry.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Address and key of every byte of a list, in order.
    fn bytes_of(list: &[ibv_sge]) -> Vec<(u64, u32)> {
        let of = |entry: &ibv_sge| {
            let (addr, lkey) = (entry.addr, entry.lkey);
            (0..u64::from(entry.length)).map(move |at| (addr + at, lkey))
        };
        list.iter().flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn the_chunks_of_a_message_are_the_message(
            lengths in proptest::collection::vec(0u32..40, 0..8),
            chunk in 1u64..60,
        ) {
            let list: Vec<ibv_sge> = lengths.iter().enumerate().map(|(at, length)| ibv_sge {
                addr: 1_000 * at as u64,
                length: *length,
                lkey: at as u32,
            }).collect();
            let mut pieces = vec![ibv_sge::default(); list.len()];
            let (mut joined, mut offset) = (Vec::new(), 0);
            while offset < total(&list) {
                let bytes = chunk.min(total(&list) - offset);
                let count = cut(&list, offset, bytes, &mut pieces);
                prop_assert_eq!(total(&pieces[..count]), bytes);
                joined.extend(bytes_of(&pieces[..count]));
                offset += bytes;
            }
            prop_assert_eq!(joined, bytes_of(&list));
        }
    }

    #[test]
    fn an_empty_message_needs_no_memory() {
        let mut pieces = [ibv_sge::default(); 2];
        assert_eq!(cut(&[ibv_sge::default(); 2], 0, 0, &mut pieces), 0);
    }
}
