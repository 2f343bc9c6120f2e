//! Files below a root directory: `/` on a machine, a test tree otherwise.
//!
//! The files of RDMA devices may be elsewhere: a program under `isolane rdma emulate` finds those of its emulated devices
//! in the directory that [`EMULATED_VARIABLE`] names ([`Root::with_emulated_devices`]).
//!
//! The kernel's files are small texts that may vanish between listing and reading, or return EINVAL if they have no
//! value (an unused GID entry). [`Root::text`] treats all of that as absent; [`Root::read`] returns the reason.

use crate::error::HostError;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest part of a file that is read, bytes: more than any file of sysfs (one page) and `/proc/PID/status`; longer
/// process or mount tables are cut.
const READ_LIMIT_BYTES: u64 = 4 << 20;

/// The environment variable with the directory in which a program finds the files of its emulated RDMA devices.
pub const EMULATED_VARIABLE: &str = "ISOLANE_EMULATE_ROOT";

/// How many times slower than real time the clock of emulated devices may be.
pub const DILATION_MAX: f64 = 1_000_000.0;

/// How the paths of RDMA devices' files begin.
const OF_DEVICES: [&str; 2] = ["sys/class/infiniband", "dev/infiniband"];

/// A directory in place of `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    directory: PathBuf,
    /// Where the files of RDMA devices are, unless they are below `directory`.
    devices: Option<PathBuf>,
}

impl Root {
    /// This machine.
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// This machine with the RDMA devices that libibverbs shows to this process: the emulated ones instead of the
    /// machine's own under `isolane rdma emulate`.
    pub fn with_emulated_devices() -> Self {
        Self::machine().and_devices(std::env::var_os(EMULATED_VARIABLE).map(PathBuf::from))
    }

    fn and_devices(self, devices: Option<PathBuf>) -> Self {
        Self { devices, ..self }
    }

    /// The tree below `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            devices: None,
        }
    }

    /// Whether this is the machine, not a test tree.
    pub fn is_machine(&self) -> bool {
        self.directory == Path::new("/")
    }

    /// Real path of `path`. A leading `/` of `path` means this root.
    pub fn path(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        let of_devices = || OF_DEVICES.iter().any(|first| path.starts_with(first));
        match &self.devices {
            Some(devices) if of_devices() => devices.join(path),
            _ => self.directory.join(path),
        }
    }

    /// The text of a file without surrounding white space; `None` if the file is missing or has no value.
    pub fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok()
    }

    /// The text of a file without the white space around it. Fails with [`HostError::Read`].
    pub fn read(&self, path: &str) -> Result<String, HostError> {
        let path = self.path(path);
        let read = || -> io::Result<String> {
            let mut bytes = Vec::new();
            fs::File::open(&path)?
                .take(READ_LIMIT_BYTES)
                .read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        read().map_err(|source| HostError::Read {
            path: path.clone(),
            source,
        })
    }

    /// The first number of a file, decimal or `0x` hexadecimal; `None` if there is none.
    pub fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        let word = text.split_whitespace().next()?;
        match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        }
    }

    /// The number before the colon of a file such as `4: ACTIVE`.
    pub fn number_before_colon(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        text.split(':').next()?.trim().parse().ok()
    }

    /// The names in a directory, sorted with numbers by value; empty if there is no directory.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_by_cached_key(|name| (natural(name), name.clone()));
        names
    }

    /// The last part of a link's target.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Whether `path` exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Writes `value` to an existing file in one write, as the kernel's control files require. Fails with
    /// [`HostError::NotPermitted`] or [`HostError::Write`].
    pub fn write(&self, path: &str, value: &str) -> Result<(), HostError> {
        let path = self.path(path);
        let written = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
        written.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => HostError::NotPermitted {
                action: format!("write `{value}` to {}", path.display()),
            },
            _ => HostError::Write {
                path,
                value: value.to_owned(),
                source,
            },
        })
    }
}

/// A name as texts and numbers, so that `mlx5_2` sorts before `mlx5_10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (before, after) = rest.split_at(text);
        let digits = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((before.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_by_number() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["mlx5_10", "mlx5_2", "mlx5_1", "a"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let names = Root::at(directory.path()).list("/");
        assert_eq!(names, ["a", "mlx5_1", "mlx5_2", "mlx5_10"]);
    }

    #[test]
    fn emulated_devices_replace_those_of_the_machine_and_nothing_else() {
        let root = Root::at("/machine").and_devices(Some("/nics".into()));
        let paths = [
            "/sys/class/infiniband",
            "/sys/class/infiniband_verbs/uverbs0/ibdev",
            "/dev/infiniband/uverbs0",
            "/sys/class/net/eth0/mtu",
        ];
        let real = paths.map(|path| root.path(path).display().to_string());
        let expected = [
            "/nics/sys/class/infiniband",
            "/nics/sys/class/infiniband_verbs/uverbs0/ibdev",
            "/nics/dev/infiniband/uverbs0",
            "/machine/sys/class/net/eth0/mtu",
        ];
        assert_eq!(real, expected);
    }

    #[test]
    fn absent_files_are_absent_and_say_why_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(root.text("/sys/none"), None);
        assert_eq!(root.list("/sys/none"), Vec::<String>::new());
        let error = root.read("/sys/none").unwrap_err().to_string();
        assert!(error.contains("sys/none"), "{error}");
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::write(directory.path().join("rate"), "100 Gb/sec (4X EDR)\n").unwrap();
        fs::write(directory.path().join("vendor"), "0x15b3\n").unwrap();
        assert_eq!(root.number("rate"), Some(100));
        assert_eq!(root.number("vendor"), Some(0x15b3));
    }
}
