//! `isolane rpc quota`: the server of tenants' quotas, and what an operator asks it.

use crate::file_kind::{FileKind, Wanted};
use crate::inputs::{self, bad};
use crate::output;
use crate::status::{BadInput, Status};
use anyhow::{Context, Result};
use isolane_common_linux::key::Key;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::line::Address;
use isolane_rpc::quota::protocol::{Answer, PoolState, Request, Terms};
use isolane_rpc::quota::server::Server;
use isolane_rpc::quota::settings::{self, bytes_per_s};
use isolane_rpc_policy::quota::rate;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::PathBuf;

/// What the help of the command ends with.
const AFTER: &str = "\
The server guarantees each tenant a rate of admitted calls in a class. The guarantees together never exceed what the \
network admits under any traffic. Clients are programs with the admission library. Guide: docs/guides/quota.md.

Exit codes:
  0  done
  1  the server rejects the request and prints the sum, or the server needs its key
  2  a mistake in the file or on the command line
  3  the server cannot be reached, or cannot listen or write";

/// Arguments of `isolane rpc quota`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Run the server until it is stopped
    Serve {
        /// Groups, classes, tenants, and where leases are stored (TOML)
        file: PathBuf,
        /// Check the file, print the largest guarantees, and end
        #[arg(long)]
        check: bool,
    },
    /// Print the largest guarantees, and the rates that each client requests and may use
    Show {
        #[command(flatten)]
        server: ServerArgument,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a tenant, or change its weight or guarantee; values that you do not give stay
    Set {
        #[command(flatten)]
        server: ServerArgument,
        /// The tenant
        tenant: String,
        /// The group of destinations
        #[arg(long)]
        group: String,
        /// The class
        #[arg(long)]
        class: String,
        /// Its weight for the rate that no guarantee uses (1 for a new tenant)
        #[arg(long, value_parser = crate::numbers::whole::<u32>(1..=1_000_000))]
        weight: Option<u32>,
        /// Rate that is available to it at any time, like 2Gb/s (none for a new tenant)
        #[arg(long, value_name = "RATE")]
        guarantee: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ServerArgument {
    /// Where the server listens: an address and a port, or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7480")]
    server: String,
    /// File with the server's key: the key_file of its settings
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl ServerArgument {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let server: Address = self
            .server
            .parse()
            .map_err(|error| BadInput(format!("--server {}: {error}", self.server)))?;
        match ask_once(&server, self.key_file.as_deref(), request) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                Err(bad(format!("--key-file: {error}")))
            }
            answer => answer.with_context(|| {
                format!("no answer from the quota server at {server} (start one there with `isolane rpc quota serve FILE`)")
            }),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.what {
        What::Serve { file, check } => serve(file, *check),
        What::Show { server, json } => show(server, *json),
        What::Set {
            server,
            tenant,
            group,
            class,
            weight,
            guarantee,
            json,
        } => {
            let guarantee = match guarantee {
                None => None,
                Some(text) => Some(
                    isolane_common_toml_input::quantity::rate(text)
                        .map_err(|reason| BadInput(format!("--guarantee {text}: {reason}")))?,
                ),
            };
            let mut terms = Terms {
                tenant: tenant.clone(),
                group: group.clone(),
                class: class.clone(),
                weight: 1,
                guarantee_bytes_per_s: 0,
            };
            if (weight.is_none() || guarantee.is_none())
                && let Some((weight, guarantee)) = known(server, &terms)?
            {
                (terms.weight, terms.guarantee_bytes_per_s) = (weight, guarantee);
            }
            terms.weight = weight.unwrap_or(terms.weight);
            terms.guarantee_bytes_per_s =
                guarantee.map_or(terms.guarantee_bytes_per_s, bytes_per_s);
            set(server, terms, *json)
        }
    }
}

/// What `serve` takes.
const QUOTA: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Quota),
    words: "the settings of a quota server (TOML with [[class]] and [[group]], docs/guides/quota.md)",
};

