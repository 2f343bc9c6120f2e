//! Packets at given times into a network of two hosts, and how long they waited at the first port.

use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_network_scenario::model::{FabricTopology, PortScheduler, PortSettings, Shape};
use isolane_network_simulator::discipline::Order;
use isolane_network_simulator::network::{Network, Ordering, Owner, Step, Tap, TapMoment};
use isolane_network_simulator::packet::{HostId, Packet, Timer};
use isolane_network_simulator::topology::{PortId, Topology};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) const RATE: BitRate = BitRate::from_gbps(100);
/// Bytes on the wire of the packets of the theory runs.
pub(crate) const PACKET: u16 = 5120;
/// Picoseconds of one of them at [`RATE`].
pub(crate) const PACKET_PS: u64 = 80 * PACKET as u64;

/// A packet to come: when (picoseconds, rising), class, bytes on the wire.
pub(crate) type Arrival = (u64, u8, u16);

/// One host for each of `hosts`, on one switch, with room for everything.
pub(crate) fn network(hosts: u32, order: Order, weights: &[u32]) -> Network {
    let topology = Topology::new(&FabricTopology {
        shape: Shape::SingleSwitch { hosts },
        host_rate: RATE,
        nic_rate: RATE,
        hop_delay: Duration::from_ns(200),
    });
    let settings = PortSettings {
        scheduler: PortScheduler::Wfq,
        mtu: Bytes::new(5080),
        header: Bytes::new(40),
        buffer: Bytes::new(1 << 40),
        shared_buffer: false,
        ecn: None,
        pfc: None,
    };
    let ordering = Ordering {
        order,
        weights,
        seed: 1,
    };
    Network::ordered(topology, &settings, ordering)
}

pub(crate) fn packet(from: u16, to: u16, class: u8, bytes: u16, now: Instant) -> Packet {
    Packet {
        sent_at: now,
        to: HostId(to),
        from: HostId(from),
        bytes,
        payload: bytes,
        class,
        ..Packet::default()
    }
}

/// Waits at port 0 by class and in order of departure, picoseconds.
type Waits = Rc<RefCell<Vec<(u8, u64)>>>;

#[derive(Debug)]
struct FirstPort(Waits);

impl Tap for FirstPort {
    fn saw(&mut self, at: Instant, port: PortId, moment: TapMoment, packet: &Packet) {
        if port == PortId(0) && moment == TapMoment::Left {
            let wait = at.saturating_since(packet.sent_at).as_ps();
            self.0.borrow_mut().push((packet.class, wait));
        }
    }
}

/// What each of `arrivals` waited at the first host's port, by class, picoseconds, as they left.
pub(crate) fn waits(
    order: Order,
    weights: &[u32],
    arrivals: impl IntoIterator<Item = Arrival>,
) -> Vec<(u8, u64)> {
    let mut network = network(2, order, weights);
    let waits = Waits::default();
    network.set_tap(Box::new(FirstPort(Rc::clone(&waits))));
    let mut arrivals = arrivals.into_iter().peekable();
    let timer = Timer { index: 0, what: 0 };
    if let Some((at, ..)) = arrivals.peek() {
        network.set_timer(Instant::from_ps(*at), Owner::Calls, timer);
    }
    let mut sent = 0;
    loop {
        match network.step(Instant::from_ps(u64::MAX)) {
            Step::Packet(id) => network.free(id),
            Step::Timer(..) => {
                let now = network.now();
                let (_, class, bytes) = arrivals.next().expect("a timer for each arrival");
                network.transmit(packet(0, 1, class, bytes, now));
                sent += 1;
                if let Some((at, ..)) = arrivals.peek() {
                    network.set_timer(Instant::from_ps(*at), Owner::Calls, timer);
                }
            }
            Step::Idle(_) => {}
            Step::Over => break,
        }
    }
    assert_eq!(network.packets.live(), 0, "all have arrived");
    drop(network);
    let waits = Rc::try_unwrap(waits).expect("the tap went with the network");
    let waits = waits.into_inner();
    assert_eq!(waits.len(), sent);
    waits
}
