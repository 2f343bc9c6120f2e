//! Counts the bytes of the devices' ports for [`Governor::port_counted`].
//!
//! Problem: reading a port's counter may be a command to the firmware, which the event loop cannot wait for. Method: a
//! thread per device reads two counters at the end of each window. Limits: drivers without a counter of RDMA bytes
//! (Soft-RoCE, siw) report nothing; their foreign traffic is not known and the policy works without it.

use crate::attachment::Attachment;
use crate::governor::{Governor, PortCount};
use crate::server::now_ns;
use crate::settings::Settings;
use crate::worker::Worker;
use isolane_common_linux::root::Root;
use isolane_common_quantities::units::Duration;
use isolane_rdma_inventory::counters::{self, Counter, Extra, Snapshot, Window};
use std::os::fd::BorrowedFd;

/// What is read of a port.
const COUNTERS: [Counter; 2] = [Counter::TxBytes, Counter::RxPackets];
/// Least time between two lines about foreign traffic of a device, ns.
const LINE_NS: u64 = 60_000_000_000;

/// The port of one device of the configuration.
#[derive(Debug)]
pub(crate) struct PortWatch {
    device: usize,
    worker: Worker<(), Snapshot>,
    before: Option<Snapshot>,
    due_ns: Option<u64>,
    /// Whether the last line said that there is foreign traffic, and when.
    said: (bool, u64),
    say: fn(&str),
}

impl PortWatch {
    /// Starts a thread for the device at that place of the configuration. `say` prints one line for people. Fails if no
    /// thread can be made.
    pub(crate) fn start(
        settings: &Settings,
        device: usize,
        now_ns: u64,
        say: fn(&str),
    ) -> std::io::Result<Self> {
        let name = settings.config.devices[device].name.clone();
        let port = u32::from(settings.ports[device].number);
        let thread = format!("port-{device}");
        Ok(Self {
            device,
            worker: Worker::start(&thread, move |()| read(&name, port))?,
            before: None,
            due_ns: Some(now_ns),
            said: (false, 0),
            say,
        })
    }

    /// Prints a line when foreign traffic begins or ends.
    fn report(&mut self, now_ns: u64, governor: &Governor) {
        let (is_there, rate) = governor.foreign(now_ns, self.device);
        let (said, at_ns) = self.said;
        if is_there == said || (at_ns > 0 && now_ns.saturating_sub(at_ns) < LINE_NS) {
            return;
        }
        self.said = (is_there, now_ns);
        let name = &governor.config().devices[self.device].name;
        (self.say)(&match is_there {
            true => format!(
                "{name}: {:.3} Gb/s that no session posted; until it ends, late reference messages lower no rate; isolane rdma top names the processes",
                rate as f64 * 8.0 / 1e9
            ),
            false => format!("{name}: all traffic is the sessions' again"),
        });
    }
}

/// Reads the two counters.
fn read(device: &str, port: u32) -> Snapshot {
    let root = Root::with_emulated_devices();
    let wanted = |counter| COUNTERS.contains(&counter);
    counters::read_if(&root, device, port, &Extra::default(), wanted, now_ns())
}

/// Whether the driver has both counters. Soft-RoCE counts packets but no bytes.
fn has_both(snapshot: &Snapshot) -> bool {
    COUNTERS
        .iter()
        .all(|counter| snapshot.values.contains_key(counter))
}

/// The count of a window; `None` if a counter is missing or was reset.
fn count(before: &Snapshot, after: &Snapshot) -> Option<PortCount> {
    let window = Window::between(before, after)?;
    Some(PortCount {
        length: Duration::from_ns(after.taken_ns - before.taken_ns),
        sent_bytes: *window.rises.get(&Counter::TxBytes)?,
        received_packets: *window.rises.get(&Counter::RxPackets)?,
    })
}

impl Attachment for PortWatch {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.worker.descriptor())
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.due_ns
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        while let Some(after) = self.worker.answer() {
            if !has_both(&after) {
                // The driver lacks a counter: more readings would cost time and give nothing.
                return;
            }
            if let Some(count) = self
                .before
                .as_ref()
                .and_then(|before| count(before, &after))
            {
                governor.port_counted(now_ns, self.device, &count);
                self.report(now_ns, governor);
            }
            self.before = Some(after);
            let pause_ns = governor.count_window(self.device).as_ps() / 1_000;
            self.due_ns = Some(now_ns + pause_ns);
        }
        if self.due_ns.is_some_and(|due| due <= now_ns) {
            self.due_ns = None;
            self.worker.ask(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_inventory::counters::Reading;

    fn snapshot(taken_ns: u64, values: &[(Counter, u64)]) -> Snapshot {
        let reading = |value| Reading { value, modulus: 0 };
        let values = values.iter();
        Snapshot {
            taken_ns,
            values: values
                .map(|&(counter, value)| (counter, reading(value)))
                .collect(),
        }
    }

    #[test]
    fn a_window_needs_both_counters() {
        let both = |bytes| [(Counter::TxBytes, bytes), (Counter::RxPackets, 7)];
        let (before, after) = (snapshot(1_000, &both(5)), snapshot(3_000, &both(105)));
        let expected = PortCount {
            length: Duration::from_us(2),
            sent_bytes: 100,
            received_packets: 0,
        };
        assert_eq!(count(&before, &after), Some(expected));
        let half = snapshot(3_000, &[(Counter::TxBytes, 105)]);
        assert_eq!(count(&before, &half), None);
        assert!(has_both(&before) && !has_both(&half));
        assert_eq!(count(&after, &before), None);
    }
}
