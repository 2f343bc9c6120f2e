//! Wrong usage in words: what clap found ([`mod@mistake`]), a sign in front of a value, and lists with a name missing.
//!
//! Method: clap's own description of the commands says which words are options with a value. clap parses a value that
//! begins with a minus as an unknown option, so this check runs once clap has failed. An empty part of a list would
//! reach commands as an empty name, so this check runs before. Words after `--`, and those of programs that a command
//! starts, are not checked.

mod mistake;

pub(crate) use mistake::line as mistake;

use clap::{Arg, Command};

/// An option of a command line and its value.
struct Given<'a> {
    argument: &'a Arg,
    value: &'a str,
}

/// What to say of a list with nothing between two commas, or of an empty one; none where there is no such list.
pub(crate) fn missing_name(root: &Command, words: &[String]) -> Option<String> {
    let asks_for_help = |word: &String| word == "--help" || word == "-h";
    if words.iter().any(asks_for_help) {
        return None;
    }
    let (path, command) = called(root, words);
    let empty = given(command, words).into_iter().find(|given| {
        given.argument.get_value_delimiter() == Some(',')
            && given.value.split(',').any(|part| part.trim().is_empty())
    })?;
    Some(format!(
        "--{} {:?}: a name is missing beside a comma; give {} (`{path} --help` lists them)",
        empty.argument.get_long()?,
        empty.value,
        value_names(empty.argument),
    ))
}

/// What to say of a value that begins with a minus; none where there is none.
pub(crate) fn negative_value(root: &Command, words: &[String]) -> Option<String> {
    let (path, command) = called(root, words);
    let negative = given(command, words).into_iter().find(|given| {
        let rest = given.value.strip_prefix('-').unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    })?;
    Some(format!(
        "--{} {}: must not be negative; give {} without a sign (`{path} --help` says more)",
        negative.argument.get_long()?,
        negative.value,
        value_names(negative.argument),
    ))
}

fn called<'a>(root: &'a Command, words: &[String]) -> (String, &'a Command) {
    let mut path = root.get_name().to_owned();
    let mut command = root;
    for word in words.iter().take_while(|word| *word != "--") {
        if let Some(next) = command.find_subcommand(word) {
            command = next;
            path = format!("{path} {}", next.get_name());
        }
    }
    (path, command)
}

/// The long options of `command` among the words, with their values. None of a command that starts a program, whose
/// options these may be.
fn given<'a>(command: &'a Command, words: &'a [String]) -> Vec<Given<'a>> {
    if command.get_positionals().any(Arg::is_trailing_var_arg_set) {
        return Vec::new();
    }
    let end = words.iter().position(|word| word == "--");
    let words = &words[..end.unwrap_or(words.len())];
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let Some(name) = word.strip_prefix("--") else {
            continue;
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (name, words.get(index + 1).map(String::as_str)),
        };
        let takes_it = |argument: &&Arg| {
            argument.get_long() == Some(name) && argument.get_action().takes_values()
        };
        if let (Some(argument), Some(value)) = (command.get_arguments().find(takes_it), value) {
            found.push(Given { argument, value });
        }
    }
    found
}

/// What help calls the value.
fn value_names(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    match names.is_empty() {
        true => argument.get_id().as_str().to_uppercase(),
        false => names.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::value_parser;

    fn root() -> Command {
        let list = Arg::new("policies")
            .long("policies")
            .value_delimiter(',')
            .value_name("POLICY,...");
        let weight = Arg::new("weight").long("weight");
        let json = Arg::new("json")
            .long("json")
            .action(clap::ArgAction::SetTrue);
        let program = Arg::new("program")
            .num_args(1..)
            .trailing_var_arg(true)
            .value_parser(value_parser!(String));
        let options = [list, weight, json, Arg::new("file")];
        Command::new("isolane")
            .subcommand(Command::new("sim").args(options.clone()))
            .subcommand(Command::new("run").args(options[..3].to_vec()).arg(program))
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn lists_with_holes_are_named() {
        for line in [
            "sim --policies ,",
            "sim --policies a,,b file",
            "sim --policies=a,",
        ] {
            let said = missing_name(&root(), &words(line)).expect(line);
            assert!(
                said.contains("--policies") && said.contains("POLICY,..."),
                "{said}"
            );
            assert!(said.contains("isolane sim --help"), "{said}");
        }
        for line in [
            "sim --policies a,b file",
            "sim --policies , --help",
            "sim -- --policies ,",
            "run cc --policies ,",
            "sim --policies",
        ] {
            assert_eq!(missing_name(&root(), &words(line)), None, "{line}");
        }
    }

    #[test]
    fn negative_values_are_named_with_their_option() {
        for (line, value) in [
            ("sim --weight -1 file", "--weight -1"),
            ("sim --weight=-.5", "--weight -.5"),
            ("sim --json --weight -3ms", "--weight -3ms"),
        ] {
            let said = negative_value(&root(), &words(line)).expect(line);
            assert!(
                said.starts_with(value) && said.contains("give WEIGHT"),
                "{said}"
            );
        }
        for line in [
            "sim --json -1",
            "sim --weight --json",
            "run --weight -1 cc",
            "sim -- -1",
        ] {
            assert_eq!(negative_value(&root(), &words(line)), None, "{line}");
        }
    }
}
