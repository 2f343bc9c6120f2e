//! The messages to devlink, against a family that records them.

use super::*;
use expect_test::{Expect, expect};
use std::cell::RefCell;
use std::rc::Rc;

/// A family that answers `RATE_GET` with one rate and records the other commands.
#[derive(Debug)]
struct Recorder {
    rate: Option<Vec<u8>>,
    commands: Rc<RefCell<Vec<String>>>,
}

impl Ask for Recorder {
    fn ask(
        &mut self,
        action: &str,
        command: u8,
        _: bool,
        attributes: &AttributesBuilder,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> Result<(), HostError> {
        if command == RATE_GET {
            return match &self.rate {
                Some(rate) => {
                    each(Attributes::new(rate));
                    Ok(())
                }
                None => Err(HostError::Kernel {
                    action: action.to_owned(),
                    source: std::io::Error::from_raw_os_error(19),
                }),
            };
        }
        let sent = Attributes::new(attributes.bytes());
        let kinds: Vec<String> = sent
            .iter()
            .filter(|(kind, _)| *kind > DEVICE_NAME)
            .map(|(kind, value)| format!("{kind}={value:?}"))
            .collect();
        self.commands
            .borrow_mut()
            .push(format!("{command} {}", kinds.join(" ")));
        Ok(())
    }
}

fn check(present: Option<AttributesBuilder>, object: Object, value: &Value, expected: Expect) {
    let commands = Rc::new(RefCell::new(Vec::new()));
    let recorder = Recorder {
        rate: present.map(|rate| rate.bytes().to_vec()),
        commands: Rc::clone(&commands),
    };
    let mut devlink = Devlink {
        family: Box::new(recorder),
    };
    devlink
        .set_rate("pci/0000:03:00.0", &object, value)
        .unwrap();
    expected.assert_eq(&commands.borrow().join("\n"));
}

fn rate(share_bps: u64, max_bps: u64, parent: Option<&str>) -> Value {
    Value::Rate(Rate {
        share_bps,
        max_bps,
        parent: parent.map(str::to_owned),
    })
}

#[test]
fn only_what_differs_is_sent() {
    let present = || {
        AttributesBuilder::new()
            .with_u64(RATE_SHARE, 125_000)
            .with_u64(RATE_MAX, 250_000)
    };
    check(
        Some(present()),
        Object::Port(7),
        &rate(1_000_000, 4_000_000, None),
        expect!["75 3=[7, 0, 0, 0] 167=[32, 161, 7, 0, 0, 0, 0, 0]"],
    );
    check(
        Some(present()),
        Object::Port(7),
        &rate(1_000_000, 2_000_000, None),
        expect![""],
    );
    check(
        Some(present().with_text(RATE_PARENT, "g")),
        Object::Port(7),
        &rate(1_000_000, 2_000_000, None),
        expect!["75 3=[7, 0, 0, 0] 169=[0]"],
    );
}

#[test]
fn a_group_is_made_and_removed() {
    let node = || Object::Node("g".to_owned());
    check(
        None,
        node(),
        &rate(8_000_000, 0, None),
        expect!["76 168=[103, 0] 166=[64, 66, 15, 0, 0, 0, 0, 0]"],
    );
    check(
        Some(AttributesBuilder::new().with_u64(RATE_SHARE, 125_000)),
        node(),
        &Value::Absent,
        expect![[r#"
            75 168=[103, 0] 166=[0, 0, 0, 0, 0, 0, 0, 0]
            77 168=[103, 0]"#]],
    );
    check(None, node(), &Value::Absent, expect![""]);
}

#[test]
fn functions_are_named_by_their_number() {
    let port = |flavour: u16, kind: u16, number: &[u8]| {
        let port = AttributesBuilder::new()
            .with_text(BUS_NAME, "pci")
            .with_text(DEVICE_NAME, "0000:03:00.0")
            .with_u32(PORT_INDEX, 9)
            .with(PORT_FLAVOUR, &flavour.to_ne_bytes())
            .with(kind, number);
        parse_port(&Attributes::new(port.bytes())).unwrap().function
    };
    assert_eq!(
        port(4, PORT_VIRTUAL_FUNCTION, &3u16.to_ne_bytes()).as_deref(),
        Some("vf3")
    );
    assert_eq!(
        port(7, PORT_SUBFUNCTION, &88u32.to_ne_bytes()).as_deref(),
        Some("sf88")
    );
    assert_eq!(port(0, PORT_VIRTUAL_FUNCTION, &3u16.to_ne_bytes()), None);
}
