//! From messages to probabilities, and back to the kernel.
//!
//! Problem: the kernel knows when the last byte was acknowledged, but a peer may delay its acknowledgement. Method: the
//! time of a message is an interval. Its end is the acknowledgement of the last byte. Its beginning is what the earlier
//! acknowledgements prove, and at least the end less the longest delay. [`Table::complete_between`] learns from a
//! message only if both ends agree. After each batch of messages the probabilities of their destinations go to the kernel.
//! Effect: the agent compares the code points of first packets, and turns marking off if they do not arrive.
//!
//! [`Table::complete_between`]: isolane_rpc::table::Table::complete_between

use crate::error::AgentError;
use crate::kernel::Programs;
use crate::rules::Rules;
use crate::view::{Ended, Labels, Rows, View};
use crate::wire::{
    CLASSES_MAX, Counts, DESTINATIONS_MAX, Destination, KernelSettings, Message, NO_CLASS,
    Probabilities, write_name,
};
use isolane_common_linux::{Root, cgroup};
use isolane_rpc::admission::Admission;
use isolane_rpc::settings::{Algorithm, Mode, Settings};
use isolane_rpc::table::Ask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages between two updates of the kernel's probabilities.
const BATCH: usize = 1_024;
/// First packets before the effect is judged.
const JUDGED_PACKETS: u64 = 100;
/// The part of them that may have another code point, one in this many: a program may change its mark at any time.
const OTHERS_ONE_IN: u64 = 10;
/// File system of version 2 cgroups (CGROUP2_SUPER_MAGIC).
const CGROUP_FS: i64 = 0x6367_7270;

/// What to measure and mark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the cgroup; connections of its descendants are included.
    pub cgroup: PathBuf,
    /// Classes of connections.
    pub rules: Rules,
    /// Longest time that a peer waits before it acknowledges a last segment.
    pub acknowledgement_delay: Duration,
}

/// Whether code points reach the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Marking goes on.
    Works,
    /// Marking is off from now on: of the judged first packets this many have another code point, or the kernel set this
    /// many code points not.
    None {
        /// First packets with another code point.
        other: u64,
        /// All first packets.
        of: u64,
        /// Code points that the kernel did not set.
        refused: u64,
    },
}

/// The programs at a cgroup and the table they feed. Marking and measurement end when it is dropped.
#[derive(Debug)]
pub struct Agent {
    programs: Programs,
    admission: Arc<Admission>,
    rules: Rules,
    acknowledgement_delay_ns: u64,
    /// What the kernel has.
    mode: Mode,
    /// Marking has no effect.
    stepped_aside: bool,
    judged: Counts,
    /// Probabilities that the kernel has.
    known: BTreeMap<Destination, Probabilities>,
    rows: Rows<(Destination, u8)>,
    since: Instant,
}

impl Agent {
    /// Attaches the programs. Fails for settings that have no effect here, a directory that is no cgroup, and where the
    /// kernel refuses the programs.
    pub fn attach(admission: Arc<Admission>, options: &Options) -> Result<Self, AgentError> {
        let settings = admission.settings();
        check(&settings)?;
        check_cgroup(&options.cgroup)?;
        let kernel = kernel_settings(&settings, settings.mode, &options.rules);
        let delay_ns = options.acknowledgement_delay.as_nanos();
        Ok(Self {
            programs: Programs::attach(&options.cgroup, kernel, &options.rules)?,
            rules: options.rules.clone(),
            acknowledgement_delay_ns: u64::try_from(delay_ns).unwrap_or(u64::MAX),
            mode: settings.mode,
            stepped_aside: false,
            judged: Counts::default(),
            known: BTreeMap::new(),
            rows: Rows::new(),
            since: Instant::now(),
            admission,
        })
    }

