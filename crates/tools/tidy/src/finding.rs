//! A breach of a rule: where, which rule, what was found, and why the rule exists.

use std::fmt;

macro_rules! rules {
    ($($variant:ident $name:literal $reason:literal;)*) => {
        /// A rule of the repository.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $reason] $variant,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The short name that a report prints.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Why the rule exists, one sentence.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$variant => $reason,)* }
            }
        }
    };
}

rules! {
    UpwardDependency "layering" "dependencies point one way, so that a lower room can be understood and tested alone";
    UnusedArrow "unused-arrow" "an arrow that no crate uses makes a new dependency look as if it had been decided";
    UnknownRoom "unknown-room" "a new crate takes its place in the table of crates/tools/tidy/src/rooms.rs and in ARCHITECTURE.md";
    PureDependency "pure-dependency" "a dependency of a pure crate could bring clocks, threads or random devices with it";
    LocalVersion "local-version" "versions live in the root Cargo.toml, so that two crates never use two versions";
    WorkspaceLints "workspace-lints" "one set of lints holds for all crates, missing documentation among them";
    PureAttribute "pure-attribute" "the bans of clippy.toml only hold where the crate turns them on";
    ForbidUnsafe "forbid-unsafe" "unsafe code lives in crates made for it, which the table of layers marks, and nowhere else";
    PureBan "pure-ban" "the same scenario and seed give the same bytes only if nothing reads the world";
    FileLength "file-length" "a file holds one idea that a reader can hold too; split it by idea";
    Circle "circle" "a reader understands a file after those that it uses, which a circle makes impossible";
    NoCaller "no-caller" "a module without a caller outside its tests is read and kept up for nothing";
    StaleException "stale-exception" "an exception that nothing needs any more hides the next breach";
    ModuleComment "module-comment" "a reader new to the file sees first what it does and in which units";
    Unfinished "unfinished" "unfinished work belongs in an issue, not in the tree";
    SilentIgnore "silent-ignore" "a test that does not run says why";
    OutsidePath "outside-path" "a clone must work on every machine, so it names no path outside itself";
    RegistryHost "registry-host" "tools find their registries by their own configuration, mirrors included";
    ShellStrict "shell-strict" "a script that goes on after a failure reports success for work it did not do";
    BrokenLink "broken-link" "a link in a document leads to a file or a heading that exists";
    MissingPath "missing-path" "a path that a document names exists, so that its commands work from a fresh clone";
    Promise "promise" "a guarantee without a test is a wish";
    MissingTarget "missing-target" "a make target that a document names exists";
    MissingUnit "missing-unit" "a systemd unit that a document or a package script names is one of packaging/units";
    Changelog "changelog" "a change that a user can notice is listed under Unreleased";
    ProfileList "profile-list" "the devices that README.md lists are those that a clone has";
    UndocumentedRoom "undocumented-room" "ARCHITECTURE.md names every crate, so that a newcomer knows where to look";
}

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the file, relative to the root of the repository.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Which rule.
    pub rule: Rule,
    /// What was found there.
    pub message: String,
}

impl Finding {
    /// A breach of `rule` at `path`:`line`.
    pub fn new(rule: Rule, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {} [{}: {}]",
            self.path,
            self.line,
            self.message,
            self.rule.name(),
            self.rule.reason()
        )
    }
}
