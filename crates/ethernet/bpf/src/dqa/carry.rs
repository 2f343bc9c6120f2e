//! Notes the containers of packets that lose their socket by routing.
//!
//! Problem: a routed packet has no socket at the device, so the programs there cannot see its container. Method: a
//! program at each container's cgroup notes the container under the packet's hash (`bpf/containers.h`). Its link is
//! pinned beside the device's programs, so it ends with the pins, or with the cgroup. Limits: at most 64 programs run at
//! one cgroup, and none beside one that forbids others; then the container's routed flows weigh one each.

use super::Dqa;
use crate::{EbpfError, sys};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(super) const PROGRAM: &str = "carry";
/// Beginning of the links' names; the cgroup's id follows.
const LINK: &str = "carry-";

impl Dqa {
    /// Notes the packets of the container `cgroup`, whose directory is open. Again is no error. Fails if the programs
    /// were loaded without container weights or by an earlier release, if the cgroup's other programs forbid ours, or
    /// if privileges are missing.
    pub fn carry(&self, cgroup: u64, directory: BorrowedFd<'_>) -> Result<(), EbpfError> {
        if self.carries(cgroup) {
            return Ok(());
        }
        let program = self.carry_program()?;
        let link = sys::attach_cgroup(program.as_fd(), directory)
            .map_err(|source| EbpfError::Cgroup { cgroup, source })?;
        let path = self.link_of(cgroup);
        sys::pin(link.as_fd(), &path).map_err(|source| EbpfError::File {
            action: "pin",
            path,
            source,
        })
    }

    /// Whether the programs can note the packets of any container. Fails as [`Dqa::carry`] does, but not for a cgroup.
    pub fn check_carry(&self) -> Result<(), EbpfError> {
        self.carry_program().map(drop)
    }

    fn carry_program(&self) -> Result<OwnedFd, EbpfError> {
        let path = self.pins.join(PROGRAM);
        sys::open_pin(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => EbpfError::NoCgroupProgram {
                path: self.pins.clone(),
            },
            _ => EbpfError::File {
                action: "open",
                path,
                source,
            },
        })
    }

    /// Whether the packets of a container are noted.
    pub fn carries(&self, cgroup: u64) -> bool {
        self.link_of(cgroup).exists()
    }

    /// The containers whose packets are noted, also those of an earlier process.
    pub fn carried(&self) -> Vec<u64> {
        links(&self.pins)
            .into_iter()
            .map(|(cgroup, _)| cgroup)
            .collect()
    }

    pub(super) fn stop_carrying(&self, cgroup: u64) {
        end(&self.link_of(cgroup));
    }

    fn link_of(&self, cgroup: u64) -> PathBuf {
        self.pins.join(format!("{LINK}{cgroup}"))
    }
}

pub(super) fn remove_links(pins: &Path) {
    for (_, path) in links(pins) {
        end(&path);
    }
}

/// Ends a link and removes its pin. No link, and the link of a cgroup that has ended, are no errors.
fn end(path: &Path) {
    if let Ok(link) = sys::open_pin(path) {
        let _ = sys::detach_link(link.as_fd());
        let _ = std::fs::remove_file(path);
    }
}

fn links(pins: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(pins).into_iter().flatten();
    let paths = entries.filter_map(|entry: io::Result<_>| entry.ok().map(|entry| entry.path()));
    let of = |path: PathBuf| {
        let cgroup = path
            .file_name()?
            .to_str()?
            .strip_prefix(LINK)?
            .parse()
            .ok()?;
        Some((cgroup, path))
    };
    paths.filter_map(of).collect()
}
