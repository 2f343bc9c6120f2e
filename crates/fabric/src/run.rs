//! One scenario from start to result: the loop between network, transport and calls.

use crate::network::{Network, Owner, Step};
use crate::rpc::Calls;
use crate::transport::Transport;
use isolane_core::units::Instant;

/// Runs until nothing happens any more, or `end`.
pub fn drive<T: Transport>(
    network: &mut Network,
    transport: &mut T,
    calls: &mut Calls,
    end: Instant,
) {
    let mut ended = Vec::new();
    calls.start(network);
    loop {
        match network.step(end) {
            Step::Packet(packet) => transport.on_packet(network, packet, &mut ended),
            Step::Timer(Owner::Transport, timer) => {
                transport.on_timer(network, timer, &mut ended);
            }
            Step::Timer(Owner::Calls | Owner::Recorder, timer) => {
                calls.on_timer(network, transport, timer);
            }
            Step::Idle(host) => transport.on_idle(network, host),
            Step::Over => return,
        }
        for one in ended.drain(..) {
            calls.on_ended(network, transport, one);
        }
    }
}
