//! A moving backend on a thread of its own, so that the control loop never waits for a migration.
//!
//! Method: calls become messages; the thread drains them, ticks the [`Engine`], sleeps as long as the engine says or until
//! a message comes. Of each application only the last word on its limits, its coming and its going is kept, so that a caller
//! who never polls costs nothing, and no refusal is lost to a later word on something else.
//!
//! Limits: dropping the backend waits for the piece of work under way, a bounded one.

use super::engine::{Engine, Mover, Next};
use super::{Backend, BackendKind, Progress};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::{AppId, TierLimits};
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

type Reports = Arc<Mutex<BTreeMap<(AppId, u8), Progress>>>;

/// An engine on its thread.
pub struct Background {
    kind: BackendKind,
    host: MemoryHost,
    adopted: BTreeSet<AppId>,
    /// Let go, and the result is not reported yet.
    releasing: BTreeSet<AppId>,
    messages: Option<Sender<Message>>,
    reports: Reports,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. Fails if no thread could be started.
    pub fn start<M: Mover + 'static>(engine: Engine<M>) -> Result<Self, MemError> {
        let (messages, inbox) = channel();
        let reports = Reports::default();
        let (kind, host) = (engine.kind(), engine.context.host.clone());
        let shared = Arc::clone(&reports);
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
            releasing: BTreeSet::new(),
            messages: Some(messages),
            reports,
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
        let mut reports = self.reports.lock().expect("no holder of the lock panics");
        let found: Vec<Progress> = std::mem::take(&mut *reports).into_values().collect();
        drop(reports);
        for progress in &found {
            match progress {
                Progress::Gone { app } | Progress::AdoptFailed { app, .. } => {
                    self.adopted.remove(app);
                }
                Progress::Released { app } | Progress::ReleaseFailed { app, .. } => {
                    self.releasing.remove(app);
                }
                _ => {}
            }
        }
        found
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        if !self.adopted.remove(&app) {
            return Err(MemError::Unknown(app.0));
        }
        self.releasing.insert(app);
        self.send(Message::Release(app));
        Ok(())
    }

    fn is_releasing(&self, app: AppId) -> bool {
        self.releasing.contains(&app)
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

fn run<M: Mover>(mut engine: Engine<M>, inbox: &Receiver<Message>, reports: &Reports) {
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
        let mut reports = reports.lock().expect("no holder of the lock panics");
        for progress in tell {
            reports.insert((progress.app(), progress.about()), progress);
        }
    }
}

fn perform<M: Mover>(engine: &mut Engine<M>, message: Message, tell: &mut Vec<Progress>) {
    match message {
        Message::Adopt(app, cgroup, far_tiers) => match engine.adopt(app, cgroup, far_tiers) {
            Ok(()) => {}
            Err(error) if error.is_gone() => tell.push(Progress::Gone { app }),
            Err(why) => tell.push(Progress::AdoptFailed { app, why }),
        },
        Message::Apply(app, limits) => engine.apply(app, limits),
        // A group that was never taken may have limits of an earlier service, so the absence of a failure here shows
        // nothing.
        Message::Release(app) if !engine.has(app) => tell.push(Progress::ReleaseFailed {
            app,
            why: MemError::Unknown(app.0),
        }),
        Message::Release(app) => tell.push(match engine.release(app) {
            Ok(()) => Progress::Released { app },
            Err(why) => Progress::ReleaseFailed { app, why },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::per_numa_high::PerNumaHigh;
    use crate::testing::{APP, Tree, engine, near};

    const HIGH: &str = "/sys/fs/cgroup/app/memory.per_numa_high";

    fn start(tree: &Tree) -> Background {
        Background::start(engine(tree, PerNumaHigh::default())).unwrap()
    }

    /// Polls until something of that kind is said: the thread has its own pace.
    fn hear(backend: &mut Background, wanted: fn(&Progress) -> bool) -> Progress {
        for _ in 0..10_000 {
            if let Some(found) = backend.poll(Instant::ZERO).into_iter().find(wanted) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("never said");
    }

    #[test]
    fn a_refused_adoption_is_reported_with_its_reason_and_can_be_tried_again() {
        let tree = Tree::two_tiers();
        let group = tree.cgroup("/app", &[(0, 100), (1, 0)]);
        let mut backend = start(&tree);
        backend.adopt(APP, &group, &[]).unwrap();
        let report = hear(&mut backend, |said| {
            matches!(said, Progress::AdoptFailed { .. })
        });
        let Progress::AdoptFailed { why, .. } = report else {
            unreachable!("it was looked for");
        };
        assert!(why.to_string().contains("memory.per_numa_high"), "{why}");
        assert!(matches!(
            backend.apply(APP, &TierLimits::default()),
            Err(MemError::Unknown(1))
        ));
        tree.write(HIGH, "max\nmax\n");
        backend.adopt(APP, &group, &[]).unwrap();
        backend.apply(APP, &near(200)).unwrap();
        hear(&mut backend, |said| {
            matches!(said, Progress::Reached { .. })
        });
    }

    #[test]
    fn a_release_is_under_way_until_it_is_reported_done_or_refused() {
        let tree = Tree::two_tiers();
        let group = tree.cgroup("/app", &[(0, 100), (1, 0)]);
        tree.write(HIGH, "max\nmax\n");
        let mut backend = start(&tree);
        backend.adopt(APP, &group, &[]).unwrap();
        backend.release(APP).unwrap();
        hear(&mut backend, |said| {
            matches!(said, Progress::Released { .. })
        });
        assert!(!backend.is_releasing(APP));
        backend.adopt(APP, &group, &[]).unwrap();
        // A directory in the file's place refuses every write, for root too.
        tree.remove(HIGH);
        tree.write(&format!("{HIGH}/directory"), "");
        backend.release(APP).unwrap();
        hear(&mut backend, |said| {
            matches!(said, Progress::ReleaseFailed { .. })
        });
        assert!(!backend.is_releasing(APP));
    }
}