fn serve(file: &std::path::Path, check: bool) -> Result<Status> {
    let text = inputs::read(file, &QUOTA)?;
    let settings = settings::parse(&file.to_string_lossy(), &text)?;
    let mut bounds = String::new();
    for (group, class, bound) in &settings.pools {
        writeln!(bounds, "{group}/{class}: at most {bound}")?;
    }
    if let Some(key_file) = &settings.key_file {
        Key::read(key_file).map_err(|error| bad(format!("{}: {error}", file.display())))?;
    }
    if check {
        settings::check(&settings).map_err(|error| bad(format!("{}: {error}", file.display())))?;
        output::print(&bounds)?;
        return Ok(Status::Done);
    }
    let server = match Server::open(&settings) {
        Ok(server) => server,
        Err(error) => {
            output::note(&format!("isolane rpc quota: {error}"));
            return Ok(Status::Machine);
        }
    };
    output::print(&bounds)?;
    output::print(&format!("listening on {}\n", server.address()))?;
    server.serve(output::note);
    Ok(Status::Machine)
}

fn show(server: &ServerArgument, json: bool) -> Result<Status> {
    match server.ask(&Request::Show)? {
        Answer::Pools(pools) if json => output::print_json(&pools)?,
        Answer::Pools(pools) => output::show(&table(&pools))?,
        answer => return refused(&answer),
    }
    Ok(Status::Done)
}

/// Weight and guarantee that a tenant has already.
fn known(server: &ServerArgument, terms: &Terms) -> Result<Option<(u32, u64)>> {
    let Answer::Pools(pools) = server.ask(&Request::Show)? else {
        // What is wrong shows with the change itself.
        return Ok(None);
    };
    let pool = pools
        .iter()
        .find(|pool| pool.group == terms.group && pool.class == terms.class);
    let tenant = pool.and_then(|pool| {
        pool.tenants
            .iter()
            .find(|tenant| tenant.tenant == terms.tenant)
    });
    Ok(tenant.map(|tenant| (tenant.weight, tenant.guarantee_bytes_per_s)))
}

fn set(server: &ServerArgument, terms: Terms, json: bool) -> Result<Status> {
    let answer = server.ask(&Request::Set(terms.clone()))?;
    if answer != Answer::Done {
        return refused(&answer);
    }
    if json {
        output::print_json(&terms)?;
    } else {
        let line = format!(
            "{}: {}/{} weight {}, guarantee {}\n",
            terms.tenant,
            terms.group,
            terms.class,
            terms.weight,
            rate(terms.guarantee_bytes_per_s)
        );
        output::print(&line)?;
    }
    Ok(Status::Done)
}

fn refused(answer: &Answer) -> Result<Status> {
    let reason = match answer {
        Answer::Error(reason) => reason.as_str(),
        _ => "an answer to another question",
    };
    output::note(&format!("isolane rpc quota: {reason}"));
    Ok(Status::No)
}

fn table(pools: &[PoolState]) -> String {
    let mut text = String::new();
    for pool in pools {
        let leased = rate(pool.leased_bytes_per_s);
        let line = format!(
            "{}/{}: leased {leased} of {}\n",
            pool.group, pool.class, pool.arithmetic
        );
        text.push_str(&line);
        if pool.tenants.is_empty() {
            text.push_str("  no tenants\n");
            continue;
        }
        let head = [
            "tenant",
            "weight",
            "guarantee",
            "clients",
            "demand",
            "fair rate",
            "leased",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(pool.tenants.iter().map(|tenant| {
            [
                tenant.tenant.clone(),
                tenant.weight.to_string(),
                rate(tenant.guarantee_bytes_per_s),
                tenant.clients.to_string(),
                rate(tenant.demand_bytes_per_s),
                rate(tenant.target_bytes_per_s),
                rate(tenant.leased_bytes_per_s),
            ]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate();
            let cells: Vec<String> = cells
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(&format!("  {}\n", cells.join("  ")));
        }
    }
    text
}
