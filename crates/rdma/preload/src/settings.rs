//! The environment variables, and messages on standard error.
//!
//! One line per event, never twice for the same cause; `ISOLANE_LOG` turns messages off or adds more. Invalid settings
//! are reported and ignored, because the application must run.

use isolane_rdma_session::SOCKET_PATH;
use isolane_rdma_session::environment as names;
use isolane_rdma_session::message::{ANSWER_TIMEOUT_MS, Class, WEIGHT_MAX};
use std::io::Write;
use std::path::PathBuf;

/// Enables splitting of WRITEs with immediate data; see [`Settings::split_immediate`].
pub const SPLIT_IMMEDIATE: &str = "ISOLANE_SPLIT_IMMEDIATE";

/// Tells libmlx5 that one thread alone uses its objects.
const SINGLE_THREADED: &str = "MLX5_SINGLE_THREADED";

/// Amount of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Talk {
    /// No messages.
    Off,
    /// One line per failure.
    Line,
    /// Also successful steps.
    Debug,
}

/// The environment variables, read once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the daemon's socket.
    pub socket: PathBuf,
    /// The class that the process claims.
    pub class: Class,
    /// The tenant that the process claims.
    pub tenant: String,
    /// The weight that the process claims.
    pub weight: u32,
    /// Amount of messages.
    pub talk: Talk,
    /// Whether the shim is disabled.
    pub disabled: bool,
    /// Whether WRITEs with immediate data are split too. Off by default: the receiver's completion then counts only the
    /// bytes of the last chunk, which an application may read.
    pub split_immediate: bool,
    /// How long a wait may spin before it sleeps, ns.
    pub spin_ns: u64,
    /// Whether the pump's thread runs; tests call the pump directly.
    pub pump: bool,
    /// How long the daemon may take for an answer, ms.
    pub answer_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(SOCKET_PATH),
            class: Class::Auto,
            tenant: String::new(),
            weight: 1,
            talk: Talk::Line,
            disabled: false,
            split_immediate: false,
            spin_ns: 20_000,
            pump: true,
            answer_ms: ANSWER_TIMEOUT_MS,
        }
    }
}

impl Settings {
    /// Reads the environment through `variable`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = Self::default();
        let on = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
        settings.disabled = on(names::DISABLE);
        settings.split_immediate = on(SPLIT_IMMEDIATE);
        settings.talk = match variable(names::LOG).as_deref() {
            Some("off") => Talk::Off,
            Some("debug") => Talk::Debug,
            _ => Talk::Line,
        };
        if let Some(path) = variable(names::SOCKET) {
            settings.socket = PathBuf::from(path);
        }
        if let Some(name) = variable(names::CLASS) {
            match Class::from_name(&name) {
                Some(class) => settings.class = class,
                None => settings.say(&format!(
                    "{}={name} is not a class (latency, throughput, bandwidth or auto); using auto",
                    names::CLASS
                )),
            }
        }
        if let Some(text) = variable(names::WEIGHT) {
            match text.parse() {
                Ok(weight) if (1..=WEIGHT_MAX).contains(&weight) => settings.weight = weight,
                _ => settings.say(&format!(
                    "{}={text} is not a weight from 1 to {WEIGHT_MAX}; using 1",
                    names::WEIGHT
                )),
            }
        }
        settings.tenant = variable(names::TENANT).unwrap_or_default();
        settings
    }

    /// Withdraws the promise of a single thread, by which libmlx5 takes no locks and ends the program when it sees two
    /// threads: the pump is another thread. libmlx5 reads the variable when a device is opened.
    pub fn allow_threads(&self) {
        let promised = std::env::var_os(SINGLE_THREADED).is_some_and(|value| value == "1");
        if promised && !self.disabled {
            // SAFETY: the variable says that no other thread runs which could read the environment now.
            unsafe { std::env::set_var(SINGLE_THREADED, "0") };
            self.say(&format!(
                "{SINGLE_THREADED}=1 is replaced by 0, because this library posts from a thread of its own"
            ));
        }
    }

    /// Prints a line for the user.
    pub fn say(&self, text: &str) {
        self.print(Talk::Line, text);
    }

    /// Prints a line for debugging.
    pub fn debug(&self, text: &str) {
        self.print(Talk::Debug, text);
    }

    /// One write per line, so that lines of several processes do not mix. Errors are ignored.
    fn print(&self, level: Talk, text: &str) {
        if self.talk >= level {
            let line = format!("isolane[{}]: {text}\n", std::process::id());
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_words_leave_the_defaults() {
        let settings = Settings::read(|name| match name {
            names::CLASS => Some("loud".to_owned()),
            names::WEIGHT => Some("0".to_owned()),
            names::LOG => Some("off".to_owned()),
            names::DISABLE => Some("0".to_owned()),
            _ => None,
        });
        assert_eq!(settings.class, Class::Auto);
        assert_eq!(settings.weight, 1);
        assert!(!settings.disabled);
    }

    #[test]
    fn every_word_is_heard() {
        let settings = Settings::read(|name| {
            let value = match name {
                names::CLASS => "latency",
                names::WEIGHT => "7",
                names::TENANT => "blue",
                names::SOCKET => "/elsewhere",
                names::LOG => "debug",
                names::DISABLE | SPLIT_IMMEDIATE => "1",
                _ => return None,
            };
            Some(value.to_owned())
        });
        assert_eq!(settings.class, Class::Latency);
        assert_eq!((settings.weight, settings.tenant.as_str()), (7, "blue"));
        assert_eq!(settings.socket, PathBuf::from("/elsewhere"));
        assert!(settings.disabled && settings.split_immediate);
        assert_eq!(settings.talk, Talk::Debug);
    }
}
