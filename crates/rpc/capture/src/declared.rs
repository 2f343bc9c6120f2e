//! Classes of connections whose calls are not readable: a table of addresses and ports.
//!
//! Method: rules in order, the first one that fits decides. A missing part fits everything.
//! Format of a file: comma-separated values with the first line `client,client_port,server,server_port,class`; `*` or
//! nothing fits everything, `#` begins a comment line.

use crate::Class;
use core::net::{IpAddr, SocketAddr};

/// Most rules.
pub const RULES_MAX: usize = 65_536;

const COLUMNS: &str = "client,client_port,server,server_port,class";

/// One rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Address of the client.
    pub client: Option<IpAddr>,
    /// Port of the client.
    pub client_port: Option<u16>,
    /// Address of the server.
    pub server: Option<IpAddr>,
    /// Port of the server.
    pub server_port: Option<u16>,
    /// Number of the class.
    pub class: u8,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    rules: Vec<Rule>,
}

/// A wrong line of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct TableError {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, value and what is allowed.
    pub what: String,
}

impl Declared {
    /// Appends a rule; later rules count only where earlier ones do not fit.
    pub fn push(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Appends the rules of a file's text. The error is the first wrong line.
    pub fn read(&mut self, file: &str, text: &str, classes: &[Class]) -> Result<(), TableError> {
        let wrong = |line: usize, what: String| TableError {
            file: file.to_owned(),
            line: line + 1,
            what,
        };
        let mut lines = text.lines().enumerate().filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        });
        let first = lines.next();
        if first.is_none_or(|(_, line)| line.replace(' ', "") != COLUMNS) {
            let line = first.map_or(0, |(line, _)| line);
            return Err(wrong(line, format!("the first line must be {COLUMNS}")));
        }
        for (number, line) in lines {
            if self.rules.len() >= RULES_MAX {
                return Err(wrong(number, format!("more than {RULES_MAX} rules")));
            }
            let rule = rule(line, classes).map_err(|what| wrong(number, what))?;
            self.rules.push(rule);
        }
        Ok(())
    }

    /// The class of a connection.
    pub fn class(&self, client: SocketAddr, server: SocketAddr) -> Option<u8> {
        let fits = |rule: &&Rule| {
            rule.client.is_none_or(|address| address == client.ip())
                && rule.client_port.is_none_or(|port| port == client.port())
                && rule.server.is_none_or(|address| address == server.ip())
                && rule.server_port.is_none_or(|port| port == server.port())
        };
        self.rules.iter().find(fits).map(|rule| rule.class)
    }
}

fn rule(line: &str, classes: &[Class]) -> Result<Rule, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [client, client_port, server, server_port, class] = cells[..] else {
        return Err(format!("{} columns; must be 5: {COLUMNS}", cells.len()));
    };
    Ok(Rule {
        client: cell("client", client, "an IP address or *")?,
        client_port: cell("client_port", client_port, "a port or *")?,
        server: cell("server", server, "an IP address or *")?,
        server_port: cell("server_port", server_port, "a port or *")?,
        class: class_named(class, classes)?,
    })
}

fn cell<T: std::str::FromStr>(
    column: &str,
    text: &str,
    allowed: &str,
) -> Result<Option<T>, String> {
    match text {
        "" | "*" => Ok(None),
        _ => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{column} is {text:?}; must be {allowed}")),
    }
}

/// The number of the class named `name`. The error has the name and all classes.
pub fn class_named(name: &str, classes: &[Class]) -> Result<u8, String> {
    let found = classes.iter().position(|class| class.name == name);
    found.map(|class| class as u8).ok_or_else(|| {
        let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
        format!("class is {name:?}; must be one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Vec<Class> {
        let class = |(name, dscp): (&str, u8)| Class {
            name: name.to_owned(),
            dscp,
        };
        [("high", 46), ("low", 8)].map(class).to_vec()
    }

    fn check(text: &str) -> Result<Declared, String> {
        let mut declared = Declared::default();
        let read = declared.read("t.csv", text, &classes());
        read.map(|()| declared).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let text = format!("# ports\n{COLUMNS}\n*,*,10.0.0.2,443,high\n,,,443,low\n");
        let declared = check(&text).unwrap();
        let class = |server: &str| {
            let client = "10.0.0.1:5000".parse().unwrap();
            declared.class(client, server.parse().unwrap())
        };
        assert_eq!(class("10.0.0.2:443"), Some(0));
        assert_eq!(class("[fd00::2]:443"), Some(1));
        assert_eq!(class("10.0.0.2:80"), None);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_remedy() {
        let error = |text: &str| check(text).unwrap_err();
        assert_eq!(
            error("client,class\n"),
            format!("t.csv:1: the first line must be {COLUMNS}")
        );
        assert_eq!(
            error(&format!("{COLUMNS}\n\n*,*,*,443,hihg\n")),
            "t.csv:3: class is \"hihg\"; must be one of high, low"
        );
        assert_eq!(
            error(&format!("{COLUMNS}\n*,99999,*,443,high\n")),
            "t.csv:2: client_port is \"99999\"; must be a port or *"
        );
    }
}
