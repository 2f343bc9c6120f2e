//! The server's way to the event loop: it rings, the loop answers with a snapshot.
//!
//! Limits: while the loop is busy the reader waits at most a second and is then told so.

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

/// How long the loop may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers the server's thread from the event loop.
pub struct Exporter {
    asked: OwnedFd,
    answers: SyncSender<Snapshot>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// The server's end.
struct Asker {
    bell: OwnedFd,
    answers: Receiver<Snapshot>,
}

impl Source for Asker {
    fn snapshot(&mut self) -> Option<Snapshot> {
        // An answer that came too late for the last reader is none for this one.
        while self.answers.try_recv().is_ok() {}
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok()?;
        self.answers.recv_timeout(PATIENCE).ok()
    }
}

impl Exporter {
    /// Listens as the settings say, on a thread of its own.
    ///
    /// # Errors
    /// A place is taken or not allowed, or there is no thread to be had.
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
    fn name(&self) -> &str {
        "metrics"
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.asked.as_fd())
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        let _ = rustix::io::read(&self.asked, &mut [0u8; 8]);
        // Full: the server has one already that it did not take.
        let _ = self.answers.try_send(governor.snapshot(now_ns));
    }

    fn close(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It ends at once, or after the reader that it is waiting with.
            let _ = thread.join();
        }
    }
}