    /// Waits for messages, at most `timeout`, and processes a batch of them. Returns their number. Fails if the kernel
    /// rejects an update.
    pub fn step(&mut self, timeout: Duration) -> Result<usize, AgentError> {
        let timeout =
            Timespec::try_from(timeout).expect("an interval is not longer than centuries");
        {
            let ready = self.programs.ready();
            let mut wanted = [PollFd::new(&ready, PollFlags::IN)];
            match poll(&mut wanted, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    let (action, reason) = ("wait for messages", error.to_string());
                    return Err(AgentError::Kernel { action, reason });
                }
            }
        }
        let mut touched = BTreeSet::new();
        let mut messages = 0;
        let mut name = String::new();
        while messages < BATCH
            && let Some(message) = self.programs.message()
        {
            messages += 1;
            if self.learn(&message, &mut name) {
                touched.insert(message.to);
            }
        }
        for to in touched {
            self.update(&to, &mut name)?;
        }
        Ok(messages)
    }

    /// Passes a message to the table. Returns whether its class has a probability.
    fn learn(&mut self, message: &Message, name: &mut String) -> bool {
        let settings = self.admission.settings();
        let last = (settings.classes.len() - 1) as u8;
        if message.class > last {
            return false;
        }
        if message.to_unknown {
            // The kernel has dropped the destination for others, or never had it.
            self.known.remove(&message.to);
        }
        write_name(&message.to, name);
        let ask = Ask {
            destination: name.as_bytes(),
            class: message.class,
            bytes: message.bytes,
        };
        let class = if message.downgraded {
            last
        } else {
            message.class
        };
        let table = self.admission.table();
        let now_ns = message.ended_ns;
        let ticket = table.record(ask, message.admitted, class, now_ns);
        let (shortest, longest) = interval(message, self.acknowledgement_delay_ns);
        let known = "a ticket of this moment is valid";
        let met = match message.given_up {
            true => table
                .give_up(ticket, shortest, now_ns)
                .expect(known)
                .then_some(false),
            false => table
                .complete_between(ticket, (shortest, longest), now_ns)
                .expect(known),
        };
        let ended = Ended {
            bytes: message.bytes,
            packets: u64::from(ticket.mtus()),
            longest_ns: (!message.given_up).then_some(longest),
            downgraded: message.downgraded,
            met,
        };
        self.rows.add((message.to, message.class), ended);
        message.class != last
    }

    /// Gives the kernel the probabilities of a destination, if they have changed.
    fn update(&mut self, to: &Destination, name: &mut String) -> Result<(), AgentError> {
        write_name(to, name);
        let table = self.admission.table();
        let mut now: Probabilities = [1 << 32; CLASSES_MAX];
        for (class, parts) in now.iter_mut().enumerate().take(table.classes()) {
            if let Some(probability) = table.probability(name.as_bytes(), class as u8) {
                *parts = probability.parts();
            }
        }
        if self.known.get(to) == Some(&now) {
            return Ok(());
        }
        self.programs.set_probabilities(to, &now)?;
        if self.known.len() >= DESTINATIONS_MAX {
            // The kernel keeps the destinations in use; each is written again with its next message.
            self.known.clear();
        }
        self.known.insert(*to, now);
        Ok(())
    }

    /// Applies the mode of the settings, which may have been read again, and judges the effect of marking. Fails if the
    /// kernel rejects the mode.
    pub fn verify(&mut self) -> Result<Effect, AgentError> {
        let settings = self.admission.settings();
        let counts = self.programs.counts()?;
        let new = |total: fn(&Counts) -> u64| total(&counts) - total(&self.judged);
        let (marked, other) = (new(|all| all.packets_marked), new(|all| all.packets_other));
        let (of, refused) = (marked + other, new(|all| all.refused));
        let mut effect = Effect::Works;
        if of + refused >= JUDGED_PACKETS {
            if (other + refused) * OTHERS_ONE_IN > of + refused && !self.stepped_aside {
                self.stepped_aside = true;
                effect = Effect::None { other, of, refused };
            }
            self.judged = counts;
        }
        let mode = match (settings.mode, self.stepped_aside) {
            (Mode::Enforce, true) => Mode::Shadow,
            (mode, _) => mode,
        };
        if mode != self.mode {
            let kernel = kernel_settings(&settings, mode, &self.rules);
            self.programs.set(kernel)?;
            self.mode = mode;
        }
        Ok(effect)
    }

    /// The messages since the last view. Fails if the kernel does not report its counts.
    pub fn view(&mut self) -> Result<View, AgentError> {
        let settings = self.admission.settings();
        let counts = self.programs.counts()?;
        let table = self.admission.table();
        let labels = |(to, class): (Destination, u8)| {
            let mut destination = String::new();
            write_name(&to, &mut destination);
            let target = settings.options(usize::from(class));
            let probability = table.probability(destination.as_bytes(), class);
            Labels {
                class: settings.classes[usize::from(class)].name.clone(),
                target_us_per_packet: target
                    .map(|options| options.target_per_mtu.as_ps() as f64 / 1e6),
                admit_probability: probability
                    .filter(|_| target.is_some())
                    .map(|probability| probability.as_f64()),
                destination,
            }
        };
        let (rows, messages_without_row) = self.rows.take(labels);
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        Ok(View {
            seconds,
            mode: self.mode.name(),
            rows,
            messages_without_row,
            connections: counts.connections,
            connections_marked_by_program: counts.marked_by_program,
            connections_without_class: counts.without_class,
            connections_ipv4_over_ipv6: counts.mapped,
            connections_by_bbr: counts.bbr,
            messages_lost: counts.lost,
            packets_marked: counts.packets_marked,
            packets_with_other_code_point: counts.packets_other,
        })
    }
}

