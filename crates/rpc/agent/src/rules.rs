//! Which class a connection has: the class of its server's port, or that of all other ports.

use crate::wire::PORTS_MAX;
use std::collections::BTreeMap;

/// Classes by number, 0 is the highest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Class of each server port: the remote one of a client's connection, the local one of a server's.
    pub ports: BTreeMap<u16, u8>,
    /// Class of connections to other ports; without it they are left alone.
    pub others: Option<u8>,
}

impl Rules {
    /// Adds `PORT=CLASS`, with the class by name. Fails with what is allowed.
    pub fn add(&mut self, word: &str, class: impl Fn(&str) -> Option<u8>) -> Result<(), String> {
        let Some((port, name)) = word.split_once('=') else {
            return Err("must be PORT=CLASS, like 50051=critical".to_owned());
        };
        let number: Option<u16> = port.parse().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("port is {port:?}; must be 1 to 65535"))?;
        let class = class(name).ok_or_else(|| format!("class is {name:?}"))?;
        if self.ports.insert(number, class).is_some() {
            return Err(format!("port {number} has a class already"));
        }
        if self.ports.len() > PORTS_MAX {
            return Err(format!("at most {PORTS_MAX} ports may have a class"));
        }
        Ok(())
    }

    /// Whether no connection has a class.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.others.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_class() {
        let class = |name: &str| (name == "high").then_some(0);
        let mut rules = Rules::default();
        assert!(rules.is_empty());
        rules.add("443=high", class).unwrap();
        assert_eq!(rules.ports.get(&443), Some(&0));
        for (word, part) in [
            ("443=high", "already"),
            ("443", "PORT=CLASS"),
            ("0=high", "1 to 65535"),
            ("65536=high", "1 to 65535"),
            ("80=hihg", "\"hihg\""),
        ] {
            let error = rules.add(word, class).unwrap_err();
            assert!(error.contains(part), "{word}: {error}");
        }
    }
}
