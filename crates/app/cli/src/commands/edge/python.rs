//! The Python programs of `isolane edge`.
//!
//! Problem: planner and runner are Python, because users write their operators in Python; a user should not need to
//! know where the package is installed. Method: this program looks for an interpreter (`--python`, `$ISOLANE_PYTHON`,
//! the environment beside this program, `python3`), checks that the interpreter can import the package, and replaces
//! its own process by the interpreter. So exit status, signals and output are those of the interpreter. All options
//! except `--python` go to the Python program, including `--help`. Without such an interpreter, help is the committed
//! copy in `*.txt`, which the package's tests compare with the help of the Python program. Limits: the Python program
//! itself reports further missing packages, for instance onnxruntime.

use crate::output;
use crate::status::{BadInput, Status};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the interpreter.
const VARIABLE: &str = "ISOLANE_PYTHON";
/// Our one option.
const OPTION: &[u8] = b"--python";
/// Prints which of the named packages are not there, without importing them.
const PROBE: &str = "\
import importlib.util, sys
def lacks(name):
    try:
        return importlib.util.find_spec(name) is None
    except ImportError:
        return True
found = [name for name in sys.argv[1:] if lacks(name)]
print(', '.join(found))
sys.exit(9 if found else 0)";
/// What both Python programs import before they look at their arguments.
const NEEDS: [&str; 2] = ["numpy", "yaml"];
/// How to come by an interpreter.
const REMEDY: &str = "run `make python` in a clone, or `pip install './python[plan]'` there, or `pip install 'WHEEL[plan]'` \
                      with the wheel isolane-*.whl; --python or $ISOLANE_PYTHON names another interpreter";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The planner.
    Plan,
    /// The runner, with the name of its command.
    Pipeline(&'static str),
}

impl Program {
    /// The package that must be installed.
    fn package(self) -> &'static str {
        match self {
            Self::Plan => "isolane.planner",
            Self::Pipeline(_) => "isolane.pipeline",
        }
    }

    /// The output of `--help` where there is no interpreter.
    fn help(self) -> &'static str {
        match self {
            Self::Plan => include_str!("plan.txt"),
            Self::Pipeline(command) => section(include_str!("pipeline.txt"), command),
        }
    }

    /// What comes before the user's words.
    fn words(self) -> [&'static str; 3] {
        let command = match self {
            Self::Plan => "plan",
            Self::Pipeline(command) => command,
        };
        ["-m", self.package(), command]
    }
}

/// The part of `text`, the helps of several commands, about `command`.
fn section<'a>(text: &'a str, command: &str) -> &'a str {
    let start = text.find(&format!("usage: isolane edge {command} "));
    let part = &text[start.unwrap_or(0)..];
    part.split("\n\nusage: ").next().unwrap_or(part).trim_end()
}

/// Arguments of each command.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    /// Words for the Python program; `--help` shows them. `--python PATH` names the interpreter
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// No interpreter has the package.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no Python with the package {package}: tried {tried}; {REMEDY}")]
pub(in crate::commands) struct NoPython {
    package: &'static str,
    tried: String,
}

pub(crate) fn run(program: Program, arguments: &Words) -> Result<Status> {
    let (named, words) = split(&arguments.words)?;
    let python = match interpreter(named, program.package(), &NEEDS) {
        Ok(python) => python,
        Err(missing) if asks_for_help(&words) => {
            output::print(&format!(
                "{}\nThis is the built-in copy: {missing}.\n",
                program.help()
            ))?;
            return Ok(Status::Done);
        }
        Err(missing) => return Err(missing.into()),
    };
    let error = Command::new(&python)
        .args(program.words())
        .args(words)
        .exec();
    Err(anyhow::Error::new(error).context(format!("{} cannot be started", python.display())))
}

/// The interpreter that has the `package` and what it `needs`: the `named` one, or the first that there is.
pub(in crate::commands) fn interpreter(
    named: Option<OsString>,
    package: &'static str,
    needs: &[&str],
) -> std::result::Result<PathBuf, NoPython> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|file| beside(&file))
        .filter(|python| python.is_file());
    let mut tried = Vec::new();
    for python in tries(named, std::env::var_os(VARIABLE), beside) {
        match probe(python.as_os_str(), package, needs) {
            Ok(()) => return Ok(python),
            Err(reason) => tried.push(format!("{} ({reason})", python.display())),
        }
    }
    Err(NoPython {
        package,
        tried: tried.join(", "),
    })
}

