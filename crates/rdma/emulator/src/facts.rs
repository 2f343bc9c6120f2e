//! What a profile's device shows of itself: GUID, addresses, link.

use isolane_rdma_emulated_verbs::attributes::{DeviceFacts, GIDS, Route};
use isolane_rdma_scenario::profile::{LinkLayer, Profile};
use isolane_rdma_verbs_sys::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_NODE_CA, IBV_NODE_RNIC,
    IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP,
};

/// `active_speed` and `active_width` of links, from the slowest: at most so many Gb/s.
const LINKS: &[(f64, u32, u32)] = &[
    (10.0, 4, 1),
    (25.0, 32, 1),
    (40.0, 4, 2),
    (56.0, 16, 2),
    (100.0, 32, 2),
    (200.0, 64, 2),
    (400.0, 128, 2),
];

/// Eight bytes in memory order, as a word.
fn word(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

/// The fastest rate of a single queue pair of a device that limits such rates, kbit/s of real time: the link's, at least 1.
pub(crate) fn pacing_kbps_max(profile: &Profile, dilation: f64) -> u32 {
    const KBPS_PER_GBPS: f64 = 1e6;
    let kbps = profile.value("link", "rate_gbps") * KBPS_PER_GBPS / dilation;
    (kbps as u32).max(1)
}

/// The device of host `host`. It limits no rates of queue pairs.
pub fn of(profile: &Profile, host: u32) -> DeviceFacts {
    let number = host as u8 + 1;
    let guid = [2, b'i', b's', b'o', b'l', 0, 0, number];
    let link_local = [word([0xfe, 0x80, 0, 0, 0, 0, 0, 0]), word(guid)];
    let address = [0, word([0, 0, 0xff, 0xff, 10, 77, 0, number])];
    let ethernet = profile.link_layer != LinkLayer::Infiniband;
    let iwarp = profile.link_layer == LinkLayer::Iwarp;
    let rate = profile.value("link", "rate_gbps");
    let &(_, speed, width) = LINKS
        .iter()
        .find(|link| rate <= link.0)
        .unwrap_or_else(|| LINKS.last().expect("the table is not empty"));
    let gids: [[u64; 2]; GIDS] = match ethernet {
        true => [link_local, link_local, address, address],
        false => [link_local; GIDS],
    };
    DeviceFacts {
        host,
        guid: word(guid),
        node_type: if iwarp { IBV_NODE_RNIC } else { IBV_NODE_CA } as u32,
        transport: if iwarp {
            IBV_TRANSPORT_IWARP
        } else {
            IBV_TRANSPORT_IB
        } as u32,
        link_layer: u32::from(match ethernet {
            true => IBV_LINK_LAYER_ETHERNET,
            false => IBV_LINK_LAYER_INFINIBAND,
        }),
        mtu: mtu_code(profile.value("link", "mtu_max_bytes") as u32),
        width,
        speed,
        lid: if ethernet { 0 } else { host + 1 },
        atomics: profile.atomics,
        pacing_kbps_max: 0,
        gids,
    }
}

/// `ibv_mtu` of so many bytes, or the next smaller one.
fn mtu_code(bytes: u32) -> u32 {
    (1..=5).rev().find(|code| 128 << code <= bytes).unwrap_or(1)
}

/// The host that a route leads to.
pub fn host_at(facts: &[DeviceFacts], route: &Route) -> Option<u32> {
    let by_gid = |device: &&DeviceFacts| device.gids.contains(&route.dgid);
    let by_lid = |device: &&DeviceFacts| device.lid == u32::from(route.dlid) && device.lid > 0;
    let found = match route.is_global {
        true => facts.iter().find(by_gid),
        false => facts.iter().find(by_lid),
    };
    found.map(|device| device.host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    #[test]
    fn every_shipped_profile_is_reached_by_its_addresses() {
        for profile in Library::embedded().profiles() {
            let facts: Vec<DeviceFacts> = (0..3).map(|host| of(profile, host)).collect();
            for device in &facts {
                let by_gid = Route {
                    is_global: true,
                    dgid: device.gids[0],
                    ..Route::default()
                };
                assert_eq!(
                    host_at(&facts, &by_gid),
                    Some(device.host),
                    "{}",
                    profile.name
                );
                let by_lid = Route {
                    dlid: device.lid as u16,
                    ..Route::default()
                };
                let infiniband = profile.link_layer == LinkLayer::Infiniband;
                let expected = infiniband.then_some(device.host);
                assert_eq!(host_at(&facts, &by_lid), expected, "{}", profile.name);
            }
        }
    }
}
