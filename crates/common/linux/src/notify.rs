//! Messages to the service manager: ready, reloading, stopping, watchdog.
//!
//! Method: one datagram of lines to the socket in `NOTIFY_SOCKET`. A service manager that does not read must not stop a
//! service, so sending does not wait. Only [`Notify::ready_in_time`] tries again. Without a service manager nothing is
//! sent. Source: sd_notify(3).

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;
use std::time::{Duration, Instant};

/// How long [`Notify::ready_in_time`] waits for a service manager whose queue is full.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The manager restarts a service that sends nothing for this long, ns.
    watchdog_ns: Option<u64>,
}

impl Notify {
    /// Reads the environment variables of the service manager.
    pub fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog_us = number("WATCHDOG_USEC").filter(|_| is_ours);
        let path = std::env::var("NOTIFY_SOCKET").unwrap_or_default();
        Self::to(&path, watchdog_us)
    }

    /// Sends to the socket at `path`, in the abstract namespace if `path` begins with `@`; an empty path sends nothing.
    pub fn to(path: &str, watchdog_us: Option<u64>) -> Self {
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name.as_bytes()).ok(),
            None if path.starts_with('/') => SocketAddr::from_pathname(path).ok(),
            None => None,
        };
        Self {
            socket: address.and_then(|address| {
                let socket = UnixDatagram::unbound().ok()?;
                socket.set_nonblocking(true).ok()?;
                Some((socket, address))
            }),
            watchdog_ns: watchdog_us
                .filter(|us| *us > 0)
                .map(|us| us.saturating_mul(1_000)),
        }
    }

    /// How often the service manager wants a message from [`Notify::alive`], at least, ns.
    pub const fn watchdog_ns(&self) -> Option<u64> {
        self.watchdog_ns
    }

    /// Reports that the service runs. `status` is one line for people.
    pub fn ready(&self, status: &str) {
        let _ = self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The same, and waits up to 10 s while the queue of the service manager is full: it ends a service whose message it
    /// missed. Not for a loop that has other work.
    pub fn ready_in_time(&self, status: &str) {
        let text = format!("READY=1\nSTATUS={status}");
        let begun = Instant::now();
        while !self.send(&text) && begun.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
        }
    }

    /// Reports a reload; [`Notify::ready`] must follow.
    pub fn reloading(&self, now_ns: u64) {
        let _ = self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1_000));
    }

    /// Reports that the service still runs.
    pub fn alive(&self) {
        let _ = self.send("WATCHDOG=1");
    }

    /// Reports that the service ends.
    pub fn stopping(&self) {
        let _ = self.send("STOPPING=1");
    }

    /// False if the queue is full. Other errors are ignored: a missing service manager must not stop the service.
    fn send(&self, text: &str) -> bool {
        let Some((socket, address)) = &self.socket else {
            return true;
        };
        let sent = socket.send_to_addr(text.as_bytes(), address);
        !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_is_notified_at_paths_and_abstract_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.to_str().unwrap(), None);
        notify.ready("serves r0");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=serves r0");
        notify.reloading(5_000_123);
        assert_eq!(heard(&manager), "RELOADING=1\nMONOTONIC_USEC=5000");

        let name = format!("isolane-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notify::to(&format!("@{name}"), None).stopping();
        assert_eq!(heard(&manager), "STOPPING=1");
    }

    #[test]
    fn a_manager_with_a_full_queue_still_hears_that_the_service_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.to_str().unwrap(), None);
        manager.set_read_timeout(Some(PATIENCE * 6)).unwrap();
        while notify.send("WATCHDOG=1") {}
        let reader = thread::spawn(move || {
            let mut count = 0;
            while heard(&manager) == "WATCHDOG=1" {
                count += 1;
            }
            count
        });
        notify.ready_in_time("x");
        assert!(reader.join().unwrap() > 0);
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        for path in ["", "relative", "/nonexistent/notify"] {
            Notify::to(path, None).ready("x");
        }
        assert_eq!(Notify::to("", None).watchdog_ns(), None);
        assert_eq!(Notify::to("", Some(0)).watchdog_ns(), None);
        assert_eq!(Notify::to("", Some(10)).watchdog_ns(), Some(10_000));
    }
}
