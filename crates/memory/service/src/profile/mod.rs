//! Profiles: what a machine bears, and what an application needs alone.
//!
//! * [`machine`] - where interference begins: the thresholds that [`Mercury`] watches;
//! * [`application`] - the least near memory and processor time that meet an objective;
//! * [`live`] - the same, measured on a real machine.
//!
//! Searches are pure: a trait returns the measurements, and in tests the measurements are points of curves. Results
//! name their machine and version, because they hold nowhere else. Units: bytes, bytes per second, nanoseconds,
//! thousandths. Source: mercury 5.5.2.
//!
//! [`Mercury`]: isolane_memory_policy::mercury::Mercury

pub mod application;
pub mod live;
pub mod machine;

use crate::host::MemoryHost;
use serde::{Deserialize, Serialize};

/// On which machine and with which version a profile was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Origin {
    /// The machine's name.
    pub machine: String,
    /// Its processor, as the kernel names it.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// The version of this program.
    pub version: String,
}

impl Origin {
    /// This program on that machine. What the machine does not say is empty.
    pub fn of(host: &MemoryHost) -> Self {
        let line = |path: &str| host.root.text(path).unwrap_or_default().trim().to_owned();
        let processors = host.root.text("/proc/cpuinfo").unwrap_or_default();
        let processor = processors.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        Self {
            machine: line("/proc/sys/kernel/hostname"),
            processor: processor.unwrap_or_default(),
            kernel: line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Why a profile from here must not be used there; none when it may. The name of the machine does not matter.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("processor", &self.processor, &other.processor),
            ("kernel", &self.kernel, &other.kernel),
            ("version", &self.version, &other.version),
        ];
        let (what, here, there) = pairs.into_iter().find(|(_, here, there)| here != there)?;
        Some(format!(
            "the profile was made with {what} `{here}`, and this is `{there}`; make it again"
        ))
    }
}

/// The middle value; zero of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn a_profile_of_another_processor_is_not_used() {
        let tree = Tree::two_tiers();
        tree.write(
            "/proc/cpuinfo",
            "processor : 0\nmodel name : Some Processor 9\n\nprocessor : 1\nmodel name : Other\n",
        );
        tree.write("/proc/sys/kernel/osrelease", "6.12.0\n");
        tree.write("/proc/sys/kernel/hostname", "a\n");
        let here = Origin::of(&tree.host());
        assert_eq!(here.processor, "Some Processor 9");
        let mut there = here.clone();
        there.machine = "b".to_owned();
        assert_eq!(here.differs(&there), None);
        there.processor = "Other".to_owned();
        let why = here.differs(&there).unwrap();
        assert!(why.contains("processor") && why.contains("Other"), "{why}");
    }
}
