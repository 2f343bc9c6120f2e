//! Reloads the configuration file while the daemon runs.
//!
//! Method: at a signal the file is read and checked. Values that can change at run time take effect at once, and the
//! others are named. A file with a mistake changes nothing.

use crate::attachment::Attachment;
use crate::governor::Governor;
use crate::notify::Notify;
use crate::peers::Targets;
use crate::settings::Settings;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Reads the settings with the program's arguments; the error is one line for people.
pub type Source = Box<dyn Fn() -> Result<Settings, String>>;

/// Waits for reload signals.
pub struct Reload {
    /// Readable at each signal.
    order: UnixStream,
    source: Source,
    now: Settings,
    targets: Targets,
    notify: Notify,
    say: fn(&str),
}

impl Reload {
    /// Waits on `order`; each byte is one signal. `now` are the current settings.
    ///
    /// # Errors
    /// `order` cannot be made non-blocking.
    pub fn new(
        order: UnixStream,
        source: Source,
        now: Settings,
        targets: Targets,
        notify: Notify,
        say: fn(&str),
    ) -> std::io::Result<Self> {
        order.set_nonblocking(true)?;
        Ok(Self {
            order,
            source,
            now,
            targets,
            notify,
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
        let mut config = next.config.clone();
        for (device, measured) in config.devices.iter_mut().zip(&*self.targets.borrow()) {
            device.target = device.target.or(*measured);
        }
        let rates = governor.port_rates().to_vec();
        let taken = governor.reconfigure(now_ns, config, rates);
        taken.map_err(|error| error.to_string())?;
        let counts = format!(
            "{} rules, {} tenants",
            next.config.rules.len(),
            next.config.tenants.len()
        );
        self.now = next;
        Ok(counts)
    }
}

impl Attachment for Reload {
    fn name(&self) -> &str {
        "reload"
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.order.as_fd())
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        // Several signals cause one reload.
        let mut bytes = [0; 64];
        while matches!(self.order.read(&mut bytes), Ok(count) if count > 0) {}
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
        let notify = Notify::from_environment();
        let mut reload = Reload::new(order, source, settings, targets, notify, |_| ()).unwrap();
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
        let notify = Notify::from_environment();
        let mut reload =
            Reload::new(order, source, settings, Targets::default(), notify, |_| ()).unwrap();
        giver.write_all(b"xxx").unwrap();
        reload.ready(1, &mut governor);
        assert_eq!(*read.borrow(), 1);
    }
}
