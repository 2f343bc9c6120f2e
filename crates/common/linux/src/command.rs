//! Runs `ip`, `tc` and the like, and turns what they say into our words.
//!
//! Method: words are passed as they are, without a shell; the superuser's folders are searched too.
//! Units: none. Limits: a command's output is text; what it says on refusal is known for the tools of iproute2.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Where the network's programs lie when PATH of a plain user does not say so.
const SBIN: &str = "/usr/sbin:/sbin";

/// A command that did not do its work; the message names it, what it said, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(String);

/// A command that finds the programs of the superuser too.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{SBIN}"));
    command.stdin(Stdio::null());
    command
}

/// Runs `line`, words separated by blanks, and returns what it printed.
///
/// # Errors
/// When it is not there, or does not end well.
///
/// # Panics
/// If the line is empty.
pub fn run(line: &str) -> Result<String, CommandError> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command has a name");
    run_words(program, &words.collect::<Vec<_>>())
}

/// Runs `program` with `words`, and returns what it printed.
///
/// # Errors
/// When it is not there, or does not end well.
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

/// What to install for a program.
pub fn package(program: &str) -> String {
    let package = match program {
        "ping" => "iputils-ping",
        "iperf3" => "iperf3",
        "taskset" | "setpriv" => "util-linux",
        _ => "iproute2",
    };
    format!("{package} (Debian: apt-get install {package})")
}

/// What a refusal of the kernel means for the reader.
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
