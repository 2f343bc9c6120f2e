//! Every message is encoded and decoded; damaged messages are rejected.

use super::*;
use proptest::prelude::*;

fn class() -> impl Strategy<Value = Class> {
    (0u32..4).prop_map(|number| Class::from_number(number).expect("four classes"))
}

fn to_daemon() -> impl Strategy<Value = ToDaemon> {
    let text = "[a-zäöß0-9_.:/-]{0,60}";
    prop_oneof![
        (class(), 1..=WEIGHT_MAX, text, text).prop_map(|(class, weight, tenant, program)| {
            ToDaemon::Hello {
                class,
                weight,
                tenant,
                program,
            }
        }),
        text.prop_map(|device| ToDaemon::Open { device }),
        (text, any::<[u8; 16]>()).prop_map(|(device, source)| ToDaemon::OpenReads {
            device,
            source: PortAddress(source),
        }),
        Just(ToDaemon::Enforce),
        (0..LIMITS_MAX, any::<u64>()).prop_map(|(tenant, bytes_per_s)| ToDaemon::Limit {
            tenant,
            bytes_per_s,
        }),
        (any::<u32>(), prop_oneof![Just(NO_TENANT), 0..LIMITS_MAX])
            .prop_map(|(process, tenant)| ToDaemon::Belongs { process, tenant }),
    ]
}

fn to_shim() -> impl Strategy<Value = ToShim> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), class()).prop_map(|(session, region_bytes, class)| {
            ToShim::Welcome {
                session,
                region_bytes,
                class,
            }
        }),
        "[ -~]{0,150}".prop_map(|reason| ToShim::Refused { reason }),
        (any::<u16>(), any::<u16>()).prop_map(|(outgoing, remote_read)| ToShim::Opened {
            outgoing,
            remote_read
        }),
        Just(ToShim::Look),
        Just(ToShim::Heeded),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(message in to_daemon(), answer in to_shim()) {
        prop_assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
        prop_assert_eq!(ToShim::decode(&answer.encode()), Ok(answer));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = ToDaemon::decode(&bytes);
        let _ = ToShim::decode(&bytes);
    }

    #[test]
    fn a_damaged_message_never_panics(
        message in to_daemon(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = message.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = ToDaemon::decode(&bytes);
        let cut = cut.index(bytes.len());
        prop_assert!(ToDaemon::decode(&bytes[..cut]).is_err(), "a cut message is an error");
    }
}

#[test]
fn another_version_is_distinguished_from_rubbish() {
    let mut bytes = ToDaemon::Open {
        device: "rxe0".to_owned(),
    }
    .encode();
    bytes[4] = 99;
    assert_eq!(
        ToDaemon::decode(&bytes),
        Err(MessageError::Version { theirs: 99 })
    );
    assert_eq!(
        ToDaemon::decode(&[1, 2]),
        Err(MessageError::Length { bytes: 2 })
    );
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let reason = "ä".repeat(200);
    let packet = ToShim::Refused { reason }.encode();
    let Ok(ToShim::Refused { reason }) = ToShim::decode(&packet) else {
        panic!("it was well formed");
    };
    assert_eq!(reason.len(), TEXT_MAX);
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let packet = ToDaemon::Open {
        device: "rxe0\x1b[2J".to_owned(),
    }
    .encode();
    assert_eq!(
        ToDaemon::decode(&packet),
        Err(MessageError::Text { field: "device" })
    );
}

#[test]
fn a_tenant_beyond_the_table_is_refused_by_its_number() {
    let tenant = LIMITS_MAX;
    let refused = Err(MessageError::Field {
        field: "tenant",
        value: u64::from(tenant),
    });
    let limit = ToDaemon::Limit {
        tenant,
        bytes_per_s: 1,
    };
    assert_eq!(ToDaemon::decode(&limit.encode()), refused);
    let belongs = ToDaemon::Belongs { process: 1, tenant };
    assert_eq!(ToDaemon::decode(&belongs.encode()), refused);
}
