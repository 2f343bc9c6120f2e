//! Each rule on a card with exactly its fault, and the full text.

use super::rules::Attachment;
use super::*;
use crate::ethtool::Moderation;
use crate::link::Sizes;
use crate::qdisc::{Discipline, Disciplines};
use crate::queues::{ByteLimit, Queue};
use expect_test::{Expect, expect};

/// A card without findings once Titan is attached.
fn good() -> Device {
    let limit = ByteLimit {
        limit_bytes: 200_000,
        ..ByteLimit::default()
    };
    let queue = |queue| Queue {
        queue,
        limit: Some(limit),
        ..Queue::default()
    };
    let discipline = |kind: &str, handle, parent| Discipline {
        kind: kind.to_owned(),
        handle,
        parent,
    };
    let mut device = Device {
        name: "eth0".to_owned(),
        driver: "ixgbe".to_owned(),
        processors: 8,
        queues: (0..2).map(queue).collect(),
        queues_max: 8,
        sizes: Sizes {
            general: 65_536,
            ipv4: Some(65_536),
        },
        disciplines: Disciplines {
            all: vec![
                discipline("mq", 0x1_0000, 0xffff_ffff),
                discipline("fq_codel", 0, 0x1_0001),
                discipline("fq_codel", 0, 0x1_0002),
            ],
            ..Disciplines::default()
        },
        ..Device::default()
    };
    device.discipline = device.disciplines.text();
    device
        .offloads
        .features
        .insert("tx-tcp-segmentation".to_owned());
    device
}

const ATTACHED: Option<Attachment> = Some(Attachment {
    controlled: true,
    segments: true,
});

fn check(device: Device, attachment: Option<Attachment>, wanted: Expect) {
    let advice = of("6.18".to_owned(), device, attachment);
    let short: Vec<String> = advice
        .findings
        .iter()
        .map(|finding| {
            let command = finding.command.as_deref().unwrap_or("-");
            format!("{:?} {}: {command}", finding.weight, finding.rule)
        })
        .collect();
    wanted.assert_eq(&short.join("\n"));
    assert!(
        advice
            .findings
            .iter()
            .all(|finding| !finding.costs.is_empty() && !finding.measured.is_empty())
    );
}

