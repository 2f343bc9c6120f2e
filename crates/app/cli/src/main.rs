//! The `isolane` command: arguments in, text or JSON out, and an exit code that scripts can trust.
//!
//! Everything that decides lives in the crates below; a command here reads files, calls them and prints. Results
//! go to stdout, everything else (progress, what was written, errors) to stderr.
//!
//! * [`card_study`] - simulated studies of Ethernet NICs;
//! * [`commands`] - one file per command;
//! * [`devices`] - real RDMA devices, where this program has them;
//! * [`inputs`] - profiles, policies and durations as the command line names them;
//! * [`numbers`] - numbers of options;
//! * [`interrupt`] - Ctrl-C where nothing is kept;
//! * [`network`] - runs of networks: many at once, in words, as traces;
//! * [`output`] - printing and writing files;
//! * [`policy_kinds`] - which kinds of scenario a policy runs on;
//! * [`progress`] - how far the work is;
//! * [`remarks`] - what a run says in words;
//! * [`status`] - exit codes;
//! * [`target`] - the simulator or real devices;
//! * [`usage`] - wrong usage in words.
#![forbid(unsafe_code)]

mod card_study;
mod commands;
mod devices;
mod file_kind;
mod inputs;
mod interrupt;
mod laboratory;
mod network;
mod numbers;
mod output;
mod policy_kinds;
mod progress;
mod remarks;
mod report;
#[cfg(any(feature = "rdma-hosts", feature = "rpc"))]
mod screen;
mod status;
mod target;
mod text;
mod usage;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use commands::Command;
use std::process::ExitCode;

/// Finds workloads that break isolation, shows who hurts whom, enforces objectives
#[derive(Debug, Parser)]
#[command(
    name = "isolane",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let command = commands::described(Arguments::command());
    if let Some(mistake) = usage::missing_name(&command, &words) {
        return wrong_usage(&mistake);
    }
    let arguments = match parse(command.clone()) {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error, &words),
    };
    match arguments.command.run() {
        Ok(status) => status.into(),
        Err(error) => failed(&error),
    }
}

/// What clap ends with: requested help and version on stdout, unrequested help and errors on stderr.
fn refused(error: &clap::Error, words: &[String]) -> ExitCode {
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = match output::colour() {
                true => text.ansi().to_string(),
                false => text.to_string(),
            };
            match output::show(&text) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error),
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::note(text.to_string().trim_end());
            ExitCode::from(status::BAD_INPUT)
        }
        kind => {
            let mut root = commands::described(Arguments::command());
            // Names of options and values are known then.
            root.build();
            let is_unknown = kind == ErrorKind::UnknownArgument;
            let negative = is_unknown.then(|| usage::negative_value(&root, words));
            wrong_usage(
                &negative
                    .flatten()
                    .unwrap_or_else(|| usage::mistake(error, &root, words)),
            )
        }
    }
}

fn parse(command: clap::Command) -> Result<Arguments, clap::Error> {
    let mut matches = command.try_get_matches()?;
    Arguments::from_arg_matches_mut(&mut matches)
}

fn failed(error: &anyhow::Error) -> ExitCode {
    if status::is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    output::note(&format!("isolane: {}", output::error_line(error)));
    ExitCode::from(status::exit_code(error))
}

fn wrong_usage(mistake: &str) -> ExitCode {
    output::note(&format!("isolane: {mistake}"));
    ExitCode::from(status::BAD_INPUT)
}
