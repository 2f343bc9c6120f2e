//! The memory service in the daemon: beside the devices on a thread of its own, or alone.
//!
//! Problem: tiered memory and RDMA devices have nothing in common but the machine; one must not stop or slow the other.
//! Method: [`Memory`] is a service that is ready; it runs until its stop is readable. Its clock is started anew when it
//! asks for that. Alone it serves its figures itself, where the settings say so; beside devices the daemon's metrics
//! have them.
//! Limits: a service that cannot start anew ends, is told of, and leaves applications as they are.

use crate::settings::Listen;
use crate::show::server::{Server, Shown, Source};
use crate::snapshot::Snapshot;
use isolane_memory_service::service::settings::{MetricsPlace, Settings};
use isolane_memory_service::service::{self, Ended, Service, ServiceError};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

/// A service that is ready to run.
pub struct Memory {
    settings: Settings,
    service: Service,
    say: fn(&str),
}

/// One that runs on a thread of its own.
#[derive(Debug)]
pub struct Beside {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

/// Without devices there is nothing else to show.
struct NoDevices;

impl Source for NoDevices {
    fn snapshot(&mut self) -> Option<Snapshot> {
        Some(Snapshot::default())
    }
}

impl Memory {
    /// Takes up what an earlier service left, and listens; `say` prints one line for people.
    ///
    /// # Errors
    /// See [`ServiceError`].
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

    /// Runs on this thread until `stop` is readable.
    ///
    /// # Errors
    /// It cannot start anew, or its metrics have no place.
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
        // It ends at once, or after the reader that it is waiting with.
        let _ = thread.join();
        ran
    }

    /// Runs on a thread of its own from now on.
    ///
    /// # Errors
    /// There is no thread to be had.
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
    /// Ends it: limits are lifted, applications run on.
    pub fn end(self) {
        ring(&self.stop);
        // A thread that panicked has said so.
        let _ = self.thread.join();
    }
}

fn bell() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(bell: &OwnedFd) {
    // It fails only when it was rung more often than fits 64 bits.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
