//! What a program file is, how it replaces this process, and whether a library can be put before it.
//!
//! Problem: the dynamic loader ignores `LD_PRELOAD` for some programs, and the program then runs unpaced without a
//! message. Method: this module finds the file as a shell does. The first bytes of the file give script, ELF class,
//! machine and loader. Mode bits and the capability attribute show whether the kernel will start the file in secure
//! mode. For a script, the interpreter is examined instead. Limits: processes that the program starts later are not
//! examined, and a program may clear its environment. Source: elf(5), ld.so(8), execve(2).

use crate::output;
use crate::status::Status;
use rustix::fs::{Access, StatVfsMountFlags, access, getxattr, statvfs};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Interpreters of interpreters that the kernel follows.
const DEPTH_MAX: u32 = 4;
/// Bytes of a file that are examined: the kernel itself reads 256 for `#!`; ELF program headers are in the first page.
const HEAD_MAX: u64 = 4096;

/// Exit status for a program that is there but cannot be started, as shells have it.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status for a program that is not there.
const MISSING: u8 = 127;

/// Why a program cannot be started at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("{}: no such program; give its path, or check PATH", .0.to_string_lossy())]
    Missing(OsString),
    #[error("{}: cannot be executed; is it a program, and do you have the permission?", .0.display())]
    NotExecutable(PathBuf),
}

/// Why a shim cannot be put before a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// No dynamic loader takes part.
    Static,
    /// ELF of 32 bits.
    Bits32,
    OtherMachine,
    /// Its loader is musl's, which cannot load a shim made for glibc.
    Musl,
    /// Set-user-id or set-group-id.
    SetId,
    Capabilities,
    /// Not a format that we know.
    Unknown,
    /// It cannot be read, so nothing can be said.
    Unreadable,
}

impl Obstacle {
    /// For people: what it is.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Static => "is statically linked, so the loader cannot add the preload library",
            Self::Bits32 => "is a 32-bit program, and the preload library has 64 bits",
            Self::OtherMachine => "is for another processor than the preload library",
            Self::Musl => "uses musl's loader, and the preload library needs glibc",
            Self::SetId => "is set-user-id or set-group-id, so the loader ignores LD_PRELOAD",
            Self::Capabilities => "has file capabilities, so the loader ignores LD_PRELOAD",
            Self::Unknown => "is neither an ELF program nor a script",
            Self::Unreadable => {
                "cannot be read, so it is unknown whether the preload library works with it"
            }
        }
    }

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Bits32 => "32-bit",
            Self::OtherMachine => "other-machine",
            Self::Musl => "musl",
            Self::SetId => "set-id",
            Self::Capabilities => "capabilities",
            Self::Unknown => "unknown-format",
            Self::Unreadable => "unreadable",
        }
    }

    /// Whether the shim must not be in the environment: the loader would complain or fail.
    pub(crate) fn forbids_preload(self) -> bool {
        matches!(self, Self::Bits32 | Self::OtherMachine | Self::Musl)
    }
}

/// Who will start the program, as far as the kernel's secure mode depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// User id.
    pub(crate) user: u32,
    /// Group id.
    pub(crate) group: u32,
    /// Whether set-id bits and capabilities are without effect for it.
    pub(crate) no_new_privileges: bool,
}

impl Caller {
    /// This process.
    pub(crate) fn this() -> Self {
        Self {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            no_new_privileges: rustix::thread::no_new_privs().unwrap_or(false),
        }
    }
}

/// The file of the program `name`. Where there is none, the command `isolane VERB` says so and returns the exit status
/// of shells.
pub(crate) fn found(verb: &str, name: &OsStr) -> Result<PathBuf, Status> {
    find(name, std::env::var_os("PATH").as_deref()).map_err(|error| {
        let text = match name.as_bytes().first() {
            Some(b'-') => format!(
                "{}: neither an option of isolane {verb} nor a program (`isolane {verb} --help` says more)",
                name.to_string_lossy()
            ),
            _ => error.to_string(),
        };
        output::note(&format!("isolane {verb}: {text}"));
        Status::Exit(match error {
            NotFound::Missing(_) => MISSING,
            NotFound::NotExecutable(_) => NOT_EXECUTABLE,
        })
    })
}

/// The file and the name of the program that `command` starts, or the status as [`found`] returns it.
pub(crate) fn named(verb: &str, command: &[OsString]) -> Result<(PathBuf, String), Status> {
    let command = command.first().expect("clap requires one");
    let name = Path::new(command).file_name().unwrap_or_default();
    Ok((found(verb, command)?, name.to_string_lossy().into_owned()))
}

/// Replaces this process by `program`, whose file is `file`. Returns only where the kernel cannot start it, with the
/// exit status of shells.
pub(crate) fn replace_by(verb: &str, file: &Path, mut program: Command) -> Status {
    not_started(verb, file, &program.exec())
}

