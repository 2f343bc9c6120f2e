//! Runs `ip`, `tc` and the like, and turns what they say into our words.

use crate::error::LabError;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Where the network's programs lie when PATH of a plain user does not say so.
const SBIN: &str = "/usr/sbin:/sbin";

/// A command that finds the programs of the superuser too.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{SBIN}"));
    command.stdin(Stdio::null());
    command
}

/// Runs `line`, words separated by blanks, and returns what it printed.
pub(crate) fn run(line: &str) -> Result<String, LabError> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command has a name");
    run_words(program, &words.collect::<Vec<_>>())
}

/// Runs `program` with `words`, and returns what it printed.
pub(crate) fn run_words(program: &str, words: &[&str]) -> Result<String, LabError> {
    let line = format!("{program} {}", words.join(" "));
    let output = command(program).args(words).output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(LabError::Machine(format!(
                "there is no `{program}` on PATH; install iproute2 (Debian: apt-get install iproute2)"
            )));
        }
        Err(error) => {
            return Err(LabError::Machine(format!("cannot run `{line}`: {error}")));
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(refusal(&line, said.trim()))
}

/// What a refusal of the kernel means for the reader.
fn refusal(line: &str, said: &str) -> LabError {
    let remedy = [
        (
            "Operation not permitted",
            "run the lab as root, outside containers that forbid network namespaces",
        ),
        (
            "Unknown device type",
            "this kernel has no veth; load the module veth",
        ),
        (
            "qdisc kind is unknown",
            "this kernel has no htb; load the module sch_htb",
        ),
        (
            "TC classifier not found",
            "this kernel has no u32 classifier; load the module cls_u32",
        ),
    ];
    let remedy = remedy.iter().find(|(sign, _)| said.contains(sign));
    let remedy = remedy.map_or(String::new(), |(_, remedy)| format!("; {remedy}"));
    LabError::Machine(format!("`{line}` failed: {said}{remedy}"))
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
        assert!(error.to_string().contains("load the module sch_htb"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = run("isolane-has-no-such-program now").unwrap_err();
        assert!(error.to_string().contains("install iproute2"));
    }
}
