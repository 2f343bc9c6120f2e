//! What a device's port carries, from sysfs.
//!
//! Source: the kernel's `infiniband` class: `ports/N/rate` reads like `100 Gb/sec (4X EDR)`.

use isolane_common_quantities::units::BitRate;
use std::path::{Path, PathBuf};

/// Where the kernel shows RDMA devices.
pub const SYSFS: &str = "/sys/class/infiniband";

/// Why a port's rate is not known.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No such device.
    #[error("there is no RDMA device {device}; this machine has {}", if .present.is_empty() { "none".to_owned() } else { .present.join(", ") })]
    Absent {
        /// The name asked for.
        device: String,
        /// Those that are there.
        present: Vec<String>,
    },
    /// The file says something else, or nothing.
    #[error("{} does not say a rate; give one with --rate or in the configuration", .file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
    },
}

/// The signalling rate of port `number` of `device`, below `sysfs`.
///
/// # Errors
/// When there is no such device or port, or it says no rate.
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
    fn a_missing_device_is_named_with_those_that_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("rxe0/ports/1")).expect("a folder");
        let error = rate(folder.path(), "rxe1", 1).expect_err("it is not there");
        assert_eq!(
            error.to_string(),
            "there is no RDMA device rxe1; this machine has rxe0"
        );
        let error = rate(folder.path(), "rxe0", 1).expect_err("no rate");
        assert!(
            error
                .to_string()
                .contains("rxe0/ports/1/rate does not say a rate"),
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