/// Reports that the kernel cannot start the program `file`; the exit status of shells.
pub(crate) fn not_started(verb: &str, file: &Path, error: &std::io::Error) -> Status {
    output::note(&format!("isolane {verb}: {}: {error}", file.display()));
    Status::Exit(match error.kind() {
        std::io::ErrorKind::NotFound => MISSING,
        _ => NOT_EXECUTABLE,
    })
}

/// Finds `command` as a shell does: by path if it has a slash, otherwise in the directories of `path`.
pub(crate) fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotFound> {
    let candidates: Vec<PathBuf> = match command.as_bytes().contains(&b'/') {
        true => vec![command.into()],
        false => std::env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin")))
            .map(|directory| directory.join(command))
            .collect(),
    };
    let executable =
        |file: &&PathBuf| file.is_file() && access(file.as_path(), Access::EXEC_OK).is_ok();
    if let Some(found) = candidates.iter().find(executable) {
        return Ok(found.clone());
    }
    match candidates.iter().find(|file| file.exists()) {
        Some(found) if !command.is_empty() => Err(NotFound::NotExecutable(found.clone())),
        _ => Err(NotFound::Missing(command.to_owned())),
    }
}

/// Why a shim cannot run in the program `file`, and in which file the reason is: the program or its interpreter.
pub(crate) fn obstacle(
    file: &Path,
    caller: Caller,
    path: Option<&OsStr>,
) -> Option<(PathBuf, Obstacle)> {
    follow(file, caller, path, DEPTH_MAX)
}

fn follow(
    file: &Path,
    caller: Caller,
    path: Option<&OsStr>,
    depth: u32,
) -> Option<(PathBuf, Obstacle)> {
    let found = |obstacle| Some((file.to_owned(), obstacle));
    let Ok(head) = head(file) else {
        return found(Obstacle::Unreadable);
    };
    // The kernel ignores the privileges of a script; those of its interpreter count.
    if let Some(line) = head.strip_prefix(b"#!") {
        let (interpreter, argument) = interpreter(line)?;
        if depth == 0 {
            return None;
        }
        let first = follow(&interpreter, caller, path, depth - 1);
        let is_env = interpreter.file_name() == Some(OsStr::new("env"));
        return first.or_else(|| {
            let program = argument.filter(|_| is_env)?;
            let program = find(&program, path).ok()?;
            follow(&program, caller, path, depth - 1)
        });
    }
    elf_obstacle(&head)
        .or_else(|| privileges(file, caller))
        .and_then(found)
}

fn head(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(file)?
        .take(HEAD_MAX)
        .read_to_end(&mut head)?;
    Ok(head)
}

/// Interpreter and first argument of a `#!` line. `env -S` is followed to the first word that is neither an option
/// nor an assignment.
fn interpreter(line: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()));
    let program = words.next()?;
    let plain =
        |word: &OsString| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    Some((program.into(), words.find(plain)))
}

fn privileges(file: &Path, caller: Caller) -> Option<Obstacle> {
    let on_plain_mount = statvfs(file).map_or(true, |system| {
        !system.f_flag.contains(StatVfsMountFlags::NOSUID)
    });
    if caller.no_new_privileges || !on_plain_mount {
        return None;
    }
    let metadata = std::fs::metadata(file).ok()?;
    let mode = metadata.mode();
    let user = mode & 0o4000 != 0 && metadata.uid() != caller.user;
    // Without execute permission for the group the bit means mandatory locking.
    let group = mode & 0o2010 == 0o2010 && metadata.gid() != caller.group;
    if user || group {
        return Some(Obstacle::SetId);
    }
    let mut value = [0; 64];
    // Root has all capabilities already, so the kernel does not call it a gain.
    let gains = caller.user != 0 && getxattr(file, "security.capability", &mut value).is_ok();
    gains.then_some(Obstacle::Capabilities)
}

const CLASS_64: u8 = 2;
const PROGRAM_INTERPRETER: u32 = 3;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

