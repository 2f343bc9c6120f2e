//! A key shared by several machines, in a file.
//!
//! Problem: network peers must prove that they are authorised. A key on a command line, or in a settings file that many
//! can read, is not secret. Method: the key is the text of a separate file that only its owner can read; the file is
//! opened once, and the checks apply to the opened file. Randomness for proofs comes from the kernel. Limits: a key is
//! never printed, and not wiped from memory.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Shortest key, bytes: what HMAC-SHA256 uses in full.
pub const KEY_MIN: usize = 32;

/// Longest key file, bytes.
const FILE_MAX: u64 = 4_096;

/// A key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key file {file}: {reason}")]
pub struct KeyError {
    /// Path of the file.
    pub file: String,
    /// The reason and the remedy.
    pub reason: String,
}

impl Key {
    /// Makes a key of these bytes. Panics if there are fewer than [`KEY_MIN`].
    pub fn new(bytes: Vec<u8>) -> Self {
        assert!(bytes.len() >= KEY_MIN, "a key of {} bytes", bytes.len());
        Self(bytes)
    }

    /// Reads the file: its text without spaces at the ends. Only the file's owner may have access. Fails if the file
    /// cannot be read, is too short or too long, or others may read it.
    pub fn read(file: &Path) -> Result<Self, KeyError> {
        let failed = |reason: String| KeyError {
            file: file.display().to_string(),
            reason,
        };
        let unread = |error: std::io::Error| failed(error.to_string());
        // Non-blocking, because a pipe may have no writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened = std::fs::File::options()
            .read(true)
            .custom_flags(flags)
            .open(file)
            .map_err(unread)?;
        let metadata = opened.metadata().map_err(unread)?;
        if !metadata.is_file() {
            return Err(failed(
                "is not a regular file; give the file itself".to_owned(),
            ));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(failed("others may read or write it; chmod 600".to_owned()));
        }
        let mut bytes = Vec::new();
        let mut limited = opened.take(FILE_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(unread)?;
        if bytes.len() as u64 > FILE_MAX {
            let reason = format!("has more than {FILE_MAX} bytes; give a shorter key");
            return Err(failed(reason));
        }
        let key = bytes.trim_ascii();
        if key.len() < KEY_MIN {
            let reason = format!(
                "has {} bytes, needs {KEY_MIN} or more; make one with: head -c 32 /dev/urandom | base64",
                key.len()
            );
            return Err(failed(reason));
        }
        Ok(Self(key.to_vec()))
    }

    /// The bytes for proofs.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Fills `bytes` with the kernel's randomness. Fails if the kernel has no randomness.
pub fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        done += rustix::rand::getrandom(&mut bytes[done..], flags)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refused(file: &Path) -> String {
        Key::read(file).unwrap_err().reason
    }

    #[test]
    fn only_a_file_that_its_owner_alone_reads_holds_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let write = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(refused(&file).contains("No such file"));
        assert_eq!(
            refused(folder.path()),
            "is not a regular file; give the file itself",
            "a directory"
        );
        let long = "x".repeat(KEY_MIN);
        write(&long, 0o640);
        assert_eq!(refused(&file), "others may read or write it; chmod 600");
        write(&format!(" {long}\n"), 0o600);
        assert_eq!(Key::read(&file).unwrap().bytes(), long.as_bytes());
        write(&format!("{}\n", &long[1..]), 0o600);
        assert!(refused(&file).starts_with("has 31 bytes, needs 32 or more"));
        write(&"x".repeat(4_097), 0o600);
        assert!(refused(&file).starts_with("has more than 4096 bytes"));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", Key::new(vec![b'k'; KEY_MIN])), "Key(..)");
    }
}
