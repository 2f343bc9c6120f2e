//! Names of values, and rates.

use std::ffi::{CStr, c_char, c_int};

/// The entry of a list of names.
fn named(names: &'static [&'static CStr], value: c_int, unknown: &'static CStr) -> *const c_char {
    let index = usize::try_from(value).unwrap_or(usize::MAX);
    names.get(index).copied().unwrap_or(unknown).as_ptr()
}

/// `ibv_wc_status_str`.
pub fn status(value: c_int) -> *const c_char {
    named(STATUSES, value, c"unknown status")
}

/// `ibv_event_type_str`.
pub fn event(value: c_int) -> *const c_char {
    named(EVENTS, value, c"unknown event")
}

/// `ibv_port_state_str`.
pub fn port_state(value: c_int) -> *const c_char {
    named(PORT_STATES, value, c"unknown")
}

/// `ibv_node_type_str`.
pub fn node_type(value: c_int) -> *const c_char {
    named(NODE_TYPES, value, c"unknown")
}

const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];
const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migration",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal error",
];
const PORT_STATES: &[&CStr] = &[
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];
const NODE_TYPES: &[&CStr] = &[
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// `ibv_rate`, its multiple of 2.5 Gb/s (0 where it is none), and its rate, Mb/s.
const RATES: &[(c_int, c_int, c_int)] = &[
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 10, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 20, 53_125),
    (20, 80, 212_500),
    (21, 160, 425_000),
    (22, 320, 850_000),
    (23, 640, 1_275_000),
];

/// `ibv_rate_to_mult`.
pub fn rate_to_multiple(rate: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.0 == rate && entry.1 > 0);
    found.map_or(-1, |entry| entry.1)
}

/// `mult_to_ibv_rate`; 0 is the largest rate.
pub fn multiple_to_rate(multiple: c_int) -> c_int {
    let found = RATES
        .iter()
        .find(|entry| entry.1 == multiple && multiple > 0);
    found.map_or(0, |entry| entry.0)
}

/// `ibv_rate_to_mbps`.
pub fn rate_to_mbps(rate: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.0 == rate);
    found.map_or(-1, |entry| entry.2)
}

/// `mbps_to_ibv_rate`; 0 is the largest rate.
pub fn mbps_to_rate(mbps: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.2 == mbps);
    found.map_or(0, |entry| entry.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_both_ways() {
        for &(rate, multiple, mbps) in RATES {
            assert_eq!(mbps_to_rate(rate_to_mbps(rate)), rate, "{mbps} Mb/s");
            if multiple > 0 {
                assert_eq!(multiple_to_rate(rate_to_multiple(rate)), rate);
            }
        }
        assert_eq!((rate_to_mbps(99), multiple_to_rate(3)), (-1, 0));
    }
}