/// What the first bytes of a file say against a shim. Every read is checked: the file may be anything.
fn elf_obstacle(head: &[u8]) -> Option<Obstacle> {
    if !head.starts_with(b"\x7fELF") {
        return Some(Obstacle::Unknown);
    }
    if head.get(4) != Some(&CLASS_64) {
        return Some(Obstacle::Bits32);
    }
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(bytes)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        )
    };
    if number(18, 2) != Some(u64::from(MACHINE)) || head.get(5) != Some(&1) {
        return Some(Obstacle::OtherMachine);
    }
    let loader = || -> Option<&[u8]> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let entries = (0..count).map(|index| table.checked_add(index.checked_mul(size)?));
        for entry in entries {
            let entry = usize::try_from(entry?).ok()?;
            if number(entry, 4)? == u64::from(PROGRAM_INTERPRETER) {
                let start = usize::try_from(number(entry.checked_add(8)?, 8)?).ok()?;
                let length = usize::try_from(number(entry.checked_add(32)?, 8)?).ok()?;
                // Some linkers put the name far into the file; that it has a loader is what matters.
                return Some(head.get(start..start.checked_add(length)?).unwrap_or(b""));
            }
        }
        None
    };
    match loader() {
        None => Some(Obstacle::Static),
        Some(name) if name.windows(7).any(|part| part == b"ld-musl") => Some(Obstacle::Musl),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ORDINARY_USER: Caller = Caller {
        user: 65_534,
        group: 65_534,
        no_new_privileges: false,
    };

    /// The least ELF that has what the check reads.
    fn elf(class: u8, machine: u16, loader: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        (bytes[4], bytes[5]) = (class, 1);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        let mut entry = vec![0; 56];
        if let Some(loader) = loader {
            entry[0] = 3;
            entry[8] = 120;
            entry[32] = loader.len() as u8;
        }
        bytes.extend(entry);
        bytes.extend(loader.unwrap_or("").as_bytes());
        bytes
    }

    const GLIBC: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

    #[test]
    fn the_first_bytes_tell_what_cannot_be_preloaded() {
        assert_eq!(elf_obstacle(&elf(2, MACHINE, GLIBC)), None);
        assert_eq!(elf_obstacle(&elf(2, MACHINE, None)), Some(Obstacle::Static));
        assert_eq!(elf_obstacle(&elf(1, 3, GLIBC)), Some(Obstacle::Bits32));
        assert_eq!(
            elf_obstacle(&elf(2, 8, GLIBC)),
            Some(Obstacle::OtherMachine)
        );
        let musl = Some("/lib/ld-musl-x86_64.so.1");
        assert_eq!(elf_obstacle(&elf(2, MACHINE, musl)), Some(Obstacle::Musl));
        assert_eq!(elf_obstacle(b"hello"), Some(Obstacle::Unknown));
    }

    /// Any prefix of a good file, and any byte of it changed, is answered without a panic.
    #[test]
    fn damaged_files_are_answered() {
        let good = elf(2, MACHINE, GLIBC);
        for length in 0..good.len() {
            let _ = elf_obstacle(&good[..length]);
            let mut changed = good.clone();
            changed[length] = 0xff;
            let _ = elf_obstacle(&changed);
        }
    }

    fn file(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let file = directory.join(name);
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        file(place, "still", &elf(2, MACHINE, None), 0o755);
        let interpreter = place.join("still");
        let line = format!("#!{} -x\necho\n", interpreter.display());
        let script = file(place, "script", line.as_bytes(), 0o755);
        let found = obstacle(&script, ORDINARY_USER, None);
        assert_eq!(found, Some((interpreter.clone(), Obstacle::Static)));

        file(place, "env", &elf(2, MACHINE, GLIBC), 0o755);
        let line = format!("#!{}/env -S A=1 still -x\n", place.display());
        let script = file(place, "by-env", line.as_bytes(), 0o755);
        let found = obstacle(&script, ORDINARY_USER, Some(place.as_os_str()));
        assert_eq!(found, Some((interpreter, Obstacle::Static)));

        let line = format!("#!{}/loop\n", place.display());
        let script = file(place, "loop", line.as_bytes(), 0o755);
        assert_eq!(obstacle(&script, ORDINARY_USER, None), None);
    }

    #[test]
    fn set_id_programs_of_others_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let nosuid = statvfs(directory.path()).unwrap().f_flag;
        if nosuid.contains(StatVfsMountFlags::NOSUID) {
            isolane_common_linux::skip::does_not_apply("the temporary directory is mounted nosuid");
            return;
        }
        let program = file(directory.path(), "p", &elf(2, MACHINE, GLIBC), 0o4755);
        let found = obstacle(&program, ORDINARY_USER, None);
        assert_eq!(found.map(|found| found.1), Some(Obstacle::SetId));
        let owner = Caller {
            user: std::fs::metadata(&program).unwrap().uid(),
            ..ORDINARY_USER
        };
        assert_eq!(obstacle(&program, owner, None), None);
        let bound = Caller {
            no_new_privileges: true,
            ..ORDINARY_USER
        };
        assert_eq!(obstacle(&program, bound, None), None);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let program = file(place, "p", b"#!/bin/sh\n", 0o755);
        let path = Some(place.as_os_str());
        assert_eq!(find(OsStr::new("p"), path), Ok(program));
        let missing = find(OsStr::new("q"), path).unwrap_err();
        assert_eq!(missing, NotFound::Missing("q".into()));
        assert_eq!(
            find(OsStr::new(""), path),
            Err(NotFound::Missing("".into()))
        );
        let text = file(place, "text", b"", 0o644);
        assert_eq!(
            find(OsStr::new("text"), path),
            Err(NotFound::NotExecutable(text))
        );
    }
}
