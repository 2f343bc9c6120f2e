//! Whether there is memory for a measurement, before any of it is touched.
//!
//! Problem: every page of a region is written, and a machine that runs out of memory, or a node to which the region is bound,
//! ends programs: the benchmark's own at best. Method: what is free of each tier, and what of it holds files, which the kernel
//! gives up, less a part that others need meanwhile; without tiers that of the machine (`MemAvailable`).
//! Units: bytes, percent. Limits: memory that others take after the look is not seen; a control group's own limit neither.

use super::Nodes;
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::units::Bytes;

/// Memory that a measurement is about to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// So much in all.
    pub(super) bytes: Bytes,
    /// Part of it on far nodes, in percent.
    pub(super) far_percent: u32,
}

/// Of what is available, one part in so many is left to others.
const LEFT_TO_OTHERS: u64 = 16;

/// Whether all of it fits. A machine that does not say what it has is taken at its word. Fails with
/// [`MemError::NoRoom`].
pub(super) fn check(host: &MemoryHost, nodes: &Nodes, needs: &[Need]) -> Result<(), MemError> {
    let far: u64 = needs
        .iter()
        .map(|need| need.far())
        .fold(0, u64::saturating_add);
    let all = needs
        .iter()
        .map(|need| need.bytes.get())
        .fold(0, u64::saturating_add);
    if nodes.near.is_empty() {
        return fits(all, machine(host), "this machine");
    }
    fits(all - far, of_nodes(host, &nodes.near), "the near tier")?;
    match nodes.far.is_empty() {
        // The region itself reports missing far memory, with what to do.
        true => Ok(()),
        false => fits(far, of_nodes(host, &nodes.far), "the far tier"),
    }
}

impl Need {
    fn far(self) -> u64 {
        let share = u128::from(self.bytes.get()) * u128::from(self.far_percent.min(100)) / 100;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

fn fits(wanted: u64, available: Option<u64>, place: &'static str) -> Result<(), MemError> {
    let Some(available) = available else {
        return Ok(());
    };
    match wanted <= available - available / LEFT_TO_OTHERS {
        true => Ok(()),
        false => Err(MemError::NoRoom {
            place,
            wanted: Bytes::new(wanted),
            available: Bytes::new(available - available / LEFT_TO_OTHERS),
        }),
    }
}

/// What the kernel says that programs can still have.
fn machine(host: &MemoryHost) -> Option<u64> {
    let text = host.root.text("/proc/meminfo")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = kib.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Free memory and pages of files on these nodes.
fn of_nodes(host: &MemoryHost, nodes: &[u32]) -> Option<u64> {
    const COUNTED: [&str; 3] = ["MemFree:", "Active(file):", "Inactive(file):"];
    let mut sum = 0_u64;
    for node in nodes {
        let path = format!("/sys/devices/system/node/node{node}/meminfo");
        let text = host.root.text(&path)?;
        let kib = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(2);
            COUNTED
                .contains(&words.next()?)
                .then(|| words.next()?.parse::<u64>().ok())?
        });
        sum = kib.fold(sum, |sum, kib| sum.saturating_add(kib.saturating_mul(1024)));
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use expect_test::expect;

    fn need(mib: u64, far_percent: u32) -> Need {
        Need {
            bytes: Bytes::from_mib(mib),
            far_percent,
        }
    }

    fn nodes() -> Nodes {
        Nodes {
            near: vec![0],
            far: vec![1],
        }
    }

    #[test]
    fn more_than_a_tier_has_free_is_refused_with_what_it_has() {
        // 400 MiB free near and 1,000 far; a sixteenth stays free.
        let host = Tree::two_tiers();
        let said = |needs: &[Need]| check(&host.host(), &nodes(), needs);
        assert!(said(&[need(375, 0)]).is_ok());
        assert!(said(&[need(1_200, 75)]).is_ok());
        assert!(said(&[need(200, 0), need(200, 0)]).is_err());
        expect!["376 MiB of memory are wanted and the near tier has 375 MiB to spare: choose less (--region, --stream-region or --cores), or free memory"]
            .assert_eq(&said(&[need(376, 0)]).expect_err("too much").to_string());
        let message = said(&[need(1_000, 95)]).expect_err("too much").to_string();
        assert!(message.contains("the far tier"), "{message}");
        assert!(said(&[need(u64::MAX >> 21, 50), need(u64::MAX >> 21, 50)]).is_err());
    }

    #[test]
    fn pages_of_files_count_as_free() {
        let tree = Tree::two_tiers();
        tree.write(
            "/sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal: 524288 kB\nNode 0 MemFree: 16384 kB\nNode 0 Active: 999999 kB\n\
             Node 0 Active(file): 147456 kB\nNode 0 Inactive(file): 98304 kB\n",
        );
        assert!(check(&tree.host(), &nodes(), &[need(240, 0)]).is_ok());
        assert!(check(&tree.host(), &nodes(), &[need(241, 0)]).is_err());
    }

    #[test]
    fn without_tiers_the_machine_is_asked() {
        let tree = Tree::two_tiers();
        let said = |mib| check(&tree.host(), &Nodes::default(), &[need(mib, 0)]);
        // It does not say: nothing is refused.
        assert!(said(1 << 30).is_ok());
        tree.write(
            "/proc/meminfo",
            "MemTotal: 2097152 kB\nMemAvailable:   1048576 kB\n",
        );
        assert!(said(960).is_ok());
        assert!(said(961).is_err());
    }
}
