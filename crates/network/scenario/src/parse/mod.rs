//! A network's TOML to a checked [`FabricScenario`].
//!
//! `docs/reference/fabric-scenario.md` describes the format. What comes out is valid by construction: models never
//! check again. A mistake that is one of arithmetic (shares, loads, objectives, sizes of networks) says the sum.
//!
//! * [`lists`] - hosts, pairs, shares, sizes; [`network`] - topology, ports, classes;
//! * [`named`] - transport and policy with their parameters; [`groups`] - the callers;
//! * [`limits`] - what no policy can repair: overloaded links, objectives below the wire time;
//! * [`behind`] - the same tables below `[network]` of a scenario of RDMA hosts;
//! * [`settings`] - values of the command line in place of the text's.

pub mod behind;
mod groups;
mod limits;
mod lists;
mod named;
mod network;
mod settings;
#[cfg(test)]
mod tests;

use super::keys::TOP;
use super::model::FabricScenario;
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::name::scenario_name;
use isolane_common_toml_input::table::{Source, Table};
use settings::Settings;

const WARMUP: Duration = Duration::from_ms(2);
const DURATION: Duration = Duration::from_ms(20);
const SEED: u64 = 1;
/// Points of a time series at most, so that a result stays a file that a page can draw.
const POINTS_MAX: u64 = 100_000;

/// What the caller wants other than the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricOverrides {
    /// Another policy; the text's parameters are kept only if the text names the same policy.
    pub policy: Option<String>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Another measured time.
    pub duration: Option<Duration>,
    /// Keys and values: `target_us` of policy or transport, or a path (`traffic.all.load`, `ports.buffer`).
    pub settings: Vec<(String, String)>,
}

/// The network's scenario written in `text`; `file` names it in messages. The error is the first mistake of the text,
/// with file, line, key, value, and the remedy.
pub fn parse(text: &str, file: &str) -> Result<FabricScenario, InputError> {
    parse_with(text, file, &FabricOverrides::default())
}

/// As [`parse`], with some values replaced by the caller's. Fails as [`parse`] does, and for a setting that names no
/// key.
pub fn parse_with(
    text: &str,
    file: &str,
    overrides: &FabricOverrides,
) -> Result<FabricScenario, InputError> {
    let mut tree = Source { file, text }.tree()?;
    let settings = Settings::new(text, file, overrides);
    settings.apply(tree.get_mut())?;
    let source = Source {
        file,
        text: settings.text(),
    };
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)
        .map_err(|error| rdma_keys(error, file))
        .and_then(|top| read(&top, file));
    top.map_err(|error| settings.located(error))
}

/// A key of the other format in a network's file: says that a file is one or the other.
fn rdma_keys(mut error: InputError, file: &str) -> InputError {
    if let Problem::UnknownKey { key, .. } = &*error.problem
        && matches!(key.as_str(), "profile" | "tenant" | "topology")
    {
        let problem = format!(
            "{key} belongs to a scenario of RDMA hosts, and {file} describes a network because it has [fabric]: drop one \
             of them"
        );
        error.problem = Box::new(Problem::Promise { problem });
    }
    error
}

fn read(top: &Table<'_>, file: &str) -> Result<FabricScenario, InputError> {
    let name = scenario_name(top, file)?;
    let warmup = top.duration("warmup")?.unwrap_or(WARMUP);
    let duration = top.duration("duration")?.unwrap_or(DURATION);
    let topology = network::topology(top)?;
    let ports = network::ports(top)?;
    let policy = named::policy(top)?;
    let classes = network::classes(top, policy.kind, &ports)?;
    let transport = named::transport(top, &ports)?;
    let traffic = groups::read(top, &topology, &classes, warmup + duration)?;
    let scenario = FabricScenario {
        name,
        description: top.text("description")?.unwrap_or("").trim().to_owned(),
        topology,
        ports,
        classes,
        transport,
        policy,
        traffic,
        warmup,
        duration,
        calls: top.count("calls")?,
        drain: top.duration("drain")?.unwrap_or(duration),
        seed: top.count("seed")?.unwrap_or(SEED),
        sample_interval: sample_interval(top, warmup + duration)?,
        per_pair: top.flag("per_pair")?.unwrap_or(false),
    };
    limits::loads(top, &scenario)?;
    limits::objectives(top, &scenario)?;
    Ok(scenario)
}

fn sample_interval(top: &Table<'_>, run: Duration) -> Result<Option<Duration>, InputError> {
    let Some(interval) = top.duration("sample_interval")? else {
        return Ok(None);
    };
    let points = run.as_ps() / interval.as_ps();
    if points > POINTS_MAX {
        let expected = format!(
            "makes {run} / {interval} = {points} points: must make {POINTS_MAX} at most, so at least {}",
            Duration::from_ps(run.as_ps().div_ceil(POINTS_MAX))
        );
        return Err(top.wrong("sample_interval", expected));
    }
    Ok(Some(interval))
}
