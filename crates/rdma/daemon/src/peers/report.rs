//! The daemons' reports: for one peer, as bytes, and their sum.
//!
//! Method: one fixed message of [`REPORT_BYTES`]: magic, version, the seven numbers of [`RemoteState`] in little
//! endian. Every number is checked against what a machine can have, so that a broken peer cannot make sums overflow.
//! Source: justitia 4.5 for the content.

use isolane_common_quantities::units::{BitRate, Ratio};
use isolane_rdma_policy::RemoteState;

/// Size of a report, bytes.
pub const REPORT_BYTES: usize = 8 + 7 * 8;
/// Largest sum of weights: a million processes of the largest weight.
pub const WEIGHTS_MAX: u64 = 1 << 40;
/// Largest granted rate: a hundred times the fastest port of today.
pub const RATE_MAX: BitRate = BitRate::from_gbps(100_000);

const MAGIC: [u8; 4] = *b"ISLR";
const VERSION: u32 = 1;

/// Why bytes are not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ReportError {
    #[error("a report has {REPORT_BYTES} bytes, this one {bytes}")]
    Length { bytes: usize },
    #[error("not a report of version {VERSION}; all daemons must be of the same release")]
    Version,
    #[error("{field} of a report is {value}, which no machine has")]
    Field { field: &'static str, value: u64 },
}

/// Encodes the state; larger numbers are cut to the limits.
pub fn encode(state: &RemoteState) -> [u8; REPORT_BYTES] {
    let mut bytes = [0; REPORT_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    let rate = state.read_rate.as_bps().min(RATE_MAX.as_bps());
    let numbers = weights(state).map(|(_, weight)| weight.min(WEIGHTS_MAX));
    for (place, number) in bytes[8..]
        .chunks_exact_mut(8)
        .zip(numbers.into_iter().chain([rate]))
    {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Decodes arbitrary bytes.
pub fn decode(bytes: &[u8]) -> Result<RemoteState, ReportError> {
    if bytes.len() != REPORT_BYTES {
        return Err(ReportError::Length { bytes: bytes.len() });
    }
    if bytes[..4] != MAGIC || bytes[4..8] != VERSION.to_le_bytes() {
        return Err(ReportError::Version);
    }
    let number = |index: usize| {
        let bytes: Vec<u8> = bytes[8 + 8 * index..][..8].to_vec();
        bytes
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let weights_of = std::array::from_fn(number);
    let state = RemoteState::of(weights_of, BitRate::from_bps(number(6)));
    for (field, value) in weights(&state) {
        if value > WEIGHTS_MAX {
            return Err(ReportError::Field { field, value });
        }
    }
    match state.read_rate <= RATE_MAX {
        true => Ok(state),
        false => Err(ReportError::Field {
            field: "read_rate",
            value: state.read_rate.as_bps(),
        }),
    }
}

fn weights(state: &RemoteState) -> [(&'static str, u64); 6] {
    [
        ("sending_hungry_weight", state.sending_hungry_weight),
        ("sending_latency_weight", state.sending_latency_weight),
        ("reading_hungry_weight", state.reading_hungry_weight),
        ("reading_latency_weight", state.reading_latency_weight),
        ("receiving_hungry_weight", state.receiving_hungry_weight),
        ("receiving_latency_weight", state.receiving_latency_weight),
    ]
}

/// The policy's view of many peers: weights that send and READ are added; of the receivers' reports, the one with the
/// most senders counts (see [`RemoteState`]). Grants are no sum: each is for READs from its peer.
pub fn total<'a>(states: impl IntoIterator<Item = &'a RemoteState>) -> RemoteState {
    let mut total = RemoteState::default();
    for state in states {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        total.sending_hungry_weight = sum(total.sending_hungry_weight, state.sending_hungry_weight);
        total.sending_latency_weight =
            sum(total.sending_latency_weight, state.sending_latency_weight);
        total.reading_hungry_weight = sum(total.reading_hungry_weight, state.reading_hungry_weight);
        total.reading_latency_weight =
            sum(total.reading_latency_weight, state.reading_latency_weight);
        let fan_in = |state: &RemoteState| {
            sum(
                state.receiving_hungry_weight,
                state.receiving_latency_weight,
            )
        };
        if fan_in(state) > fan_in(&total) {
            total.receiving_hungry_weight = state.receiving_hungry_weight;
            total.receiving_latency_weight = state.receiving_latency_weight;
        }
    }
    total
}

/// The report for one peer, which READs with the weight `theirs` of `all`: the weights of our READs from it, and its part
/// of what we grant to all.
pub fn for_peer(state: &RemoteState, reads: [u64; 2], theirs: u64, all: u64) -> RemoteState {
    let part = match theirs {
        0 => 0,
        theirs => Ratio::new(theirs, all.max(theirs)).of(state.read_rate.as_bps()),
    };
    RemoteState {
        reading_hungry_weight: reads[0],
        reading_latency_weight: reads[1],
        read_rate: BitRate::from_bps(part),
        ..*state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> impl Strategy<Value = RemoteState> {
        let weights = prop::array::uniform6(0..=WEIGHTS_MAX);
        (weights, 0..=RATE_MAX.as_bps())
            .prop_map(|(weights, rate)| RemoteState::of(weights, BitRate::from_bps(rate)))
    }

    proptest! {
        #[test]
        fn the_received_message_equals_the_sent_one(state in state()) {
            prop_assert_eq!(decode(&encode(&state)), Ok(state));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..2 * REPORT_BYTES)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_changed_report_is_refused_or_within_limits(state in state(), at in 0..REPORT_BYTES, byte: u8) {
            let mut bytes = encode(&state);
            bytes[at] = byte;
            if let Ok(heard) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&heard)), Ok(heard));
            }
        }

        #[test]
        fn sums_are_at_least_their_parts_and_do_not_depend_on_order(mut states in prop::collection::vec(state(), 1..6)) {
            let before = total(&states);
            for state in &states {
                prop_assert!(before.sending_hungry_weight >= state.sending_hungry_weight);
                let fan_in = |state: &RemoteState| state.receiving_hungry_weight + state.receiving_latency_weight;
                prop_assert!(fan_in(&before) >= fan_in(state));
            }
            states.reverse();
            prop_assert_eq!(before.sending_latency_weight, total(&states).sending_latency_weight);
        }
    }

    #[test]
    fn one_peer_is_its_own_sum() {
        let state = RemoteState {
            receiving_hungry_weight: 3,
            sending_latency_weight: 1,
            ..RemoteState::default()
        };
        assert_eq!(total([&state]), state);
    }

    #[test]
    fn peers_share_what_is_granted_by_the_weights_of_their_reads() {
        let state = RemoteState {
            reading_hungry_weight: 9,
            read_rate: BitRate::from_gbps(60),
            ..RemoteState::default()
        };
        let of = |theirs| for_peer(&state, [2, 1], theirs, 3).read_rate;
        assert_eq!([of(0), of(1), of(2)], [0, 20, 40].map(BitRate::from_gbps));
        let report = for_peer(&state, [2, 1], 3, 3);
        assert_eq!(
            (report.reading_hungry_weight, report.reading_latency_weight),
            (2, 1)
        );
    }

    #[test]
    fn other_versions_and_sizes_are_named() {
        let mut bytes = encode(&RemoteState::default());
        assert_eq!(
            decode(&bytes[1..]),
            Err(ReportError::Length {
                bytes: REPORT_BYTES - 1
            })
        );
        bytes[4] = 2;
        assert_eq!(decode(&bytes), Err(ReportError::Version));
    }
}
