//! `isolane rpc misaligned`: calls whose packets have another code point than their class.

use crate::file_kind::{FileKind, Wanted};
use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use crate::text::{Table, counted, fitted};
use anyhow::Result;
use isolane_rpc_capture::declared::{Declared, RULES_MAX, Rule, class_named};
use isolane_rpc_capture::tally::{Direction, Report, Row, Verdict};
use isolane_rpc_capture::{CLASSES_MAX, CaptureError, Class, Options, audit};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What the help of the command ends with.
const AFTER: &str = "\
A call declares its class in the header isolane-class of its request, which must be gRPC in plain text, captured from the \
connection's first packet on (tcpdump -s 0 -w FILE). Other connections have the class of --port or --connections. A file of \
connections has the first line client,client_port,server,server_port,class; * fits everything.

Exit codes:
  0  all judged calls have the code point of their class
  1  some have another one
  2  wrong usage, or the file does not exist or is no capture
  3  nothing declares a class, or the reading fails";

/// Arguments of `isolane rpc misaligned`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Capture: pcap or pcapng
    capture: PathBuf,
    /// Settings of the admission library, with the classes and their code points
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// A class and its code point, 0 to 63; instead of --settings
    #[arg(long = "class", value_name = "NAME=DSCP", conflicts_with = "settings")]
    classes: Vec<String>,
    /// Header of a request that names its class
    #[arg(long, value_name = "NAME", default_value = "isolane-class")]
    header: String,
    /// Class of the connections to a port whose calls declare none
    #[arg(long = "port", value_name = "PORT=CLASS")]
    ports: Vec<String>,
    /// Classes of connections whose calls declare none, as comma-separated values
    #[arg(long, value_name = "FILE")]
    connections: Option<PathBuf>,
    /// Judge responses too: they keep the code point only where the server's kernel reflects it
    #[arg(long)]
    responses: bool,
    /// Part of a class's bytes between two hosts that may have another code point
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    #[arg(allow_negative_numbers = true)]
    tolerance: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let options = options(arguments)?;
    let file = &arguments.capture;
    let report = audit(inputs::open(file)?, &options).map_err(|error| match error {
        CaptureError::Read { .. } => anyhow::Error::new(error).context(file.display().to_string()),
        _ => bad(format!("{}: {error}", file.display())),
    })?;
    match arguments.json {
        true => output::print_json(&report)?,
        false => output::show(&render(&report, &options))?,
    }
    Ok(match report.verdict {
        Verdict::Aligned => Status::Done,
        Verdict::Misaligned => Status::No,
        Verdict::Undecided => Status::Missing,
    })
}

fn options(arguments: &Arguments) -> Result<Options> {
    let classes = match &arguments.settings {
        Some(file) => of_settings(file)?,
        None => of_words(&arguments.classes)?,
    };
    let percent = arguments.tolerance;
    if !(0.0..=100.0).contains(&percent) {
        return Err(bad(format!("--tolerance {percent}: must be 0 to 100")));
    }
    let mut declared = Declared::default();
    if arguments.ports.len() > RULES_MAX {
        return Err(bad(format!(
            "--port: must be given at most {RULES_MAX} times"
        )));
    }
    for word in &arguments.ports {
        declared.push(port(word, &classes).map_err(|what| bad(format!("--port {word}: {what}")))?);
    }
    if let Some(file) = &arguments.connections {
        let text = inputs::read(file, &CONNECTIONS)?;
        let read = declared.read(&file.to_string_lossy(), &text, &classes);
        read.map_err(|error| bad(error.to_string()))?;
    }
    Ok(Options {
        classes,
        header: arguments.header.to_ascii_lowercase(),
        declared,
        responses: arguments.responses,
        tolerance: percent / 100.0,
    })
}

/// What `--settings` takes.
const SETTINGS: Wanted = Wanted {
    // Settings with groups and without a mode have the top-level keys of a quota server.
    kind: |kind| matches!(kind, FileKind::Admission | FileKind::Quota),
    words: "the settings of the admission library (TOML with [[class]], docs/guides/rpc.md)",
};

/// What `--connections` takes.
const CONNECTIONS: Wanted = Wanted {
    kind: |_| false,
    words: "classes of connections (CSV, docs/guides/misaligned.md)",
};

fn of_settings(file: &Path) -> Result<Vec<Class>> {
    let text = inputs::read(file, &SETTINGS)?;
    let settings = isolane_rpc::settings::parse(&file.to_string_lossy(), &text)?;
    let class = |class: isolane_rpc::settings::ClassSettings| Class {
        name: class.name,
        dscp: class.dscp,
    };
    Ok(settings.classes.into_iter().map(class).collect())
}

