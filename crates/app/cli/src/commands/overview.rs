//! `isolane --help` on one screen: the study commands with a line each, the families with the names of their commands.

use super::absent::is_left_out;
use clap::Command;
use std::fmt::Write;

/// Commands that concern this program itself.
const OWN: [&str; 2] = ["completions", "man"];
/// Columns of a line.
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
    root.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\nStudies:\n{studies}\n\
         Families (`isolane FAMILY --help` describes their commands):\n{families}\n\
         This program:\n{own}{{after-help}}"
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

/// Adds a command and its text, folded; nothing where both are empty.
fn line(to: &mut String, name: &str, text: &str) {
    let mut start = format!("  {name:<indent$}", indent = INDENT - 2);
    let mut row = String::new();
    let mut put = |row: &str| {
        let _ = writeln!(to, "{start}{row}");
        start = " ".repeat(INDENT);
    };
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !row.is_empty() && INDENT + row.len() + 1 + word.len() > WIDTH {
            put(&row);
            row.clear();
        }
        if !row.is_empty() {
            row.push(' ');
        }
        row.push_str(word);
    }
    if !row.is_empty() {
        put(&row);
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
