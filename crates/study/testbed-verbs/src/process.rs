//! A child process in its own process group, killed with its owner.
//!
//! Ending it means: ask (close its input), wait a little, then kill the whole group, so that nothing it started
//! stays. The process id stays ours until it is waited for, and it is waited for under the same lock under which it
//! is killed: a kill never reaches a stranger who got the number later.

use crate::lines::{Lines, Tail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// A running child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
    group: Pid,
    input: Mutex<Option<ChildStdin>>,
    tail: Arc<Mutex<Tail>>,
    complaints: Mutex<Option<JoinHandle<()>>>,
}

impl Process {
    /// Starts `command`; its stdout is returned, its stderr kept for [`Process::complaint`].
    pub(crate) fn start(command: &mut Command) -> io::Result<(Arc<Self>, ChildStdout)> {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let group = Pid::from_child(&child);
        let input = child.stdin.take();
        let output = child.stdout.take().expect("stdout is a pipe");
        let errors = child.stderr.take().expect("stderr is a pipe");
        let tail = Arc::new(Mutex::new(Tail::default()));
        let kept = Arc::clone(&tail);
        let complaints = thread::spawn(move || {
            let mut lines = Lines::new(errors);
            while let Ok(Some(line)) = lines.next() {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(&line);
            }
        });
        let process = Self {
            child: Mutex::new(child),
            group,
            input: Mutex::new(input),
            tail,
            complaints: Mutex::new(Some(complaints)),
        };
        Ok((Arc::new(process), output))
    }

    /// Writes `text` to its input; waits while the pipe is full.
    pub(crate) fn write(&self, text: &[u8]) -> io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            Some(input) => input.write_all(text).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Closes the input of the process, on which the process ends.
    pub(crate) fn close(&self) {
        self.input
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Kills it and everything in its group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends `signal` to its group while it is not waited for.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(child.try_wait(), Ok(None)) {
            // It can only fail where the group has gone since.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Its end, if it comes within `patience`.
    pub(crate) fn ended(&self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            let status = self
                .child
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .try_wait();
            match status {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(LOOK),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Lets it end by itself for `patience`, then kills it.
    pub(crate) fn finish(&self, patience: Duration) -> ExitStatus {
        self.close();
        loop {
            if let Some(status) = self.ended(patience) {
                return status;
            }
            self.kill();
        }
    }

    /// Whether `text` is among the last lines it wrote to stderr so far.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text()
            .contains(text)
    }

    /// The last lines it wrote to stderr, on one line; complete once it has ended.
    pub(crate) fn complaint(&self) -> String {
        let reader = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(reader) = reader {
            // A grandchild may hold the pipe open; what is there by now is enough then.
            let until = Instant::now() + Duration::from_millis(200);
            while !reader.is_finished() && Instant::now() < until {
                thread::sleep(LOOK);
            }
        }
        self.tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.finish(Duration::ZERO);
    }
}

/// How a process ended, for people.
pub(crate) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn shell(script: &str) -> (Arc<Process>, ChildStdout) {
        Process::start(Command::new("sh").arg("-c").arg(script)).unwrap()
    }

    #[test]
    fn a_process_ends_with_its_input_and_says_why() {
        let (process, mut output) = shell("read line; echo got $line; echo oh no >&2; exit 7");
        process.write(b"this\n").unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "got this\n");
        let status = process.finish(Duration::from_secs(10));
        assert_eq!(how(status), "exit code 7");
        assert_eq!(process.complaint(), "oh no");
    }

    #[test]
    fn what_it_says_is_heard_while_it_runs() {
        let (process, _output) = shell("echo isolaned: peer r1: connected >&2; read line");
        let until = Instant::now() + Duration::from_secs(60);
        while !process.has_said(": connected") {
            assert!(Instant::now() < until, "it never said it");
            thread::sleep(LOOK);
        }
        assert!(!process.has_said("gone"));
    }

    #[test]
    fn a_deaf_process_and_its_children_are_killed() {
        let (process, output) = shell("trap '' TERM; sleep 1000 & echo $!; wait");
        let mut lines = Lines::new(output);
        let grandchild: i32 = lines.next().unwrap().unwrap().parse().unwrap();
        assert_eq!(how(process.finish(Duration::ZERO)), "signal 9");
        // The grandchild held the other end of the pipe.
        assert_eq!(lines.next().unwrap(), None);
        let pid = Pid::from_raw(grandchild).unwrap();
        let gone = (0..1000).any(|_| {
            thread::sleep(LOOK);
            let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
            rustix::process::test_kill_process(pid).is_err()
                || state.is_ok_and(|state| state.contains(") Z "))
        });
        assert!(gone);
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let (process, output) = shell("sleep 1000");
        drop(process);
        assert_eq!(Lines::new(output).next().unwrap(), None);
    }
}
