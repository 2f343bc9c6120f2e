//! Reloads the configuration while the daemon runs: the file at a signal, the assignments once per second.
//!
//! Method: at a signal the file is read and checked. Values that can change at run time take effect at once, and the
//! others are named. A file with a mistake changes nothing. The directory of assignments is looked at when the daemon
//! starts and then once per [`LOOK_NS`]; only a change applies the configuration again.

use crate::assignments::Folder;
use crate::attachment::Attachment;
use crate::config::Config;
use crate::governor::Governor;
use crate::peers::Targets;
use crate::settings::Settings;
use isolane_common_linux::notify::Notify;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

/// Time between two looks at the assignments: a workload takes longer to start.
pub(crate) const LOOK_NS: u64 = 1_000_000_000;

/// Reads the settings with the program's arguments; the error is one line for people.
pub(crate) type Source = Box<dyn Fn() -> Result<Settings, String>>;

/// Waits for reload signals.
pub(crate) struct Reload {
    /// Readable at each signal.
    order: UnixStream,
    source: Source,
    now: Settings,
    targets: Targets,
    notify: Notify,
    say: fn(&str),
    folder: Folder,
    /// Time of the next look at the assignments.
    look_ns: u64,
}

impl Reload {
    /// Waits on `order`; each byte is one signal. `now` are the current settings. Fails if `order` cannot be made
    /// non-blocking.
    pub(crate) fn new(
        order: UnixStream,
        source: Source,
        now: Settings,
        targets: Targets,
        say: fn(&str),
    ) -> std::io::Result<Self> {
        order.set_nonblocking(true)?;
        Ok(Self {
            folder: Folder::new(now.assignments()),
            look_ns: 0,
            order,
            source,
            now,
            targets,
            notify: Notify::from_environment(),
            say,
        })
    }

    fn reload(&mut self, now_ns: u64, governor: &mut Governor) -> Result<String, String> {
        let next = (self.source)()?;
        let stuck = self.now.needs_restart(&next);
        if !stuck.is_empty() {
            let keys = stuck.join(", ");
            return Err(format!(
                "{keys} cannot change while the daemon runs; restart it to apply the change"
            ));
        }
        self.apply(now_ns, &next.config, governor)?;
        let counts = format!(
            "{} rules, {} tenants",
            next.config.rules.len(),
            next.config.tenants.len()
        );
        self.now = next;
        Ok(counts)
    }

    /// Applies `config` with the assignments and the measured targets.
    fn apply(&self, now_ns: u64, config: &Config, governor: &mut Governor) -> Result<(), String> {
        let mut config = self.folder.applied(config);
        for (device, measured) in config.devices.iter_mut().zip(&*self.targets.borrow()) {
            device.target = device.target.or(*measured);
        }
        let rates = governor.port_rates().to_vec();
        let taken = governor.reconfigure(now_ns, config, rates);
        taken.map_err(|error| error.to_string())
    }

    /// Looks at the assignments if it is time, and applies a change.
    fn look(&mut self, now_ns: u64, today: SystemTime, governor: &mut Governor) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns.saturating_add(LOOK_NS);
        let change = self.folder.look(today);
        for note in &change.notes {
            (self.say)(note);
        }
        if !change.changed {
            return;
        }
        let count = self.folder.assignments().len();
        (self.say)(&match self.apply(now_ns, &self.now.config, governor) {
            Ok(()) => format!("assignments in force: {count}"),
            Err(reason) => format!("the assignments are not applied: {reason}"),
        });
    }
}

