//! The rate of a device's port, from sysfs.
//!
//! Source: the kernel's `infiniband` class: `ports/N/rate` contains, for example, `100 Gb/sec (4X EDR)`.

use isolane_common_quantities::units::BitRate;
use std::path::{Path, PathBuf};

/// Directory of the RDMA devices in sysfs.
pub const SYSFS: &str = "/sys/class/infiniband";

/// Why a port's rate is unknown.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PortError {
    #[error("there is no RDMA device {device}; this machine has {}", if .present.is_empty() { "none; isolane rdma doctor says how to get one".to_owned() } else { .present.join(", ") })]
    Absent {
        device: String,
        present: Vec<String>,
    },
    #[error("{} has no rate; give one with --rate-bps or in the configuration", .file.display())]
    Unreadable { file: PathBuf },
}

/// Reads the signalling rate of port `number` of `device` below `sysfs`. Fails if the device or port does not exist, or
/// its file has no rate.
pub fn rate(sysfs: &Path, device: &str, number: u8) -> Result<BitRate, PortError> {
    let folder = sysfs.join(device);
    if device.contains('/') || !folder.is_dir() {
        let entries = std::fs::read_dir(sysfs).into_iter().flatten().flatten();
        let mut present: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        present.sort();
        return Err(PortError::Absent {
            device: device.to_owned(),
            present,
        });
    }
    let file = folder.join("ports").join(number.to_string()).join("rate");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    parse(&text).ok_or(PortError::Unreadable { file })
}

/// The rate of a port, or the configured one where sysfs has none. Whether the device exists, libibverbs says when the
/// device is opened. Where no rate is configured, the error is what was `found`.
pub fn or_configured(
    found: Result<BitRate, PortError>,
    configured: Option<BitRate>,
) -> Result<BitRate, PortError> {
    match (found, configured) {
        (Err(_), Some(rate)) => Ok(rate),
        (found, _) => found,
    }
}

fn parse(text: &str) -> Option<BitRate> {
    let (number, rest) = text.trim().split_once(' ')?;
    let gbps: f64 = number.parse().ok()?;
    let rate = BitRate::from_gbps_f64(gbps);
    (rest.starts_with("Gb/sec") && rate > BitRate::ZERO).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            parse("100 Gb/sec (4X EDR)\n"),
            Some(BitRate::from_gbps(100))
        );
        assert_eq!(
            parse("2.5 Gb/sec (1X SDR)\n"),
            Some(BitRate::from_bps(2_500_000_000))
        );
        for text in ["", "fast", "0 Gb/sec (1X)", "10 Mb/sec", "-1 Gb/sec"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_configured_rate_replaces_that_of_a_port_that_sysfs_does_not_show() {
        let folder = tempfile::tempdir().expect("a directory");
        let found = || rate(folder.path(), "rnic0", 1);
        let configured = BitRate::from_gbps(7);
        let given = or_configured(found(), Some(configured));
        assert_eq!(given.expect("it is configured"), configured);
        assert!(or_configured(found(), None).is_err());
        let shown = BitRate::from_gbps(100);
        let both = or_configured(Ok(shown), Some(configured));
        assert_eq!(both.expect("sysfs shows it"), shown);
    }

    #[test]
    fn a_missing_device_is_named_with_those_that_are_there() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(folder.path().join("rxe0/ports/1")).expect("a directory");
        let error = rate(folder.path(), "rxe1", 1).expect_err("it is not there");
        assert_eq!(
            error.to_string(),
            "there is no RDMA device rxe1; this machine has rxe0"
        );
        let error = rate(folder.path(), "rxe0", 1).expect_err("no rate");
        assert!(
            error.to_string().contains("rxe0/ports/1/rate has no rate"),
            "{error}"
        );
        std::fs::write(
            folder.path().join("rxe0/ports/1/rate"),
            "10 Gb/sec (4X SDR)",
        )
        .expect("a file");
        assert_eq!(
            rate(folder.path(), "rxe0", 1).expect("a rate"),
            BitRate::from_gbps(10)
        );
    }
}
