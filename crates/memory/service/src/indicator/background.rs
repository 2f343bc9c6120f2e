//! Sensors on a thread of their own, so that the control loop never waits for a file.
//!
//! Method: the thread observes every `EVERY` and leaves the result with the time; `observe` returns the last one with its age
//! added. A thread that hangs in the kernel gives older and older readings, on which the policy does not act.
//!
//! Limits: the age is by the machine's clock; the time that the caller gives is not used.

use super::pressure::Pressure;
use super::{Sensors, SourceInfo};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::Tiers;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{AppId, Observation, Reading, TIERS_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Half a period of the policy.
const EVERY: std::time::Duration = std::time::Duration::from_millis(100);

enum Message {
    Adopt(AppId, Cgroup),
    Release(AppId),
}

#[derive(Debug, Default)]
struct Shared {
    last: Option<(std::time::Instant, Observation)>,
    pressures: BTreeMap<AppId, Pressure>,
    sources: Vec<SourceInfo>,
}

/// Sensors on their thread.
pub struct BackgroundSensors {
    host: MemoryHost,
    tiers: Tiers,
    adopted: BTreeSet<AppId>,
    messages: Option<Sender<Message>>,
    shared: Arc<Mutex<Shared>>,
    started: std::time::Instant,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundSensors {
    /// Starts the thread over `sensors`. Fails if no thread could be started.
    pub fn start(host: MemoryHost, sensors: impl Sensors + 'static) -> Result<Self, MemError> {
        let (messages, inbox) = channel();
        let shared = Arc::new(Mutex::new(Shared {
            last: None,
            pressures: BTreeMap::new(),
            sources: sensors.sources(),
        }));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("mem-sensors".to_owned())
            .spawn(move || run(sensors, &inbox, &theirs))
            .map_err(|source| MemError::Kernel {
                action: "start the thread that measures".to_owned(),
                source,
            })?;
        Ok(Self {
            tiers: Tiers::read(&host),
            host,
            adopted: BTreeSet::new(),
            messages: Some(messages),
            shared,
            started: std::time::Instant::now(),
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

impl Sensors for BackgroundSensors {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.host.held_by_node(cgroup)?;
        self.adopted.insert(app);
        self.send(Message::Adopt(app, cgroup.clone()));
        Ok(())
    }

    fn release(&mut self, app: AppId) {
        self.adopted.remove(&app);
        self.send(Message::Release(app));
    }

    fn observe(&mut self, _now: Instant) -> Observation {
        let shared = self.shared.lock().expect("no holder of the lock panics");
        let Some((at, observation)) = &shared.last else {
            return Observation::default();
        };
        let older = Duration::from_secs_f64(at.elapsed().as_secs_f64());
        let mut observation = observation.clone();
        drop(shared);
        observation
            .apps
            .retain(|view| self.adopted.contains(&view.id));
        grow_old(&mut observation, older);
        observation
    }

    fn held(&self, cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        self.host.held(&self.tiers, cgroup).ok()
    }

    fn pressures(&self) -> BTreeMap<AppId, Pressure> {
        let shared = self.shared.lock().expect("no holder of the lock panics");
        shared.pressures.clone()
    }

    fn age(&self) -> Duration {
        let shared = self.shared.lock().expect("no holder of the lock panics");
        // A thread that hangs in its first look grows old as well.
        let at = shared.last.as_ref().map_or(self.started, |(at, _)| *at);
        Duration::from_secs_f64(at.elapsed().as_secs_f64())
    }

    fn sources(&self) -> Vec<SourceInfo> {
        let shared = self.shared.lock().expect("no holder of the lock panics");
        shared.sources.clone()
    }
}

impl Drop for BackgroundSensors {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

/// Adds to the age of every reading.
fn grow_old(observation: &mut Observation, by: Duration) {
    fn older<T>(reading: &mut Option<Reading<T>>, by: Duration) {
        if let Some(reading) = reading {
            reading.age = Duration::from_ps(reading.age.as_ps().saturating_add(by.as_ps()));
        }
    }
    older(&mut observation.hint_faults_per_s, by);
    for tier in &mut observation.tiers {
        older(&mut tier.bandwidth, by);
    }
    for app in &mut observation.apps {
        older(&mut app.latency, by);
        older(&mut app.bandwidth, by);
        older(&mut app.cpu_used, by);
    }
}

/// Lets applications come and go until the next look is due; false when it is all over. However many come and go, the look is not put off:
/// readings would grow old, and old ones lead to nothing.
fn until_due(
    sensors: &mut impl Sensors,
    inbox: &Receiver<Message>,
    due: std::time::Instant,
) -> bool {
    loop {
        let left = due.saturating_duration_since(std::time::Instant::now());
        match inbox.recv_timeout(left) {
            Ok(Message::Adopt(app, cgroup)) => {
                // The backend reports a group that has vanished meanwhile.
                let _ = sensors.adopt(app, &cgroup);
            }
            Ok(Message::Release(app)) => sensors.release(app),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
        if std::time::Instant::now() >= due {
            return true;
        }
    }
}

fn run(mut sensors: impl Sensors, inbox: &Receiver<Message>, shared: &Arc<Mutex<Shared>>) {
    let start = std::time::Instant::now();
    let mut due = start + EVERY;
    while until_due(&mut sensors, inbox, due) {
        let at = std::time::Instant::now();
        let observation = sensors.observe(Instant::from_ps(
            u64::try_from(start.elapsed().as_nanos())
                .unwrap_or(u64::MAX / 1000)
                .saturating_mul(1000),
        ));
        let (pressures, sources) = (sensors.pressures(), sensors.sources());
        let mut shared = shared.lock().expect("no holder of the lock panics");
        shared.last = Some((at, observation));
        (shared.pressures, shared.sources) = (pressures, sources);
        due = std::time::Instant::now() + EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indicator::fake::FakeSensors;
    use isolane_memory_policy::mercury::{STALE, Source};

    #[test]
    fn applications_that_come_and_go_do_not_put_off_a_look() {
        let (send, inbox) = channel();
        for app in 1..=3 {
            send.send(Message::Release(AppId(app))).unwrap();
        }
        let due = std::time::Instant::now();
        assert!(until_due(&mut FakeSensors::default(), &inbox, due));
        assert_eq!(inbox.try_iter().count(), 2, "the rest waits for the look");
        drop(send);
        let later = due + std::time::Duration::from_secs(60);
        assert!(!until_due(&mut FakeSensors::default(), &inbox, later));
    }

    #[test]
    fn readings_of_a_thread_that_hangs_become_stale() {
        let mut observation = Observation {
            hint_faults_per_s: Some(Reading {
                value: 1.0,
                age: Duration::ZERO,
                source: Source::Kernel,
            }),
            ..Observation::default()
        };
        grow_old(&mut observation, STALE);
        assert!(observation.hint_faults_per_s.unwrap().fresh().is_some());
        grow_old(&mut observation, Duration::from_ps(1));
        assert_eq!(observation.hint_faults_per_s.unwrap().fresh(), None);
    }
}
