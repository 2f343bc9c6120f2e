//! What crosses a path to far memory, byte by byte; the room that small packets take; elements that change a read.
//!
//! Goodput counts payload when its packet is processed, and the path may write it later. A window of time may therefore
//! show more or less than the path carries, by the change of what waits at its two ends; here both are counted.

use super::*;
use crate::rnic::event::{Packet, PacketKind};
use crate::rnic::queue_pair::QueuePair;
use crate::rnic::world::World;
use isolane_rdma_scenario::library::Library;

const F: &str = "cx6-200g-roce";
/// The window, ps.
const WINDOW: (u64, u64) = (600_000_000, 900_000_000);

/// 64 KiB WRITEs of eight pairs each way, on F with its paths and no other mechanism; measured from the beginning.
fn far(place: &str) -> World {
    let way = |from: &str, to: &str| {
        format!(
            "[[tenant.traffic]]\nname = \"from-{from}\"\nqueue_pairs = 8\nfrom = \"{from}\"\nto = \"{to}\"\nverb = \"write\"\n\
             size = 65536\nregion = \"64KiB\"\ndepth = 64\nmemory = \"{place}\"\nremote_memory = \"{place}\"\n"
        )
    };
    let text = format!(
        "profile = \"{F}\"\ntopology = \"switch\"\nwarmup = \"0us\"\nduration = \"1ms\"\n[[tenant]]\nname = \"t\"\n\
         class = \"bandwidth\"\n{}{}",
        way("a", "b"),
        way("b", "a")
    );
    world(&text, &["remote_socket_gbps", "gpu_gbps"])
}

/// The world of `text` on F with those mechanisms alone.
fn world(text: &str, names: &[&str]) -> World {
    let library = Library::embedded();
    let scenario = isolane_rdma_scenario::parse(text, "micro.toml", &library).expect("valid");
    let mut profile = library.profile(F).expect("shipped").clone();
    for (name, sourced) in &mut profile.microarchitecture {
        if !names.contains(&name.as_str()) {
            sourced.value = 0.0;
        }
    }
    <World>::build(&scenario, &profile).expect("no policy")
}

/// What is where at one moment, bytes and ps.
#[derive(Debug)]
struct Account {
    /// Payload that the senders have read.
    read: u64,
    /// Payload that was processed, which is what goodput counts.
    delivered: u64,
    /// Of each host, when its path has carried all that is on it so far.
    carried_at: [u64; 2],
}

/// What is where at `at`, ps, once `world` has come there.
fn account(world: &mut World, at: u64, index: usize) -> Account {
    world.run_until(Duration::from_ps(at));
    let sum = |of: fn(&QueuePair) -> u64| world.pairs.iter().map(of).sum();
    Account {
        read: sum(|pair| pair.sent * 65_536 + pair.offset),
        delivered: sum(|pair| pair.bytes_delivered),
        carried_at: [0, 1].map(|host| world.nics[host].micro.paths[index].1),
    }
}

#[test]
fn a_path_carries_its_rate_and_goodput_differs_by_what_waits_at_its_ends() {
    for (place, index) in [("remote-socket", 0), ("gpu", 1)] {
        let mut world = far(place);
        let rate = world.device.micro.paths[index].expect("F has it");
        let before = account(&mut world, WINDOW.0, index);
        let after = account(&mut world, WINDOW.1, index);
        // What was read and written, each packet rounded down by less than a picosecond.
        let crossed = after.read - before.read + after.delivered - before.delivered;
        let packets = crossed / 1_024;
        let carried = rate.of(crossed).saturating_sub(packets);
        // Of each host the window, and the bytes on its path after it, less the bytes on the path before.
        let host = |host: usize| {
            let start = before.carried_at[host].max(WINDOW.0);
            after.carried_at[host].max(WINDOW.1) - start
        };
        let room = host(0) + host(1);
        assert!(carried <= room, "{place}: {carried} ps in {room} ps");
        // The path to GPU memory is busy all the time, so there both are the same.
        if place == "gpu" {
            assert!(carried + 2 * packets >= room, "{carried} ps in {room} ps");
        }
    }
}

#[test]
fn a_small_packet_takes_a_cell_of_the_receive_buffer_and_gives_it_back() {
    let text = format!(
        "profile = \"{F}\"\n[[tenant]]\nname = \"t\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 128\n"
    );
    let taken = |names: &[&str], payload: u16| {
        let mut world = world(&text, names);
        let packet = Packet {
            payload,
            kind: PacketKind::Data,
            epoch: 0,
            first: true,
            last: true,
            marked: false,
            buffer: 0,
        };
        world.accept(0, 1, 0, packet);
        let taken = world.nics[1].buffers[0].buffered;
        world.free_buffers(u64::MAX, 1, 0);
        (
            taken,
            world.nics[1].buffers[0].buffered,
            u64::from(payload) + world.device.frame,
        )
    };
    let (without, left, size) = taken(&[], 128);
    assert_eq!((without, left), (size, 0));
    let (with, left, _) = taken(&["receive_cell_bytes"], 128);
    assert_eq!((with, left), (1_024, 0));
    let (large, left, size) = taken(&["receive_cell_bytes"], 2_048);
    assert_eq!((large, left), (size, 0));
}

#[test]
fn only_neighbours_of_very_different_size_change_a_read() {
    let of = |elements: &[u32]| {
        changes(&Message {
            elements: elements.to_vec(),
        })
    };
    assert_eq!(of(&[128, 65_536, 1_024]), 2);
    assert_eq!(of(&[128, 65_536]), 1);
    assert_eq!(of(&[128, 4_096, 1_024]), 0);
    assert_eq!(of(&[65_536, 65_536]) + of(&[128, 64, 1_024]) + of(&[7]), 0);
}
