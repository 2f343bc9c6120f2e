//! The clock of emulated devices, which runs slower than real time.
//!
//! Problem: a default that is a time, such as the period, is short beside what a real device does, and nothing beside what an
//! emulated one does in its slower clock. Method: such a default is as many times longer as the clock is slower, so the
//! control loop takes the same steps in the time of the device. Values of the configuration are in real time, as are the
//! figures that programs print. Waits that only detect a dead process or peer stay as they are.

use isolane_common_linux::root::{DILATION_MAX, Root};
use isolane_common_quantities::units::Duration;
use std::path::PathBuf;

/// How many times slower than real time the clock of the devices runs; 1 for real ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dilation(f64);

impl Default for Dilation {
    fn default() -> Self {
        Self(1.0)
    }
}

/// Why the clock of a device is not known.
#[derive(Debug, thiserror::Error)]
#[error("{} has `{text}`; a dilation is a number from 1 to {DILATION_MAX}; start the devices again", .file.display())]
pub struct DilationError {
    file: PathBuf,
    text: String,
}

impl Dilation {
    /// Of `devices`. All emulated devices that a program sees have the same clock, so the first file counts. Fails if the file
    /// has no number in the range of `isolane rdma emulate --dilation`.
    pub fn of<'a>(
        root: &Root,
        devices: impl Iterator<Item = &'a str>,
    ) -> Result<Self, DilationError> {
        let mut files = devices.map(|name| format!("/sys/class/infiniband/{name}/dilation"));
        let Some((file, text)) = files.find_map(|file| Some((root.path(&file), root.text(&file)?)))
        else {
            return Ok(Self::default());
        };
        let factor = text.parse().ok();
        let factor = factor.filter(|factor| (1.0..=DILATION_MAX).contains(factor));
        factor.map(Self).ok_or(DilationError { file, text })
    }

    /// A time of the device in real time, rounded to picoseconds.
    pub fn real_time(self, time: Duration) -> Duration {
        match self.is_none() {
            true => time,
            false => Duration::from_ps((time.as_ps() as f64 * self.0).round() as u64),
        }
    }

    /// The factor.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// Whether the devices are real, or not slower than real ones.
    pub fn is_none(self) -> bool {
        self.0 == 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_dilation_has_real_time() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("sys/class/infiniband/rnic1");
        std::fs::create_dir_all(&device).unwrap();
        let root = Root::at(folder.path());
        let found = || Dilation::of(&root, ["rnic0", "rnic1"].into_iter());
        assert_eq!(found().unwrap(), Dilation::default());
        std::fs::write(device.join("dilation"), "1000\n").unwrap();
        let found = || found().unwrap();
        assert_eq!(
            found().real_time(Duration::from_us(6)),
            Duration::from_ms(6)
        );
    }

    #[test]
    fn a_dilation_out_of_range_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("sys/class/infiniband/rnic0");
        std::fs::create_dir_all(&device).unwrap();
        for text in ["0", "inf", "NaN", "1e300", "1000001", "-5", "fast", ""] {
            std::fs::write(device.join("dilation"), text).unwrap();
            let found = Dilation::of(&Root::at(folder.path()), ["rnic0"].into_iter());
            let error = found.expect_err(text).to_string();
            assert!(error.contains("rnic0/dilation has"), "{error}");
        }
    }
}
