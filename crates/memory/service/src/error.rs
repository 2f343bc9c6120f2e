//! What can go wrong between us and the kernel: each message names the object, the value and the remedy.
//!
//! [`MemError::is_gone`] distinguishes a control group that vanished (an application that ended, which is no fault)
//! from a refusal. Units: bytes.

use crate::application::amounts::size_text;
use crate::backend::kind::BackendKind;
use isolane_common_linux::HostError;
use isolane_common_quantities::units::Bytes;
use std::io;
use std::path::PathBuf;

/// Something that the machine did not do for us.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum MemError {
    #[error("this machine has {tiers} memory tier(s) and two are needed; {remedy}")]
    NoTiers { tiers: usize, remedy: String },
    /// No version 2 hierarchy with the controllers that are needed.
    #[error("no usable control groups: {seen}; {remedy}")]
    NoCgroups { seen: String, remedy: String },
    #[error(
        "the control group `{0}` is gone: the application has ended, or its manager removed it"
    )]
    Gone(String),
    #[error("`{path}` cannot be the cgroup of an application: {why}")]
    BadCgroup { path: String, why: String },
    #[error("{object} belongs to {owner} and is left alone; {remedy}")]
    NotOurs {
        object: String,
        owner: String,
        remedy: String,
    },
    #[error("the backend `{backend}` does not work here: {why}; {remedy}")]
    Unsupported {
        backend: BackendKind,
        why: String,
        remedy: String,
    },
    #[error(
        "no backend can enforce tier limits here; `isolane mem doctor` says what each one lacks"
    )]
    NoBackend,
    #[error("application {0} is not under control of this backend; adopt it first")]
    Unknown(u32),
    #[error(
        "tier {tier} has {free} free and {needed} should move there; free memory there, or raise the limit",
        free = size_text(free.get()), needed = size_text(needed.get())
    )]
    FarFull {
        tier: usize,
        free: Bytes,
        needed: Bytes,
    },
    /// A measurement that wants more memory than is free.
    #[error(
        "{wanted} of memory are wanted and {place} has {available} to spare: choose less (--region, --stream-region or \
         --cores), or free memory", wanted = size_text(wanted.get()), available = size_text(available.get())
    )]
    NoRoom {
        place: &'static str,
        wanted: Bytes,
        available: Bytes,
    },
    #[error(
        "this process may use one processor; give it two at least (taskset, or the cpuset of its control group)"
    )]
    OneProcessor,
    /// A measurement whose thread was always taken off its processor.
    #[error(
        "latency of memory: the measuring thread ran through none of {samples} samples: the processors are too busy; stop \
         other programs, or measure for longer (--length)"
    )]
    NeverRan { samples: u64 },
    /// A measurement whose streaming threads had no processor.
    #[error(
        "bandwidth of memory: the streaming threads read nothing for {seconds:.1} s: the processors are too busy; stop other \
         programs, or measure for longer (--length)"
    )]
    NeverStreamed { seconds: f64 },
    /// Pages that do not move after repeated requests to the kernel.
    #[error(
        "{over} of `{cgroup}` stay above the limit after {tries} tries; locked memory (mlock), pages pinned for devices \
         and pages that several applications map cannot move: raise the limit, or look at mlocked pages in memory.stat",
        over = size_text(over.get())
    )]
    Unmoved {
        cgroup: String,
        over: Bytes,
        tries: u32,
    },
    #[error("{action}: not permitted; run as root")]
    NotPermitted { action: String },
    #[error("cannot write `{value}` to {}: {source}; {remedy}", path.display())]
    Refused {
        path: PathBuf,
        value: String,
        source: io::Error,
        remedy: String,
    },
    /// A file whose text is not of the form that its place has.
    #[error("{path} says `{value}`; expected {expected}")]
    Unexpected {
        path: String,
        value: String,
        expected: &'static str,
    },
    #[error("{action}: {source}")]
    Kernel { action: String, source: io::Error },
    #[error("interrupted; all changes are undone")]
    Interrupted,
    #[error(transparent)]
    Host(#[from] HostError),
}

/// What the kernel answers when a control group is being removed.
const ENODEV: i32 = 19;

impl MemError {
    /// True when the object has vanished, as applications do.
    pub fn is_gone(&self) -> bool {
        let gone = |source: &io::Error| {
            source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(ENODEV)
        };
        match self {
            Self::Gone(_) => true,
            Self::Refused { source, .. } | Self::Kernel { source, .. } => gone(source),
            Self::Host(HostError::Read { source, .. } | HostError::Write { source, .. }) => {
                gone(source)
            }
            _ => false,
        }
    }

    /// A refused write with what to do about it.
    pub fn refused(error: HostError, remedy: &str) -> Self {
        match error {
            HostError::Write {
                path,
                value,
                source,
            } => Self::Refused {
                path,
                value,
                source,
                remedy: remedy.to_owned(),
            },
            HostError::NotPermitted { action } => Self::NotPermitted { action },
            other => Self::Host(other),
        }
    }

    /// The kernel's error number, where there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Host(HostError::Read { source, .. } | HostError::Write { source, .. }) => {
                source.raw_os_error()
            }
            _ => None,
        }
    }
}
