//! `isolane rpc lab`: real gRPC programs behind a really overloaded port, with and without Aequitas.

use crate::inputs::bad;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result, bail};
use isolane_rpc_demo::fleet::{Commands, Language};
use isolane_rpc_demo::lab::{self, Setting};
use isolane_rpc_demo::plan::Plan;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0    every verdict is yes
  1    a verdict is no
  2    wrong usage
  3    this machine cannot: not root, no iproute2, no veth or htb in the kernel, a requested client
       is missing, or other programs kept it too busy to judge";

/// The lab's programs in Go and C++, beside this binary or on PATH, and the archive of the Java program, beside it.
const GO_PROGRAM: &str = "isolane-rpc-lab";
const CPP_PROGRAM: &str = "isolane-rpc-lab-cpp";
const JAVA_ARCHIVE: &str = "isolane-rpc-lab.jar";

/// Arguments of `isolane rpc lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Less than a minute, instead of about four
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Clients and servers: rust, python (grpcio), python-aio (grpc.aio), go, cpp, java; those that are installed if not
    /// given
    #[arg(long, value_name = "LANGUAGE,...", value_delimiter = ',', value_parser = Language::ALL.map(Language::name))]
    clients: Vec<String>,
    /// Let admission control decide and report, but not act
    #[arg(long)]
    shadow: bool,
    /// Leave the network namespaces behind, to look into them
    #[arg(long)]
    keep: bool,
    /// Rate of the overloaded port
    #[arg(long, value_name = "MBIT/S", default_value_t = 100)]
    #[arg(allow_negative_numbers = true)]
    line_mbit: u64,
    /// Part of the calls that must meet the objective
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    #[arg(allow_negative_numbers = true)]
    percentile: f64,
    /// Seed of the calls' times and classes
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Python interpreter that has the package isolane
    #[arg(long, value_name = "PATH", env = "ISOLANE_PYTHON")]
    #[arg(default_value = "python3")]
    python: PathBuf,
    /// Go program of the lab; beside isolane or on PATH if not given
    #[arg(long, value_name = "PATH", env = "ISOLANE_RPC_LAB_GO")]
    go: Option<PathBuf>,
    /// C++ program of the lab; beside isolane or on PATH if not given
    #[arg(long, value_name = "PATH", env = "ISOLANE_RPC_LAB_CPP")]
    cpp: Option<PathBuf>,
    /// Archive of the Java program of the lab; beside isolane if not given
    #[arg(long, value_name = "PATH", env = "ISOLANE_RPC_LAB_JAVA")]
    java: Option<PathBuf>,
    /// Also write lab.json and lab.txt into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let plan = plan(arguments);
    plan.check()?;
    if let Some(directory) = &arguments.report {
        output::check_directory(directory)?;
    }
    isolane_rpc_demo::network::require_root()?;
    let commands = commands(arguments)?;
    let languages = languages(arguments, &commands)?;
    if let Some(directory) = &arguments.report {
        // Before minutes are spent on what then has no place.
        output::make_directory(directory)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;
    let report = lab::run(
        &plan,
        &Setting {
            commands: &commands,
            languages: &languages,
            shadow: arguments.shadow,
            keep: arguments.keep,
            interrupted: &interrupted,
            progress: &|words| output::note(words),
        },
    )?;
    let text = super::text::render(&report);
    match arguments.json {
        true => output::print_json(&report)?,
        false => output::show(&text)?,
    }
    if let Some(directory) = &arguments.report {
        output::write_file(&directory.join("lab.json"), &output::json(&report)?)?;
        output::write_file(&directory.join("lab.txt"), &text)?;
        output::note(&format!("wrote {}", directory.display()));
    }
    let no = |judged: bool| {
        let mut verdicts = report.verdicts.iter();
        verdicts.any(|verdict| !verdict.passed && verdict.judged == judged)
    };
    Ok(match (no(true), no(false)) {
        (true, _) => Status::No,
        (false, true) => Status::Machine,
        (false, false) => Status::Done,
    })
}

