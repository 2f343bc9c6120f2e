//! Connects the metrics server to the event loop: the server signals, the loop answers with a snapshot.
//!
//! Limits: while the loop is busy, the reader waits at most one second and then gets an error.

use super::server::{Server, ServerError, Shown, Source};
use crate::attachment::Attachment;
use crate::governor::Governor;
use crate::settings::{Listen, Settings};
use crate::snapshot::Snapshot;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the server waits for the loop.
const PATIENCE: Duration = Duration::from_secs(1);

/// The event loop's side: answers the server's thread.
pub struct Exporter {
    asked: OwnedFd,
    answers: SyncSender<Snapshot>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// The server's side.
struct Asker {
    bell: OwnedFd,
    answers: Receiver<Snapshot>,
}

impl Source for Asker {
    fn snapshot(&mut self) -> Option<Snapshot> {
        // Discards an answer that came too late for the last reader.
        while self.answers.try_recv().is_ok() {}
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok()?;
        self.answers.recv_timeout(PATIENCE).ok()
    }
}

impl Exporter {
    /// Listens as configured, on its own thread. Fails if an address is taken or not permitted, or no thread can be
    /// started.
    pub fn start(settings: &Settings) -> Result<Self, ServerError> {
        let failed = |error| ServerError::thread(std::io::Error::from(error));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (asked, stop) = (
            eventfd(0, flags).map_err(failed)?,
            eventfd(0, flags).map_err(failed)?,
        );
        let (sender, answers) = sync_channel(1);
        let asker = Asker {
            bell: asked.try_clone().map_err(ServerError::thread)?,
            answers,
        };
        let mut server = Server::new(asker, stop.try_clone().map_err(ServerError::thread)?);
        server.listen(&Listen::Unix(settings.control.clone()), Shown::Everything)?;
        if let Some(place) = &settings.metrics {
            server.listen(place, Shown::Metrics)?;
        }
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread
            .spawn(move || server.run())
            .map_err(ServerError::thread)?;
        Ok(Self {
            asked,
            answers: sender,
            stop,
            thread: Some(thread),
        })
    }
}

impl Attachment for Exporter {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.asked.as_fd())
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        let _ = rustix::io::read(&self.asked, &mut [0u8; 8]);
        // The channel is full: an earlier answer was not taken.
        let _ = self.answers.try_send(governor.snapshot(now_ns));
    }

    fn close(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It ends at once, or after its current reader.
            let _ = thread.join();
        }
    }
}
