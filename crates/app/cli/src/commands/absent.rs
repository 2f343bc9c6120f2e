//! Commands that this program was built without: each stays in the help, marked, and says what to build.
//!
//! A program for studies alone (`make demo`) leaves out what touches real hosts, with the libraries that need most of the
//! time to compile. docs/reference/programs.md says which program has what.

use std::ffi::OsString;

/// The command needs a feature that this program was built without.
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

/// The text by which [`marked`] recognises such a command.
const LEFT_OUT: &str = "left-out";

/// The commands of `root` and of its families, with those that this program was built without marked in the help.
pub(crate) fn marked(root: clap::Command) -> clap::Command {
    root.mut_subcommands(|command| match is_left_out(&command) {
        true => {
            let about = command.get_about().map(ToString::to_string);
            command.about(format!(
                "(not in this program) {}",
                about.unwrap_or_default()
            ))
        }
        false => marked(command),
    })
}

/// Whether this program was built without `command`.
pub(crate) fn is_left_out(command: &clap::Command) -> bool {
    command
        .get_arguments()
        .any(|argument| argument.get_id() == LEFT_OUT)
}

/// Makes a module for each command of a feature that this program was built without.
macro_rules! absent {
    ($family:literal, $feature:literal: $($command:ident),+) => {$(
        mod $command {
            pub(crate) use crate::commands::absent::Arguments;

            pub(crate) fn run(_: &Arguments) -> anyhow::Result<crate::status::Status> {
                Err(crate::commands::absent::Absent {
                    what: concat!("isolane ", $family, stringify!($command)).to_owned(),
                    feature: $feature,
                }
                .into())
            }
        }
    )+};
}
