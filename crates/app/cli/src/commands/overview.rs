//! `isolane --help` on one screen: the study commands with a line each, the families with the names of their commands.

use super::absent::is_left_out;
use crate::output;
use clap::Command;
use isolane_common_text_output::wrapped;
use std::fmt::Write;

/// What the help ends with.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 the answer is no; 2 wrong usage or bad input; 3 the machine cannot; 127 no such program; 130 interrupted. \
    Results go to stdout, the rest to stderr.";

/// Commands that concern this program itself.
const OWN: [&str; 2] = ["completions", "man"];
/// Columns of a line at most.
const WIDTH: usize = 80;
/// Columns before the text of a command.
const INDENT: usize = 15;

/// `root` with its commands in groups in its help.
pub(super) fn grouped(root: Command) -> Command {
    let (mut studies, mut families, mut own) = (String::new(), String::new(), String::new());
    for command in root.get_subcommands() {
        let name = command.get_name();
        if OWN.contains(&name) {
            line(&mut own, name, &about(command));
        } else if command.is_subcommand_required_set() || is_left_out(command) {
            line(&mut families, name, &about(command));
            line(&mut families, "", &names(command));
        } else {
            line(&mut studies, name, &about(command));
        }
    }
    let commands = format!(
        "Studies:\n{studies}\n\
         Families (`isolane FAMILY --help` describes their commands):\n{families}\n\
         This program:\n{own}"
    );
    let width = output::width().unwrap_or(WIDTH).min(WIDTH);
    let commands = wrapped(&commands, Some(width));
    let root = root.after_help(wrapped(EXIT_CODES, Some(width)));
    root.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}{{after-help}}",
        commands.trim_end()
    ))
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The names of the commands that `command` shows.
fn names(command: &Command) -> String {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.map(Command::get_name).collect::<Vec<_>>().join(", ")
}

/// A command and its text, or further text of the command above; nothing where both are empty.
fn line(to: &mut String, name: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(to, "  {name:<indent$}{text}", indent = INDENT - 2);
    }
}

#[cfg(test)]
mod tests {
    use crate::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_help_fits_one_screen_and_names_each_command() {
        let root = crate::commands::described(Arguments::command());
        let help = root.clone().render_help().to_string();
        assert!(help.lines().count() <= 45, "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= super::WIDTH, "{line}");
        }
        for command in root.get_subcommands() {
            let name = command.get_name();
            assert!(help.contains(&format!("\n  {name}  ")), "{name}: {help}");
        }
    }
}