fn of_words(words: &[String]) -> Result<Vec<Class>> {
    if words.is_empty() {
        return Err(bad(
            "no classes: give --settings FILE, or --class NAME=DSCP for each class, like --class critical=46",
        ));
    }
    let mut classes: Vec<Class> = Vec::new();
    for word in words {
        let parts = word.split_once('=').and_then(|(name, dscp)| {
            let dscp: u8 = dscp.parse().ok()?;
            (!name.is_empty() && dscp < 64).then_some((name, dscp))
        });
        let Some((name, dscp)) = parts else {
            return Err(bad(format!(
                "--class {word}: must be a name and a code point from 0 to 63, like critical=46"
            )));
        };
        if classes.iter().any(|class| class.name == name) {
            return Err(bad(format!("--class {word}: {name:?} is given twice")));
        }
        let name = name.to_owned();
        classes.push(Class { name, dscp });
    }
    if classes.len() > CLASSES_MAX {
        return Err(bad(format!(
            "--class: {} classes; must be at most {CLASSES_MAX}",
            classes.len()
        )));
    }
    Ok(classes)
}

fn port(word: &str, classes: &[Class]) -> Result<Rule, String> {
    let (port, class) = word.split_once('=').unwrap_or((word, ""));
    let server_port = port
        .parse()
        .map_err(|_| "must be a port and a class, like 50051=critical".to_owned())?;
    Ok(Rule {
        server_port: Some(server_port),
        class: class_named(class, classes)?,
        ..Rule::default()
    })
}

fn render(report: &Report, options: &Options) -> String {
    let mut text = String::new();
    let off = |row: &&Row| row.judged && row.misaligned() > options.tolerance;
    let judged = report.rows.iter().filter(|row| row.judged).count() as u64;
    let _ = match report.verdict {
        Verdict::Aligned => writeln!(
            text,
            "aligned: {} of a client, server and class have the code point of the class",
            counted(judged, "row")
        ),
        Verdict::Misaligned => writeln!(
            text,
            "MISALIGNED: {} of {judged} of a client, server and class have another code point",
            counted(report.rows.iter().filter(off).count() as u64, "row")
        ),
        Verdict::Undecided if judged > 0 => writeln!(
            text,
            "?  what was read is aligned, and not all of it was read: see the remarks below the table"
        ),
        Verdict::Undecided => writeln!(
            text,
            "?  no call declares a class: capture gRPC in plain text from the connection's first packet on, or give --port or --connections"
        ),
    };
    let headings = [
        "client",
        "server",
        "class",
        "DSCP",
        "direction",
        "calls",
        "bytes",
        "elsewhere %",
        "bytes by DSCP",
    ];
    let mut table = Table::new("lllrlrrrl", &headings);
    for row in &report.rows {
        table.row(cells(row));
    }
    if !report.rows.is_empty() {
        let _ = write!(text, "\n{}", fitted(&table));
    }
    text.push_str(&remarks(report));
    text
}

fn cells(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let marked = row.marked.iter().take(4);
    let mut marked: Vec<String> = marked
        .map(|marked| format!("{}: {}", marked.dscp, marked.bytes))
        .collect();
    if row.marked.len() > marked.len() {
        marked.push("...".to_owned());
    }
    vec![
        row.client.to_string(),
        row.server.to_string(),
        row.class.clone().unwrap_or_else(dash),
        row.dscp.map_or_else(dash, |dscp| dscp.to_string()),
        match row.direction {
            Direction::Request => "request".to_owned(),
            Direction::Response => "response".to_owned(),
        },
        row.calls.to_string(),
        row.bytes.to_string(),
        match row.class {
            Some(_) => format!("{:.2}", 100.0 * row.misaligned()),
            None => dash(),
        },
        marked.join(", "),
    ]
}

fn remarks(report: &Report) -> String {
    let mut text = String::new();
    let all = &report.connections;
    let _ = writeln!(
        text,
        "\n{}, {}; {}: {} readable, {} in the table, {} without a class",
        counted(report.packets, "packet"),
        counted(report.segments, "TCP segment"),
        counted(all.seen, "connection"),
        all.readable,
        all.in_table,
        all.undeclared
    );
    if all.broken > 0 {
        let _ = writeln!(
            text,
            "The reading of {} ended early: packets are missing, or the frames are invalid.",
            counted(all.broken, "connection"),
        );
    }
    if report.unread_bytes > 0 {
        let _ = writeln!(
            text,
            "{} bytes belong to unknown calls.",
            report.unread_bytes
        );
    }
    if !report.unknown_classes.is_empty() {
        let _ = writeln!(
            text,
            "Calls name classes that are not in the settings: {}",
            report.unknown_classes.join(", ")
        );
    }
    if report.unlisted_bytes > 0 {
        let _ = writeln!(
            text,
            "{} bytes are not in the table: too many connections, or too many rows",
            report.unlisted_bytes
        );
    }
    if report.cut_off {
        text.push_str("The file ends within a packet.\n");
    }
    text
}