fn plan(arguments: &Arguments) -> Plan {
    let plan = match arguments.quick {
        true => Plan::quick(),
        false => Plan::full(),
    };
    Plan {
        line_bit_per_s: arguments.line_mbit.saturating_mul(1_000_000),
        percentile: arguments.percentile,
        seed: arguments.seed,
        ..plan
    }
}

fn commands(arguments: &Arguments) -> Result<Commands> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let program = |given: &Option<PathBuf>, name: &str| match (given, own.with_file_name(name)) {
        (Some(path), _) => path.clone(),
        (None, beside) if beside.exists() => beside,
        (None, _) => PathBuf::from(name),
    };
    let rust = [
        own.display().to_string(),
        "rpc".to_owned(),
        "lab-worker".to_owned(),
    ];
    Ok(Commands {
        rust: rust.to_vec(),
        python: arguments.python.clone(),
        go: program(&arguments.go, GO_PROGRAM),
        cpp: program(&arguments.cpp, CPP_PROGRAM),
        java: program(&arguments.java, JAVA_ARCHIVE),
    })
}

/// The requested languages, or the available ones; each missing language is reported.
fn languages(arguments: &Arguments, commands: &Commands) -> Result<Vec<Language>> {
    let asked = |name: &str| {
        Language::ALL
            .into_iter()
            .find(|language| language.name() == name)
    };
    let wanted: Vec<Language> = match arguments.clients.is_empty() {
        true => Language::ALL.to_vec(),
        false => arguments
            .clients
            .iter()
            .filter_map(|name| asked(name))
            .collect(),
    };
    if wanted.len() > CLIENTS_MAX {
        bail!(bad(format!(
            "--clients names {} clients; give at most {CLIENTS_MAX}, more would overload this machine instead of the port",
            wanted.len()
        )));
    }
    let mut found = Vec::new();
    for language in wanted {
        match missing(language, commands) {
            None => found.push(language),
            Some(reason) if arguments.clients.is_empty() => {
                output::note(&format!(
                    "skipped: the {} client ({reason})",
                    language.name()
                ));
            }
            Some(reason) => bail!("there is no {} client here: {reason}", language.name()),
        }
    }
    Ok(found)
}

/// Most clients on one machine.
const CLIENTS_MAX: usize = 8;

/// Why a program of `language` cannot be started, if so, with the remedy.
fn missing(language: Language, commands: &Commands) -> Option<String> {
    match language {
        Language::Rust => None,
        Language::Python | Language::PythonAio => {
            let works = succeeds(&commands.python, &["-c", "import isolane.lab"]);
            (!works).then(|| {
                format!(
                    "{} cannot import isolane.lab; install the package in python/ with its extra `lab`, or name an interpreter \
                     that has it with --python",
                    commands.python.display()
                )
            })
        }
        Language::Go => {
            let works = succeeds(&commands.go, &["version"]);
            (!works).then(|| {
                format!(
                    "cannot start {}; build it with `go build ./cmd/{GO_PROGRAM}` in go/, or name it with --go",
                    commands.go.display()
                )
            })
        }
        Language::Cpp => {
            let works = succeeds(&commands.cpp, &["version"]);
            (!works).then(|| {
                format!(
                    "cannot start {}; build it with `.ci/languages cpp`, which needs libgrpc++-dev, or name it with --cpp",
                    commands.cpp.display()
                )
            })
        }
        Language::Java => {
            let line = commands.java_line();
            let words: Vec<&str> = line.iter().skip(1).map(String::as_str).collect();
            let works = succeeds(Path::new(&line[0]), &[&words, &["version"][..]].concat());
            (!works).then(|| {
                format!(
                    "cannot start `{}`; build it with `.ci/languages java`, which needs a JDK and Maven, or name its archive with \
                     --java",
                    line.join(" ")
                )
            })
        }
    }
}

fn succeeds(program: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