impl Attachment for Reload {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.order.as_fd())
    }

    fn deadline_ns(&self) -> Option<u64> {
        Some(self.look_ns)
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        // Several signals cause one reload.
        let mut bytes = [0; 64];
        let mut ordered = false;
        while matches!(self.order.read(&mut bytes), Ok(count) if count > 0) {
            ordered = true;
        }
        self.look(now_ns, SystemTime::now(), governor);
        if !ordered {
            return;
        }
        self.notify.reloading(now_ns);
        let text = match self.reload(now_ns, governor) {
            Ok(counts) => format!("the configuration is reloaded: {counts}"),
            Err(reason) => format!("the configuration is unchanged: {reason}"),
        };
        (self.say)(&text);
        self.notify.ready(&text);
    }

    fn close(&mut self) {
        self.notify.stopping();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;
    use isolane_common_quantities::units::{BitRate, Duration};
    use std::cell::RefCell;
    use std::io::Write;
    use std::rc::Rc;

    const START: &str = "[[device]]\nname = \"r0\"\nrate = \"1Gb/s\"\n";

    /// Starts a governor with [`START`] and reloads `text`.
    fn after(text: &'static str) -> (Governor, Result<String, String>) {
        let settings = parse("x.toml", START).unwrap();
        let mut governor =
            Governor::new(settings.config.clone(), vec![BitRate::from_gbps(1)], 0).unwrap();
        let (order, _) = UnixStream::pair().unwrap();
        let source: Source = Box::new(|| parse("x.toml", text).map_err(|error| error.to_string()));
        let targets: Targets = Rc::new(RefCell::new(vec![Some(Duration::from_us(9))]));
        let mut reload = Reload::new(order, source, settings, targets, |_| ()).unwrap();
        let result = reload.reload(5, &mut governor);
        (governor, result)
    }

    #[test]
    fn rules_and_rates_change_under_way_and_measured_targets_stay() {
        let (governor, result) = after(
            "[[device]]\nname = \"r0\"\nrate = \"2Gb/s\"\n[[tenant]]\nname = \"a\"\nweight = 3\n",
        );
        assert_eq!(result, Ok("0 rules, 1 tenants".to_owned()));
        let device = &governor.config().devices[0];
        assert_eq!(device.rate, Some(BitRate::from_gbps(2)));
        assert_eq!(device.target, Some(Duration::from_us(9)));
    }

    #[test]
    fn a_mistake_changes_nothing() {
        let (governor, result) = after("[[device]]\nname = \"r0\"\nrate = 2\n");
        assert!(
            result
                .unwrap_err()
                .starts_with("x.toml:3: device \"r0\": rate = 2")
        );
        assert_eq!(
            governor.config().devices[0].rate,
            Some(BitRate::from_gbps(1))
        );
    }

    #[test]
    fn what_needs_a_restart_is_named_and_changes_nothing() {
        let (governor, result) = after("socket = \"/tmp/s\"\n[[device]]\nname = \"r1\"\n");
        assert_eq!(
            result,
            Err(
                "socket, device cannot change while the daemon runs; restart it to apply the change"
                    .to_owned()
            )
        );
        assert_eq!(governor.config().devices[0].name, "r0");
    }

    #[test]
    fn an_assignment_applies_within_a_second_and_ends_with_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = parse("x.toml", START).unwrap();
        settings.control = directory.path().join("control.sock");
        let mut governor =
            Governor::new(settings.config.clone(), vec![BitRate::from_gbps(1)], 0).unwrap();
        let (order, _giver) = UnixStream::pair().unwrap();
        let source: Source = Box::new(|| Err("the file is not read".to_owned()));
        let folder = settings.assignments();
        let mut reload = Reload::new(order, source, settings, Targets::default(), |_| ()).unwrap();
        let assignment = crate::config::Assignment {
            members: crate::config::Members::Cgroup("/slurm/job_7/**".to_owned()),
            tenant: Some("job-7".to_owned()),
            weight: Some(3),
            ..Default::default()
        };
        assignment.write(&folder, "job-7").unwrap();
        reload.ready(1, &mut governor);
        let tenants = |governor: &Governor| governor.config().tenants.len();
        assert_eq!(tenants(&governor), 1);
        assert_eq!(governor.config().rules[0].tenant.as_deref(), Some("job-7"));
        crate::assignments::end(&folder, "job-7").unwrap();
        reload.ready(LOOK_NS, &mut governor);
        assert_eq!(tenants(&governor), 1, "it is not time yet");
        reload.ready(LOOK_NS + 1, &mut governor);
        assert_eq!(tenants(&governor), 0);
        assert_eq!(reload.deadline_ns(), Some(2 * LOOK_NS + 1));
    }

    #[test]
    fn several_orders_are_one() {
        let settings = parse("x.toml", START).unwrap();
        let mut governor =
            Governor::new(settings.config.clone(), vec![BitRate::from_gbps(1)], 0).unwrap();
        let (order, mut giver) = UnixStream::pair().unwrap();
        let read = Rc::new(RefCell::new(0));
        let counter = Rc::clone(&read);
        let source: Source = Box::new(move || {
            *counter.borrow_mut() += 1;
            parse("x.toml", START).map_err(|error| error.to_string())
        });
        let mut reload = Reload::new(order, source, settings, Targets::default(), |_| ()).unwrap();
        giver.write_all(b"xxx").unwrap();
        reload.ready(1, &mut governor);
        assert_eq!(*read.borrow(), 1);
    }
}
