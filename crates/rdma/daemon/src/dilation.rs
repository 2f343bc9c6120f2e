//! The clock of emulated devices, which runs slower than real time.
//!
//! Problem: a default that is a time, such as the period, is short beside what a real device does, and nothing beside what an
//! emulated one does in its slower clock. Method: such a default is as many times longer as the clock is slower, so the
//! control loop takes the same steps in the time of the device. Values of the configuration are in real time, as are the
//! figures that programs print. Waits that only detect a dead process or peer stay as they are.

use isolane_common_linux::root::Root;
use isolane_common_quantities::units::Duration;

/// How many times slower than real time the clock of the devices runs; 1 for real ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dilation(f64);

impl Default for Dilation {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Dilation {
    /// Of `devices`. All emulated devices that a program sees have the same clock.
    pub fn of<'a>(root: &Root, devices: impl Iterator<Item = &'a str>) -> Self {
        let mut files = devices.map(|name| format!("/sys/class/infiniband/{name}/dilation"));
        let found: Option<f64> = files.find_map(|file| root.text(&file)?.parse().ok());
        Self(found.filter(|factor| *factor >= 1.0).unwrap_or(1.0))
    }

    /// A time of the device in real time, rounded to picoseconds.
    pub fn real_time(self, time: Duration) -> Duration {
        match self.is_none() {
            true => time,
            false => Duration::from_ps((time.as_ps() as f64 * self.0).round() as u64),
        }
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
        assert_eq!(found(), Dilation::default());
        std::fs::write(device.join("dilation"), "1000\n").unwrap();
        assert_eq!(
            found().real_time(Duration::from_us(6)),
            Duration::from_ms(6)
        );
        std::fs::write(device.join("dilation"), "0\n").unwrap();
        assert_eq!(found(), Dilation::default());
    }
}
