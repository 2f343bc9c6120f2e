//! The memory service in the daemon: on its own thread beside the devices, or alone.
//!
//! Problem: tiered memory and RDMA devices share only the machine; neither must stop or slow the other. Method:
//! [`Memory`] runs until its stop descriptor is readable, and restarts its clock when the service requests it. Alone,
//! it serves its own metrics if the settings request them; beside devices, the daemon's metrics include them. Limits: a
//! service that cannot restart ends with a message and leaves applications as they are.

use crate::settings::Listen;
use crate::show::server::{Server, Shown, Source};
use crate::snapshot::Snapshot;
use isolane_memory_service::service::settings::{MetricsPlace, Settings};
use isolane_memory_service::service::{self, Ended, Service, ServiceError};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

/// A memory service that is ready to run.
pub struct Memory {
    settings: Settings,
    service: Service,
    say: fn(&str),
}

/// A memory service that runs on its own thread.
#[derive(Debug)]
pub struct Beside {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

/// Source of the metrics server when no device is served.
struct NoDevices;

impl Source for NoDevices {
    fn snapshot(&mut self) -> Option<Snapshot> {
        Some(Snapshot::default())
    }
}

impl Memory {
    /// Takes over the state of an earlier service, and listens. `say` prints one line for people.
    pub fn start(settings: Settings, say: fn(&str)) -> Result<Self, ServiceError> {
        let service = service::open(&settings)?;
        let (place, count) = (settings.socket.display(), service.applications());
        say(&format!(
            "serves memory at {place}, {count} applications taken up"
        ));
        Ok(Self {
            settings,
            service,
            say,
        })
    }

    /// Runs on this thread until `stop` is readable. Fails if the service cannot restart, or its metrics address is not
    /// available.
    pub fn run_alone(self, stop: &OwnedFd) -> Result<(), ServiceError> {
        let failed =
            |error: &dyn std::fmt::Display| ServiceError::Settings(format!("metrics: {error}"));
        let Some(place) = self.settings.metrics.clone() else {
            return self.run(stop);
        };
        let end = bell().map_err(|error| failed(&error))?;
        let heard = end.try_clone().map_err(|error| failed(&error))?;
        let mut server = Server::new(NoDevices, heard);
        let place = match place {
            MetricsPlace::Unix(path) => Listen::Unix(path),
            MetricsPlace::Loopback(address) => Listen::Tcp(address),
        };
        let listened = server.listen(&place, Shown::Metrics);
        listened.map_err(|error| failed(&error))?;
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread
            .spawn(move || server.run())
            .map_err(|error| failed(&error))?;
        let ran = self.run(stop);
        ring(&end);
        // It ends at once, or after its current reader.
        let _ = thread.join();
        ran
    }

    /// Runs on its own thread from now on. Fails if no thread can be started.
    pub fn beside(self) -> std::io::Result<Beside> {
        let stop = bell()?;
        let heard = stop.try_clone()?;
        let thread = std::thread::Builder::new().name("memory".to_owned());
        let thread = thread.spawn(move || {
            let say = self.say;
            if let Err(error) = self.run(&heard) {
                say(&format!("memory is no longer served: {error}"));
            }
        })?;
        Ok(Beside { stop, thread })
    }

    fn run(self, stop: &OwnedFd) -> Result<(), ServiceError> {
        let mut service = self.service;
        loop {
            service.publish();
            if service.run(stop) == Ended::Stopped {
                return Ok(());
            }
            service = service::open(&self.settings)?;
        }
    }
}

impl Beside {
    /// Ends the service: it removes limits, and applications go on.
    pub fn end(self) {
        ring(&self.stop);
        // A thread that panicked has already printed its message.
        let _ = self.thread.join();
    }
}

fn bell() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(bell: &OwnedFd) {
    // The write fails only when the counter would overflow 64 bits.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
