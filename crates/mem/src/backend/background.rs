//! A moving backend on a thread of its own, so that the control loop never waits for a migration.
//!
//! Method: calls become messages; the thread drains them, ticks the [`Engine`], sleeps as long as the engine says or until
//! a message comes. Only the last progress of each application is kept, so that a caller who never polls costs nothing.
//!
//! Limits: dropping the backend waits for the piece of work under way, a bounded one.

use super::engine::{Engine, Mover, Next};
use super::{Backend, BackendKind, Progress};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_core::policy::mercury::{AppId, TierLimits};
use isolane_core::units::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks at applications that keep their limits: half a period of the policy.
const LEISURE: Duration = Duration::from_millis(100);

/// The shortest pause between ticks that have work: other threads must run too.
const BREATH: Duration = Duration::from_millis(2);

enum Message {
    Adopt(AppId, Cgroup, Vec<u8>),
    Apply(AppId, TierLimits),
    Release(AppId),
}

type Told = Arc<Mutex<BTreeMap<AppId, Progress>>>;

/// An engine on its thread.
pub struct Background {
    kind: BackendKind,
    host: MemoryHost,
    adopted: BTreeSet<AppId>,
    messages: Option<Sender<Message>>,
    told: Told,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start<M: Mover + 'static>(engine: Engine<M>) -> Result<Self, MemError> {
        let (messages, inbox) = channel();
        let told = Told::default();
        let (kind, host) = (engine.kind(), engine.context.host.clone());
        let shared = Arc::clone(&told);
        let thread = std::thread::Builder::new()
            .name("mem-backend".to_owned())
            .spawn(move || run(engine, &inbox, &shared))
            .map_err(|source| MemError::Kernel {
                action: "start the thread that moves pages".to_owned(),
                source,
            })?;
        Ok(Self {
            kind,
            host,
            adopted: BTreeSet::new(),
            messages: Some(messages),
            told,
            thread: Some(thread),
        })
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // The thread ends only with us.
            let _ = messages.send(message);
        }
    }
}

impl Backend for Background {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError> {
        self.host.held_by_node(cgroup)?;
        self.adopted.insert(app);
        self.send(Message::Adopt(app, cgroup.clone(), far_tiers.to_vec()));
        Ok(())
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        if !self.adopted.contains(&app) {
            return Err(MemError::Unknown(app.0));
        }
        self.send(Message::Apply(app, *limits));
        Ok(())
    }

    fn poll(&mut self, _now: Instant) -> Vec<Progress> {
        let mut told = self.told.lock().expect("no holder of the lock panics");
        let found: Vec<Progress> = std::mem::take(&mut *told).into_values().collect();
        drop(told);
        for progress in &found {
            if let Progress::Gone { app } = progress {
                self.adopted.remove(app);
            }
        }
        found
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        if !self.adopted.remove(&app) {
            return Err(MemError::Unknown(app.0));
        }
        self.send(Message::Release(app));
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

fn run<M: Mover>(mut engine: Engine<M>, inbox: &Receiver<Message>, told: &Told) {
    let mut pause = Duration::ZERO;
    loop {
        let mut tell = Vec::new();
        match inbox.recv_timeout(pause) {
            Ok(message) => {
                perform(&mut engine, message, &mut tell);
                while let Ok(message) = inbox.try_recv() {
                    perform(&mut engine, message, &mut tell);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return engine.stop(),
        }
        pause = match engine.tick(&mut tell) {
            Next::After(pause) => pause.max(BREATH),
            Next::Idle => LEISURE,
        };
        let mut told = told.lock().expect("no holder of the lock panics");
        for progress in tell {
            told.insert(progress.app(), progress);
        }
    }
}

fn perform<M: Mover>(engine: &mut Engine<M>, message: Message, tell: &mut Vec<Progress>) {
    let (app, done) = match message {
        Message::Adopt(app, cgroup, far_tiers) => (app, engine.adopt(app, cgroup, far_tiers)),
        Message::Apply(app, limits) => {
            engine.apply(app, limits);
            (app, Ok(()))
        }
        Message::Release(app) => (app, engine.release(app)),
    };
    match done {
        Ok(()) => {}
        Err(error) if error.is_gone() => tell.push(Progress::Gone { app }),
        Err(why) => tell.push(Progress::Stuck {
            app,
            held: Default::default(),
            why,
        }),
    }
}
