//! A session's own daemon: `isolaned` with a socket of its own, for as long as a run under `justitia` lasts.
//!
//! The agent writes the daemon's file from checked numbers and names, never from text of the controller's, into a
//! directory that only its user may enter. Workers are started by `isolane rdma run --require` with that socket, so a
//! worker that would run unpaced does not run.
//!
//! A run must not begin before the daemon's reference flow is connected: until then the daemon measures no latency and
//! grants every token. The guard reads the daemon's output and creates a file (`CONNECTED`) for the agent when the flow
//! is connected.
//!
//! A daemon does not notice that its agent was killed. So `isolane rdma agent --guard DIR` runs between the two: the
//! guard's input ends with the agent, and then the guard ends the daemon and removes the directory.

use crate::message::{Paced, Pacing};
use crate::process::Process;
use std::fs;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The daemon's file within its directory.
const CONFIGURATION: &str = "isolaned.toml";
/// Where workers find it.
const SOCKET: &str = "isolaned.sock";
/// The guard makes it when the reference flow is connected.
const CONNECTED: &str = "connected";
/// What the daemon says then.
const CONNECTED_WORDS: &str = ": connected";
/// How long it may take until it listens and is connected.
const STARTING: Duration = Duration::from_secs(40);
/// How long the daemon may take to end after the signal.
const ENDING: Duration = Duration::from_secs(3);
/// How often the guard looks whether the daemon lives.
const WATCH: Duration = Duration::from_secs(1);
/// How often it is looked whether it listens.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Daemon {
    guard: Arc<Process>,
    directory: tempfile::TempDir,
}

impl Daemon {
    /// Starts one by `program`'s guard and waits until it listens and its reference flow is connected.
    pub(crate) fn start(program: &Path, paced: &Paced) -> Result<Self, String> {
        let made = tempfile::Builder::new().prefix("isolane-").tempdir();
        let directory = made.map_err(|error| format!("cannot make a directory: {error}"))?;
        let file = directory.path().join(CONFIGURATION);
        fs::write(&file, configuration(directory.path(), paced))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        let mut command = Command::new(program);
        command
            .args(["rdma", "agent", "--guard"])
            .arg(directory.path());
        let (guard, _) = Process::start(&mut command)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let daemon = Self { guard, directory };
        let until = Instant::now() + STARTING;
        let linked = |daemon: &Self| {
            paced.devices.len() < 2 || daemon.directory.path().join(CONNECTED).exists()
        };
        while !(daemon.listens() && linked(&daemon)) {
            if let Some(status) = daemon.guard.ended(Duration::ZERO) {
                return Err(format!(
                    "isolaned ended with {}: {}",
                    crate::process::how(status),
                    daemon.guard.complaint()
                ));
            }
            if Instant::now() > until {
                let what = match daemon.listens() {
                    true => "has not connected its devices",
                    false => "does not listen",
                };
                return Err(format!(
                    "isolaned {what} after {} s: {}",
                    STARTING.as_secs(),
                    daemon.guard.complaint()
                ));
            }
            thread::sleep(LOOK);
        }
        Ok(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// Whether a process would be let in.
    fn listens(&self) -> bool {
        let Ok(address) = SocketAddr::from_pathname(self.socket()) else {
            return false;
        };
        let path = address.as_pathname().expect("it was made of a path");
        let open = || -> rustix::io::Result<()> {
            use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
            let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
            connect(&socket, &SocketAddrUnix::new(path)?)
        };
        open().is_ok()
    }

    /// The words that make a worker of `program` with `arguments` one that it paces.
    pub(crate) fn command(&self, program: &Path, arguments: &[String], pacing: &Pacing) -> Command {
        let mut command = Command::new(program);
        command
            .args(["rdma", "run", "--require", "--class", &pacing.class])
            .args(["--tenant", &pacing.tenant, "--socket"])
            .arg(self.socket())
            .arg("--")
            .arg(program)
            .args(arguments);
        command
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        self.guard.finish(2 * ENDING);
    }
}

/// The daemon's file. Names are letters and digits (checked with the message), so nothing needs quoting.
fn configuration(directory: &Path, paced: &Paced) -> String {
    let place = |name: &str| directory.join(name).display().to_string();
    let mut text = format!(
        "socket = {:?}\nsocket_mode = \"0600\"\ncontrol_socket = {:?}\n",
        place(SOCKET),
        place("control.sock")
    );
    for device in &paced.devices {
        text.push_str(&format!(
            "[[device]]\nname = {:?}\nport = {}\nrate = \"{}kb/s\"\nmessages_per_s = {}\n",
            device.name, device.port, device.rate_kbps, device.messages_per_s
        ));
        if let Some(target_us) = device.target_us {
            text.push_str(&format!("target = \"{target_us}us\"\n"));
        }
        if let Some(period_us) = device.reference_period_us {
            text.push_str(&format!("reference_period = \"{period_us}us\"\n"));
        }
    }
    if let [first, second, ..] = paced.devices.as_slice() {
        text.push_str(&format!(
            "[[peer]]\ndevice = {:?}\nremote_device = {:?}\n",
            first.name, second.name
        ));
    }
    for (name, weight) in &paced.weights {
        text.push_str(&format!("[[tenant]]\nname = {name:?}\nweight = {weight}\n"));
    }
    text
}

/// Runs the daemon of `directory` until our input ends or it does, then ends it and removes the directory. Fails if the
/// daemon cannot be started, or ends with an error.
pub fn guard(isolaned: &Path, directory: &Path) -> Result<(), String> {
    let mut command = Command::new(isolaned);
    command.arg("--config").arg(directory.join(CONFIGURATION));
    let (daemon, _) = Process::start(&mut command)
        .map_err(|error| format!("cannot start {}: {error}", isolaned.display()))?;
    let watched = Arc::clone(&daemon);
    // Not joined: it may wait for its input for ever.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        watched.signal(rustix::process::Signal::TERM);
        if watched.ended(ENDING).is_none() {
            watched.kill();
        }
    });
    let mut connected = false;
    let status = loop {
        if !connected && daemon.has_said(CONNECTED_WORDS) {
            connected = fs::write(directory.join(CONNECTED), "").is_ok();
        }
        let patience = if connected { WATCH } else { LOOK };
        if let Some(status) = daemon.ended(patience) {
            break status;
        }
    };
    // The agent removes the directory too; the second removal finds nothing.
    let _ = fs::remove_dir_all(directory);
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "isolaned: {}: {}",
            crate::process::how(status),
            daemon.complaint()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PacedDevice;

    #[test]
    fn the_daemons_file_names_devices_peer_and_weights() {
        let device = |name: &str| PacedDevice {
            name: name.to_owned(),
            port: 1,
            rate_kbps: 700_000,
            messages_per_s: 30_000,
            target_us: Some(500),
            reference_period_us: None,
        };
        let paced = Paced {
            devices: vec![device("r0"), device("r1")],
            weights: [("t0".to_owned(), 2)].into(),
        };
        let text = configuration(Path::new("/tmp/x"), &paced);
        for line in [
            "socket = \"/tmp/x/isolaned.sock\"",
            "name = \"r1\"",
            "rate = \"700000kb/s\"",
            "messages_per_s = 30000",
            "target = \"500us\"",
            "remote_device = \"r1\"",
            "weight = 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