#[test]
fn a_good_card_needs_nothing() {
    let advice = of("6.18".to_owned(), good(), ATTACHED);
    assert!(!advice.is_change_due());
    expect![[r#"
        Advice for the device eth0: ixgbe, 2 transmit queues, mq with 2 fq_codel, kernel 6.18
        Nothing found that costs fairness or latency.
    "#]]
    .assert_eq(&advice.text());
}

#[test]
fn a_card_that_hashes_should_be_attached() {
    let advice = of("6.18".to_owned(), good(), None);
    assert!(advice.is_change_due());
    expect![[r#"
        Advice for the device eth0: ixgbe, 2 transmit queues, mq with 2 fq_codel, kernel 6.18

        change  flows get their queue by a hash, so some share one while others are idle
          costs    a flow that shares its queue gets half of what one alone gets, for as long as both last
          measured NFM at 1 ms with 12 flows: 1.92 by hash, 0.32 with Titan; with 3 flows 0.16 and 0.01 (titan, table 3: C6, T3)
          command  isolane nic attach eth0

        know    segments have up to 64 KiB whether queues are shared or not
          costs    in a shared queue a packet waits for whole segments of others
          measured NFM at 1 ms with 12 flows: 1.20 with 64 KiB, 0.32 with 16 KiB while queues are shared (titan, table 3: T2, T3); 16 KiB at all times costs 3 flows 70 instead of 57 % of a processor (C9, C6)
          command  isolane nic attach eth0 --dsos auto
    "#]]
    .assert_eq(&advice.text());
}

#[test]
fn every_rule_finds_its_fault() {
    let mut bad = good();
    bad.offloads.features = ["rx-gro".to_owned()].into();
    bad.offloads.possible = ["tx-tcp-segmentation".to_owned()].into();
    bad.offloads.moderation = Some(Moderation {
        tx_usecs: Some(200),
        ..Moderation::default()
    });
    bad.tcp.limit_output_bytes = Some(1 << 30);
    for queue in &mut bad.queues {
        queue.processors = Some("f".to_owned());
        queue.limit = Some(ByteLimit {
            limit_bytes: 1 << 20,
            ..ByteLimit::default()
        });
    }
    for leaf in &mut bad.disciplines.all[1..] {
        leaf.kind = "pfifo_fast".to_owned();
    }
    check(
        bad,
        None,
        expect![[r#"
            Change hashing: isolane nic attach eth0 --xps
            Change no-segmentation-offload: ethtool -K eth0 tso on
            Change first-in-first-out: sysctl -w net.core.default_qdisc=fq_codel; tc qdisc replace dev eth0 root handle 1: mq
            Change large-byte-limit: for limit in /sys/class/net/eth0/queues/tx-*/byte_queue_limits/limit_max; do echo 262144 > $limit; done
            Change rare-interrupts: ethtool -C eth0 tx-usecs 50
            Change large-tcp-limit: sysctl -w net.ipv4.tcp_limit_output_bytes=4194304
            Know large-segments: isolane nic attach eth0 --dsos auto"#]],
    );
}

#[test]
fn faults_of_an_attachment_are_found() {
    let left = Some(Attachment {
        controlled: false,
        segments: false,
    });
    let mut device = good();
    device.disciplines.all.truncate(1);
    device.disciplines.all[0].kind = "htb".to_owned();
    device
        .queues
        .iter_mut()
        .for_each(|queue| queue.limit = None);
    check(
        device,
        left,
        expect![[r#"
            Change no-controller: isolane nic attach eth0
            Change large-segments: isolane nic attach eth0 --dsos auto
            Know one-discipline: tc qdisc replace dev eth0 root handle 1: mq
            Know no-byte-limit: -"#]],
    );
}

#[test]
fn one_queue_can_be_more_where_the_driver_reports_it() {
    let mut device = good();
    device.queues.truncate(1);
    check(device.clone(), None, expect!["Know one-queue: -"]);
    device.offloads.channels = Some(crate::ethtool::Channels {
        queues: 1,
        queues_max: 16,
        combined_max: 4,
    });
    check(
        device.clone(),
        None,
        expect!["Change one-queue: ethtool -L eth0 combined 4"],
    );
    device.offloads.channels = Some(crate::ethtool::Channels {
        queues: 1,
        queues_max: 16,
        combined_max: 0,
    });
    check(
        device,
        None,
        expect!["Change one-queue: ethtool -L eth0 tx 8"],
    );
}

#[test]
fn commands_reach_the_device_in_its_namespace() {
    let mut device = good();
    device.netns = Some("blue".to_owned());
    device.queues[0].limit = Some(ByteLimit {
        limit_bytes: 1 << 20,
        ..ByteLimit::default()
    });
    device.offloads.moderation = Some(Moderation {
        tx_usecs: Some(200),
        ..Moderation::default()
    });
    check(
        device,
        None,
        expect![[r#"
            Change hashing: isolane nic attach eth0 --netns blue
            Change large-byte-limit: ip netns exec blue sh -c 'for limit in /sys/class/net/eth0/queues/tx-*/byte_queue_limits/limit_max; do echo 262144 > $limit; done'
            Change rare-interrupts: ip netns exec blue ethtool -C eth0 tx-usecs 50
            Know large-segments: isolane nic attach eth0 --dsos auto --netns blue"#]],
    );
}

#[test]
fn queues_that_nothing_waits_in_are_not_worth_assigning() {
    let device = Device {
        driver: "veth".to_owned(),
        ..good()
    };
    check(device, None, expect![""]);
}
