//! What a crate is: its place, what it may do, and what it may use.

/// What a crate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes time, randomness and input as arguments; no `unsafe`.
    Pure,
    /// As [`Kind::Pure`], with `unsafe` hints to the processor.
    PureUnsafe,
    /// Touches the world through safe interfaces.
    Plain,
    /// Calls the kernel or a foreign ABI, or uses shared memory.
    Unsafe,
}

impl Kind {
    /// Takes time, randomness and input as arguments.
    pub(crate) const fn is_pure(self) -> bool {
        matches!(self, Self::Pure | Self::PureUnsafe)
    }

    /// May hold `unsafe` code.
    pub(crate) const fn may_unsafe(self) -> bool {
        matches!(self, Self::PureUnsafe | Self::Unsafe)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Directory below `crates/`: wing and room.
    pub folder: &'static str,
    /// What it may do.
    pub kind: Kind,
    /// What lives there, for `ARCHITECTURE.md`.
    pub about: &'static str,
    /// Directories of the crates that it may use, tests included; each one is listed above it, and each one is used.
    pub may_use: &'static [&'static str],
}

impl Room {
    /// The package's name.
    pub(crate) fn package(&self) -> String {
        match self.folder {
            "app/cli" => "isolane".to_owned(),
            "rdma/daemon" => "isolaned".to_owned(),
            folder => format!("isolane-{}", folder.replace('/', "-")),
        }
    }

    /// The wing: the first part of the directory.
    pub(crate) fn wing(&self) -> &'static str {
        self.folder
            .split('/')
            .next()
            .expect("a directory has a first part")
    }
}

/// A crate of [`crate::rooms::ROOMS`].
pub(crate) const fn room(
    folder: &'static str,
    kind: Kind,
    about: &'static str,
    may_use: &'static [&'static str],
) -> Room {
    Room {
        folder,
        kind,
        about,
        may_use,
    }
}