/// The shortest and the longest possible network time of a message.
fn interval(message: &Message, delay_ns: u64) -> (u64, u64) {
    let undelayed = message.whole_ns.saturating_sub(delay_ns);
    match message.given_up {
        true => (message.whole_ns, message.whole_ns),
        false => (
            undelayed.max(message.at_least_ns.min(message.whole_ns)),
            message.whole_ns,
        ),
    }
}

fn kernel_settings(settings: &Settings, mode: Mode, rules: &Rules) -> KernelSettings {
    let mut code_points = [0; CLASSES_MAX];
    for (code_point, class) in code_points.iter_mut().zip(&settings.classes) {
        *code_point = class.dscp;
    }
    KernelSettings {
        mode: mode as u8,
        classes: settings.classes.len() as u8,
        other_ports: rules.others.unwrap_or(NO_CLASS),
        code_points,
    }
}

/// Fails for settings that the kernel's decision does not follow.
fn check(settings: &Settings) -> Result<(), AgentError> {
    if settings.algorithm != Algorithm::Aequitas {
        return Err(AgentError::NotOffered {
            key: "algorithm = \"aequitas-2\"",
            remedy: "set algorithm = \"aequitas\"",
        });
    }
    if settings.quota.is_some() || !settings.groups.is_empty() {
        return Err(AgentError::NotOffered {
            key: "[quota]",
            remedy: "remove [quota] and [[group]], or use the library in the program",
        });
    }
    Ok(())
}

fn check_cgroup(path: &Path) -> Result<(), AgentError> {
    let found = rustix::fs::statfs(path).map_err(|error| AgentError::Open {
        path: path.into(),
        source: error.into(),
    })?;
    if found.f_type == CGROUP_FS && path.is_dir() {
        return Ok(());
    }
    let mount = cgroup::mount(&Root::machine());
    Err(AgentError::NotCgroup {
        path: path.into(),
        mount: mount.unwrap_or_else(|| "a mount of version 2 (this machine has none)".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rpc::settings::parse;

    fn message(at_least_ns: u64, whole_ns: u64) -> Message {
        Message {
            to: [0; 20],
            class: 0,
            admitted: true,
            downgraded: false,
            to_unknown: false,
            given_up: false,
            bytes: 1,
            at_least_ns,
            whole_ns,
            ended_ns: 0,
        }
    }

    #[test]
    fn a_late_acknowledgement_leaves_an_interval() {
        assert_eq!(interval(&message(70, 100), 40), (70, 100));
        assert_eq!(interval(&message(20, 100), 40), (60, 100));
        assert_eq!(interval(&message(100, 100), 40), (100, 100), "on time");
        assert_eq!(interval(&message(0, 30), 40), (0, 30), "a single packet");
        assert_eq!(interval(&message(0, 30), 0), (30, 30), "never late");
        let lost = Message {
            given_up: true,
            ..message(20, 100)
        };
        assert_eq!(interval(&lost, 40), (100, 100));
    }

    #[test]
    fn settings_without_effect_are_refused() {
        let classes = "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"1ms\"\npercentile = 99\n\
                       [[class]]\nname = \"low\"\ndscp = 8\n";
        let settings = |more: &str| parse("t", &format!("{more}{classes}")).unwrap();
        check(&settings("")).unwrap();
        let error = check(&settings("algorithm = \"aequitas-2\"\n")).unwrap_err();
        assert!(error.to_string().contains("aequitas-2"), "{error}");
        let kernel = kernel_settings(&settings(""), Mode::Shadow, &Rules::default());
        assert_eq!(&kernel.bytes()[..3], [1, 2, NO_CLASS]);
        assert_eq!(&kernel.bytes()[8..11], [46, 8, 0]);
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = check_cgroup(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("not a directory of version 2 cgroups"),
            "{error}"
        );
        let error = check_cgroup(&folder.path().join("none")).unwrap_err();
        assert!(matches!(error, AgentError::Open { .. }), "{error}");
    }
}
