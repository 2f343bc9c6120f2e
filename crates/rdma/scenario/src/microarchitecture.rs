//! Parameters of mechanisms that only some devices show: the section `microarchitecture` of a profile.
//!
//! A profile without the section has none of these mechanisms. One with it gives every parameter, and says 0 where the
//! device is not known to have the mechanism. `docs/internals/rnic-anomalies.md` explains them, and `soft-roce.md` the last one.

use isolane_common_toml_input::sourced::{Parameter, parameter};

const fn micro(name: &'static str, most: f64, about: &'static str) -> Parameter {
    parameter("microarchitecture", name, (0.0, most), about)
}

/// Every parameter of the section; 0 turns its mechanism off.
#[rustfmt::skip]
pub const MICROARCHITECTURE: &[Parameter] = &[
    micro("receive_cache_bytes", 1e9, "receives that the device keeps, read when they are posted; 0: read in lines ahead of use"),
    micro("receive_ud_bytes", 4096.0, "a datagram pair's receive in that cache"),
    micro("receive_miss_slots", 1024.0, "receives, and kept requests, read again at once"),
    micro("receive_miss_ns", 1e5, "one such read"),
    micro("receive_ud_miss_ns", 1e5, "so much longer for a datagram pair's displaced receive"),
    micro("receive_list_bytes", 1e6, "a posted list of at least this much is read ahead whole, also into a full cache"),
    micro("receive_burst", 1e6, "receives in a list that is read as soon as it is posted"),
    micro("receive_window_bytes", 1e9, "what such lists may fill of one pair before the newest takes the place of the next in turn"),
    micro("receive_credits", 1.0, "1: acknowledgements grant only receives that were read, and datagrams without one are dropped"),
    micro("receive_cell_bytes", 65536.0, "least room that a packet takes in the receive buffer"),
    micro("request_cache_bytes", 1e9, "requests that the device keeps until their list is done"),
    micro("responder_pair_bytes", 1e6, "what a pair's responder takes of that for READs to answer"),
    micro("response_packet_ns", 1e5, "the requester's work for a further packet of one READ response"),
    micro("list_lookahead", 1.0, "1: only the first request of a list waits for translations"),
    micro("translation_levels", 2.0, "2: a region's entry is read before its translation"),
    micro(
        "translation_page_bytes",
        2_147_483_648.0,
        "memory that one translation entry covers, rounded down to a power of two; 0: 4096, and a run begins with none of them",
    ),
    micro("fetch_context", 1.0, "1: fetching work requests needs the pair's context"),
    micro("hot_requests", 1e9, "requests of lists inside the packet processor"),
    micro("swap_ns", 1e5, "bringing another pair's list in amid a message, while packets of both directions wait"),
    micro("staging_bytes", 1e9, "packet memory, reserved by connections"),
    micro("staging_element_bytes", 4096.0, "what each scatter-gather element reserves of it"),
    micro("ordering_ns", 1e5, "host without relaxed ordering: writes wait so long between a short and a long element of one read"),
    micro("remote_socket_gbps", 1e4, "path to the other socket's memory, both directions together"),
    micro("gpu_gbps", 1e4, "path to GPU memory, both directions together"),
    micro("copy_gbps", 1e4, "device in software: its processor copies and checks payload at this rate, between packets; 0: payload moves beside them"),
];
