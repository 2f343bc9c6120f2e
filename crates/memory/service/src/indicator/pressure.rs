//! Memory pressure: the part of the time in which an application's tasks wait for memory (PSI).
//!
//! Method: the kernel keeps averages for each cgroup in `memory.pressure`. Pages that are taken back, moved or read again make
//! tasks wait, so a limit that is too small shows here, also where no latency can be measured. Units: percent of the last
//! ten seconds. Limits: the policy takes no action on it, because waiting does not say for which tier. Source: the kernel's
//! documentation of pressure stall information.

use crate::cgroup::Cgroup;
use crate::host::MemoryHost;

/// The pressure of one application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some_percent: f64,
    /// All tasks that could run waited.
    pub full_percent: f64,
}

impl Pressure {
    /// The pressure of a cgroup; none where the kernel does not count it.
    pub fn read(host: &MemoryHost, cgroup: &Cgroup) -> Option<Self> {
        Self::parse(&host.read_cgroup(cgroup, "memory.pressure").ok()?)
    }

    /// Whether the kernel counts pressure.
    pub fn works(host: &MemoryHost) -> bool {
        let text = host.root.text("/proc/pressure/memory");
        text.and_then(|text| Self::parse(&text)).is_some()
    }

    fn parse(text: &str) -> Option<Self> {
        let percent = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
            let words = line.split_whitespace();
            let average = words
                .filter_map(|word| word.strip_prefix("avg10="))
                .next()?;
            let percent: f64 = average.parse().ok()?;
            (0.0..=100.0).contains(&percent).then_some(percent)
        };
        Some(Self {
            some_percent: percent("some ")?,
            full_percent: percent("full ")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indicator::Sensors;
    use crate::indicator::machine::MachineSensors;
    use crate::testing::{APP, Tree};
    use isolane_common_quantities::units::Instant;

    #[test]
    fn sensors_report_the_pressure_of_an_application_where_the_kernel_counts_it() {
        let tree = Tree::two_tiers();
        let cgroup = tree.cgroup("/redis", &[(0, 4)]);
        let mut sensors = MachineSensors::new(tree.host(), None);
        sensors.adopt(APP, &cgroup).unwrap();
        sensors.observe(Instant::ZERO);
        assert!(sensors.pressures().is_empty());
        let text = "some avg10=2.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=3\n";
        tree.write("/sys/fs/cgroup/redis/memory.pressure", text);
        sensors.observe(Instant::ZERO);
        assert_eq!(sensors.pressures()[&APP].some_percent, 2.0);
        let works = |sensors: &MachineSensors| {
            let sources = sensors.sources();
            let source = sources.iter().find(|info| info.name == "memory.pressure");
            source.is_some_and(|info| info.works)
        };
        assert!(!works(&sensors));
        tree.write("/proc/pressure/memory", text);
        assert!(works(&sensors));
        // An application without a reading of its pages does not keep an old pressure.
        tree.remove("/sys/fs/cgroup/redis/memory.numa_stat");
        sensors.observe(Instant::ZERO);
        assert!(sensors.pressures().is_empty());
    }

    #[test]
    fn both_averages_are_read_and_anything_else_is_unknown() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=123\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=9\n";
        let pressure = Pressure {
            some_percent: 12.5,
            full_percent: 0.25,
        };
        assert_eq!(Pressure::parse(text), Some(pressure));
        for wrong in [
            "",
            "some avg10=1.00",
            &text.replace("12.50", "nan"),
            &text.replace("12.50", "101"),
        ] {
            assert_eq!(Pressure::parse(wrong), None, "{wrong}");
        }
    }
}
