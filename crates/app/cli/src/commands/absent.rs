//! Commands that this program was built without: each stays in the help, marked, and says what to build.
//!
//! A program for studies alone (`make demo`) leaves out what touches real hosts, with the libraries that need most of the
//! time to compile. docs/reference/programs.md says which program has what.

use std::ffi::OsString;

/// Something was asked for that this program was built without.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} is not in this program, which was built without the feature {feature}; run `make build`, which makes \
     target/release/isolane with every command"
)]
pub(crate) struct Absent {
    /// As the user wrote it.
    pub(crate) what: String,
    /// The feature of the package `isolane` that has it.
    pub(crate) feature: &'static str,
}

/// Arguments of any such command: all words, so that the answer is not about one of them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[arg(id = LEFT_OUT, trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

/// By what [`marked`] tells such a command from others.
const LEFT_OUT: &str = "left-out";

/// The commands, with those that this program was built without marked in the help.
pub(crate) fn marked(mut root: clap::Command) -> clap::Command {
    let is_left_out = |command: &&clap::Command| {
        command
            .get_arguments()
            .any(|argument| argument.get_id() == LEFT_OUT)
    };
    let names: Vec<String> = root
        .get_subcommands()
        .filter(is_left_out)
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        root = root.mut_subcommand(name, |command| {
            let about = command.get_about().map(ToString::to_string);
            command.about(format!(
                "(not in this program) {}",
                about.unwrap_or_default()
            ))
        });
    }
    root
}

/// Makes a module for each command of a feature that this program was built without.
macro_rules! absent {
    ($feature:literal: $($command:ident),+) => {$(
        mod $command {
            pub(crate) use super::absent::Arguments;

            pub(crate) fn run(_: &Arguments) -> anyhow::Result<crate::status::Status> {
                Err(super::absent::Absent {
                    what: concat!("isolane ", stringify!($command)).to_owned(),
                    feature: $feature,
                }
                .into())
            }
        }
    )+};
}
