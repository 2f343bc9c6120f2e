//! `isolane rpc enforce`: admission control for the connections of unmodified programs.

mod view;

use crate::inputs::bad;
use crate::output;
use crate::screen::Views;
use crate::status::Status;
use anyhow::{Context, Result};
use isolane_rpc::admission::Admission;
use isolane_rpc::settings::Settings;
use isolane_rpc_agent::rules::Rules;
use isolane_rpc_agent::{Agent, AgentError, Effect, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of checking the settings file.
const RELOAD: Duration = Duration::from_secs(1);
/// Longest wait between two checks of Ctrl-C and of the effect.
const TURN: Duration = Duration::from_millis(100);

/// Longest time that a Linux peer waits before it acknowledges data that was pushed (TCP_DELACK_MAX).
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(200);

/// What the help of the command ends with.
const AFTER: &str = "\
A message is what a connection sends from a packet that leaves while nothing is outstanding, to the acknowledgement of all \
that was written. The kernel decides on each message with the admit probability of destination and class, before its first \
packet leaves. With `mode = \"shadow\"` in SETTINGS it measures and marks nothing.

Connections that exist already, those whose program has set a code point before it connected, and those of IPv4 through a socket \
of IPv6 (the default of gRPC in C++, Python and Java) are left alone. After the end of \
this command each connection keeps the code point that it has. docs/guides/rpc-enforce.md says what a message is not.

Exit codes:
  0    --count views were printed, or Ctrl-C without --count
  2    wrong usage
  3    this machine cannot: not root, no version 2 cgroups, or the kernel refuses the programs
  130  interrupted before --count views";

/// Arguments of `isolane rpc enforce`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Settings of the admission library: classes, objectives, mode
    settings: PathBuf,
    /// Directory of a cgroup (version 2) whose programs take part, like /sys/fs/cgroup/system.slice/NAME.service
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: PathBuf,
    /// Class of the connections to a server's port
    #[arg(long = "port", value_name = "PORT=CLASS")]
    ports: Vec<String>,
    /// Class of the connections to all other ports, which are left alone if not given
    #[arg(long, value_name = "CLASS")]
    other_ports: Option<String>,
    /// Peers acknowledge each packet at once (their routes have quickack), so that messages of one packet can miss
    #[arg(long)]
    quickack: bool,
    #[command(flatten)]
    views: Views,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let admission = Arc::new(Admission::from_file(&arguments.settings)?);
    let options = Options {
        cgroup: arguments.cgroup.clone(),
        rules: rules(arguments, &admission.settings())?,
        acknowledgement_delay: match arguments.quickack {
            true => Duration::ZERO,
            false => ACKNOWLEDGEMENT_DELAY,
        },
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;
    let mut agent = Agent::attach(Arc::clone(&admission), &options)
        .map_err(|error| named(error, &arguments.settings))?;
    admission
        .watch(RELOAD, output::note)
        .context("cannot start a thread that checks the settings")?;
    let mut screen = arguments.views.screen();
    while arguments
        .views
        .count
        .is_none_or(|count| screen.shown() < count)
    {
        if !work(&mut agent, arguments.views.interval, &interrupted)? {
            return Ok(match arguments.views.count {
                Some(_) => Status::Interrupted,
                None => Status::Done,
            });
        }
        let view = agent.view()?;
        screen.print(&view, || view::text(&view))?;
    }
    Ok(Status::Done)
}

/// The error, with the settings file if it is about a setting.
fn named(error: AgentError, settings: &Path) -> anyhow::Error {
    let about_a_setting = matches!(error, AgentError::NotOffered { .. });
    let error = anyhow::Error::new(error);
    match about_a_setting {
        true => error.context(settings.display().to_string()),
        false => error,
    }
}

/// Processes messages for one interval; false at Ctrl-C.
fn work(agent: &mut Agent, interval: Duration, interrupted: &AtomicBool) -> Result<bool> {
    let end = Instant::now() + interval;
    let mut checked = Instant::now();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        agent.step(left.min(TURN))?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if checked.elapsed() >= TURN {
            checked = Instant::now();
            if let Effect::None { other, of, refused } = agent.verify()? {
                output::note(&format!(
                    "isolane: marking is off: {other} of {of} messages left with another code point than chosen, and the kernel \
                     did not set {refused} code points; messages are measured as with mode = \"shadow\". Look for programs and \
                     filters that set the DSCP, then start this command again"
                ));
            }
        }
    }
}

fn rules(arguments: &Arguments, settings: &Settings) -> Result<Rules> {
    let names: Vec<&str> = settings
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    let known = || format!("must be one of {}", names.join(", "));
    let mut rules = Rules::default();
    for word in &arguments.ports {
        let added = rules.add(word, |name| settings.class(name));
        added.map_err(|what| {
            let class = if what.starts_with("class is") {
                format!("{what}; {}", known())
            } else {
                what
            };
            bad(format!("--port {word}: {class}"))
        })?;
    }
    if let Some(name) = &arguments.other_ports {
        let class = settings.class(name);
        let class = class.ok_or_else(|| bad(format!("--other-ports {name}: {}", known())))?;
        rules.others = Some(class);
    }
    if rules.is_empty() {
        return Err(bad(
            "no connection has a class: give --port PORT=CLASS or --other-ports CLASS".to_owned(),
        ));
    }
    Ok(rules)
}
