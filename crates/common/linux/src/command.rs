//! Runs `ip`, `tc` and similar programs, and translates their error messages.
//!
//! Method: arguments are passed without a shell; the superuser's directories are searched too. Limits: only errors of
//! iproute2's tools are recognised.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Directories of network programs that are missing from a plain user's PATH.
const SBIN: &str = "/usr/sbin:/sbin";

/// A failed command; the message contains the command, its output, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(String);

/// A command whose PATH includes the superuser's directories.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{SBIN}"));
    command.stdin(Stdio::null());
    command
}

/// Runs `line`, words separated by blanks, and returns its output. Fails if the program does not exist or fails. Panics
/// if the line is empty.
pub fn run(line: &str) -> Result<String, CommandError> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command has a name");
    run_words(program, &words.collect::<Vec<_>>())
}

/// Runs `program` with `words`, and returns its output. Fails if the program does not exist or fails.
pub fn run_words(program: &str, words: &[&str]) -> Result<String, CommandError> {
    let line = format!("{program} {}", words.join(" "));
    let output = command(program).args(words).output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(CommandError(format!(
                "there is no `{program}` on PATH; install {}",
                package(program)
            )));
        }
        Err(error) => {
            return Err(CommandError(format!("cannot run `{line}`: {error}")));
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(refusal(&line, said.trim()))
}

/// The package that contains a program.
pub fn package(program: &str) -> String {
    let package = match program {
        "ping" => "iputils-ping",
        "iperf3" => "iperf3",
        "taskset" | "setpriv" => "util-linux",
        _ => "iproute2",
    };
    format!("{package} (Debian: apt-get install {package})")
}

/// The error of a failed command, with a remedy if the output is recognised.
fn refusal(line: &str, said: &str) -> CommandError {
    let remedy = [
        (
            "Operation not permitted",
            "run it as root, outside containers that forbid network namespaces",
        ),
        (
            "Unknown device type",
            "this kernel has no such device; load its module (veth, ...)",
        ),
        (
            "qdisc kind is unknown",
            "this kernel has no such qdisc; load its module (sch_htb, ...)",
        ),
        (
            "TC classifier not found",
            "this kernel has no such classifier; load its module (cls_u32, ...)",
        ),
    ];
    let remedy = remedy.iter().find(|(sign, _)| said.contains(sign));
    let remedy = remedy.map_or(String::new(), |(_, remedy)| format!("; {remedy}"));
    CommandError(format!("`{line}` failed: {said}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_htb_is_named_with_the_remedy() {
        let error = refusal(
            "tc qdisc add dev x htb",
            "Error: Specified qdisc kind is unknown.",
        );
        assert!(error.to_string().contains("sch_htb"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = run("isolane-has-no-such-program now").unwrap_err();
        assert!(error.to_string().contains("install iproute2"));
    }
}