/// `--python`, and the words without it; nothing after `--` is ours.
fn split(words: &[OsString]) -> Result<(Option<OsString>, Vec<OsString>)> {
    let mut named = None;
    let mut kept = Vec::with_capacity(words.len());
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            kept.push(word.clone());
            kept.extend(rest.cloned());
            break;
        }
        if bytes == OPTION {
            let value = rest.next().cloned();
            named =
                Some(value.ok_or_else(|| BadInput("--python: names no interpreter".to_owned()))?);
        } else if let Some(value) = bytes
            .strip_prefix(OPTION)
            .and_then(|rest| rest.strip_prefix(b"="))
        {
            named = Some(OsString::from_vec(value.to_vec()));
        } else {
            kept.push(word.clone());
        }
    }
    Ok((named, kept))
}

/// Interpreters in the order in which they are tried. An interpreter that the user names is the only one.
fn tries(
    named: Option<OsString>,
    variable: Option<OsString>,
    beside: Option<PathBuf>,
) -> Vec<PathBuf> {
    let chosen = named.or(variable.filter(|value| !value.is_empty()));
    match chosen {
        Some(only) => vec![PathBuf::from(only)],
        None => beside
            .into_iter()
            .chain([PathBuf::from("python3")])
            .collect(),
    }
}

/// The environment that a build or an installation keeps next to the directory of this program.
fn beside(file: &Path) -> Option<PathBuf> {
    Some(file.parent()?.parent()?.join("python/bin/python"))
}

/// Whether a word before `--` is a help option.
fn asks_for_help(words: &[OsString]) -> bool {
    words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--help" || word == "-h")
}

/// Nothing if this interpreter starts and has the package and what it needs; else what is wrong with it.
fn probe(python: &OsStr, package: &str, needs: &[&str]) -> std::result::Result<(), String> {
    let asked = Command::new(python)
        .args(["-c", PROBE, package])
        .args(needs)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match asked {
        Err(error) => Err(format!("cannot be started: {error}")),
        Ok(answer) if answer.status.success() => Ok(()),
        Ok(answer) => match String::from_utf8_lossy(&answer.stdout).trim() {
            "" => Err(format!("is no Python: {}", answer.status)),
            lacks => Err(format!("lacks {lacks}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_option_is_taken_out_at_any_place_before_two_dashes() {
        for (given, named, kept) in [
            (
                &["q.yaml", "--python", "py", "--json"][..],
                Some("py"),
                &["q.yaml", "--json"][..],
            ),
            (&["--python=py", "--help"], Some("py"), &["--help"]),
            (
                &["--pythonic", "--", "--python", "py"],
                None,
                &["--pythonic", "--", "--python", "py"],
            ),
            (&[], None, &[]),
        ] {
            let (found, rest) = split(&words(given)).unwrap();
            assert_eq!(found, named.map(OsString::from), "{given:?}");
            assert_eq!(rest, words(kept), "{given:?}");
        }
        assert!(split(&words(&["--python"])).unwrap_err().is::<BadInput>());
    }

    #[test]
    fn a_named_interpreter_is_the_only_one() {
        let beside = || Some(PathBuf::from("/b"));
        let named = |name: &str| Some(OsString::from(name));
        assert_eq!(
            tries(named("/n"), named("/v"), beside()),
            [PathBuf::from("/n")]
        );
        assert_eq!(tries(None, named("/v"), beside()), [PathBuf::from("/v")]);
        assert_eq!(
            tries(None, named(""), beside()),
            [PathBuf::from("/b"), PathBuf::from("python3")]
        );
        assert_eq!(tries(None, None, None), [PathBuf::from("python3")]);
    }

    #[test]
    fn the_environment_is_beside_the_programs_folder() {
        assert_eq!(
            beside(Path::new("/opt/isolane/bin/isolane")),
            Some(PathBuf::from("/opt/isolane/python/bin/python"))
        );
    }

    #[test]
    fn what_is_no_interpreter_has_no_package() {
        // `true` succeeds with any arguments, and plays an interpreter that has the package.
        let said = |python: &str| probe(OsStr::new(python), "isolane.planner", &NEEDS);
        assert_eq!(said("true"), Ok(()));
        assert!(said("false").unwrap_err().starts_with("is no Python"));
        assert!(
            said("/nonexistent/python")
                .unwrap_err()
                .starts_with("cannot be started")
        );
    }

    #[test]
    fn help_is_requested_before_two_dashes() {
        for (given, expected) in [
            (&["q.yaml", "--help"][..], true),
            (&["run", "-h"], true),
            (&["--", "--help"], false),
            (&["--helpful"], false),
            (&[], false),
        ] {
            assert_eq!(asks_for_help(&words(given)), expected, "{given:?}");
        }
    }
}
