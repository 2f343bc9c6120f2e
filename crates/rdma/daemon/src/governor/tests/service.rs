//! The class of the reference flow.

use super::*;
use isolane_rdma_session::region::Service;

const VOICE: Service = Service {
    level: 5,
    traffic_class: 0xb8,
};

fn served(host: &mut Host) -> Vec<Service> {
    let orders = std::mem::take(&mut host.orders).into_iter();
    let served = orders.filter_map(|order| match order {
        Order::Serve(service) => Some(service),
        _ => None,
    });
    served.collect()
}

#[test]
fn reference_messages_take_the_class_of_the_latency_process() {
    let mut host = Host::new(config());
    host.start_bulk(who("bulk", Class::Bandwidth));
    let fast = host.start(who("fast", Class::Latency));
    host.run(200);
    assert_eq!(served(&mut host), []);
    let header = &host.processes[fast].region.header;
    header.service.store(VOICE.word(), Ordering::Relaxed);
    host.run(200);
    assert_eq!(served(&mut host), [VOICE]);
    host.run(200);
    assert_eq!(served(&mut host), [], "ordered once");
}

#[test]
fn of_several_classes_that_of_most_latency_queue_pairs_counts() {
    let mut host = Host::new(Config {
        trust_classes: true,
        ..config()
    });
    host.start_bulk(who("bulk", Class::Bandwidth));
    let at = host.start(who("declared", Class::Latency));
    let region = &host.processes[at].region;
    for (slot, traffic_class) in
        region
            .slots
            .iter()
            .zip([8, VOICE.traffic_class, VOICE.traffic_class])
    {
        let service = Service {
            traffic_class,
            ..VOICE
        };
        slot.service.store(service.word(), Ordering::Relaxed);
        slot.state.store(SLOT_USED, Ordering::Release);
    }
    region.header.slots_high.store(3, Ordering::Release);
    let key = host.processes[at].key;
    host.governor.signalled(host.now_ns, key);
    host.run(400);
    assert_eq!(served(&mut host), [VOICE]);
}

#[test]
fn a_word_is_a_class_only_when_it_is_known() {
    assert_eq!(Service::from_word(0), None);
    assert_eq!(
        Service::from_word(Service::default().word()),
        Some(Service::default())
    );
    assert_eq!(Service::from_word(VOICE.word()), Some(VOICE));
}
