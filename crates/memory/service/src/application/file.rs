//! An application as a TOML file: `isolane mem submit app.toml`.
//!
//! Method: keys are read one by one, so an error has file, line, key, value and what is allowed. Then
//! [`Application::check`] checks the application as it does any other. Units: in the values themselves (`"160ns"`,
//! `"40GB/s"`, `"20GiB"`, `"25%"`).

use super::amounts::{self, Amount};
use super::{Application, ApplicationError, Cap, Floors, Profile, Slo, WEIGHT};
use crate::application::pod::Place;
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::table::{Source, Table};
use isolane_memory_policy::mercury::{CPU_ONE, TIERS_MAX};

/// A file, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The application.
    pub application: Application,
    /// Where its processes are.
    pub place: Place,
    /// What starts it, where it does not run yet.
    pub command: Vec<String>,
}

#[rustfmt::skip]
const TOP: &[Key] = &[
    required("name", Kind::Text, "unique name on this machine"),
    required("type", Kind::Choice(&["ls", "bi", "best-effort"]), "latency-sensitive, bandwidth-intensive, or without an objective"),
    key("slo_latency", Kind::Text, "with type ls: mean latency of memory accesses, at most"),
    key("slo_bandwidth", Kind::Text, "with type bi: memory bandwidth, at least"),
    required("priority", Kind::Count { min: 0, max: super::PRIORITY_MAX as u64 }, "unique; larger is more important"),
    key("weight", Kind::Count { min: 1, max: super::WEIGHT_MAX as u64 }, "its part of what is shared without strictness (1000)"),
    key("memory", Kind::size(super::MEMORY_MIN, super::MEMORY_MAX), "the memory it uses at most, over all tiers"),
    key("memory_low", Kind::size(0, super::MEMORY_MAX), "memory that the kernel leaves to it while other memory can be freed"),
    key("memory_min", Kind::size(0, super::MEMORY_MAX), "memory that the kernel always leaves to it"),
    key("max", Kind::Table, "the most it may hold of tiers, set by hand"),
    key("far_tiers", Kind::Text, "tiers its far pages may use, nearest first, like [1]"),
    key("measured", Kind::Table, "what isolane mem measure found"),
    key("cgroup", Kind::Text, "where it runs already: a cgroup's path, beginning with /"),
    key("pod", Kind::Text, "where it runs already: UID of a pod"),
    key("container", Kind::Text, "where it runs already: identifier of a container"),
    key("command", Kind::Commands, "what starts it: a list of program and arguments"),
];

const MAX: &[Key] = &[
    key(
        "local",
        Kind::Text,
        "of the nearest tier: a size, or a percentage of memory",
    ),
    key("tier1", Kind::Text, "of the first far tier"),
    key("tier2", Kind::Text, "of the second far tier"),
    key("tier3", Kind::Text, "of the third far tier"),
];

#[rustfmt::skip]
const PROFILE: &[Key] = &[
    key("admissible", Kind::Flag, "whether the objective can be kept at all (true)"),
    required("local", Kind::size(0, super::MEMORY_MAX), "near memory that just keeps the objective"),
    key("cpu", Kind::Text, "processor time that just keeps it, like \"64%\" (100%)"),
    key("bandwidth", Kind::Text, "bandwidth at that point, like \"30GB/s\""),
    key("best", Kind::Text, "latency or bandwidth without any limit"),
];

/// The file written in `text`; `file` names it in messages. The error is the first mistake, with file, line, key, value
/// and remedy.
///
/// ```
/// let text = r#"
/// name = "redis"
/// type = "ls"
/// slo_latency = "160ns"
/// priority = 3
/// command = ["redis-server", "--port", "7777"]
/// "#;
/// let file = isolane_memory_service::application::parse(text, "app.toml")?;
/// assert_eq!(file.application.slo.kind(), "ls");
/// # Ok::<(), isolane_common_toml_input::error::InputError>(())
/// ```
pub fn parse(text: &str, file: &str) -> Result<File, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let table = Table::open(source, tree.get_ref(), 0, TOP, None)?;
    let name = table
        .text("name")?
        .expect("opening checked that it is there");
    let profile = match table.table("measured", PROFILE)? {
        None => None,
        Some(profile) => Some(self::profile(&profile)?),
    };
    let application = Application {
        name: name.to_owned(),
        slo: slo(&table)?,
        priority: table.count32("priority")?.expect("as above"),
        weight: table.count32("weight")?.unwrap_or(WEIGHT),
        memory_bytes: table.size("memory")?.map(|bytes| bytes.get()),
        caps: caps(&table)?,
        far_tiers: far_tiers(&table)?,
        floors: Floors {
            low_bytes: table.size("memory_low")?.map_or(0, |bytes| bytes.get()),
            min_bytes: table.size("memory_min")?.map_or(0, |bytes| bytes.get()),
        },
        profile,
    };
    application.check().map_err(|error| at(&table, error))?;
    let (place, command) = place(&table)?;
    let floors = [
        ("memory_low", application.floors.low_bytes),
        ("memory_min", application.floors.min_bytes),
    ];
    if place != Place::Caller
        && let Some((key, _)) = floors.into_iter().find(|(_, bytes)| *bytes > 0)
    {
        let expected = "needs a cgroup that the service makes: write command in place of the cgroup, pod or container, or leave the floor out";
        return Err(table.wrong(key, expected));
    }
    Ok(File {
        application,
        place,
        command,
    })
}

/// The place of a mistake that the rules found.
fn at(table: &Table<'_>, error: ApplicationError) -> InputError {
    let key = match error.key {
        "slo" if table.has("slo_latency") => "slo_latency",
        "slo" => "slo_bandwidth",
        "caps" => "max",
        "memory-low" => "memory_low",
        "memory-min" => "memory_min",
        "measured.cpu" | "measured.local" => "measured",
        key => key,
    };
    let problem = Problem::Value {
        key: key.to_owned(),
        value: error.value,
        expected: error.expected,
    };
    table.error_at(key, problem)
}

fn slo(table: &Table<'_>) -> Result<Slo, InputError> {
    let kind = table
        .text("type")?
        .expect("opening checked that it is there");
    // Reports what is not in the list, with the nearest that is.
    let _: Option<String> = table.choice("type")?;
    let (wanted, other) = match kind {
        "ls" => (Some("slo_latency"), "slo_bandwidth"),
        "bi" => (Some("slo_bandwidth"), "slo_latency"),
        _ => (
            None,
            if table.has("slo_latency") {
                "slo_latency"
            } else {
                "slo_bandwidth"
            },
        ),
    };
    if table.has(other) {
        let expected = match wanted {
            Some(wanted) => {
                format!("does not go with type = {kind:?}: write {wanted}, or change the type")
            }
            None => "type = \"best-effort\" has no objective: leave it out, or change the type"
                .to_owned(),
        };
        return Err(table.wrong(other, expected));
    }
    let Some(wanted) = wanted else {
        return Ok(Slo::BestEffort);
    };
    let Some(text) = table.text(wanted)? else {
        let form = match kind {
            "ls" => "type = \"ls\" needs a latency, like \"160ns\"",
            _ => "type = \"bi\" needs a bandwidth, like \"40GB/s\"",
        };
        return Err(table.missing(wanted, form));
    };
    let slo = match kind {
        "ls" => amounts::latency(text).map(Slo::LatencyPs),
        _ => amounts::bandwidth(text).map(Slo::BandwidthBytesPerS),
    };
    slo.map_err(|reason| table.wrong(wanted, reason))
}

fn caps(table: &Table<'_>) -> Result<Vec<Cap>, InputError> {
    let Some(max) = table.table("max", MAX)? else {
        return Ok(Vec::new());
    };
    let mut caps = Vec::new();
    for (tier, key) in MAX.iter().enumerate() {
        if let Some(most) = amount(&max, key.name)? {
            let tier = u8::try_from(tier).expect("there are few tiers");
            caps.push(Cap { tier, most });
        }
    }
    Ok(caps)
}

fn amount(table: &Table<'_>, key: &str) -> Result<Option<Amount>, InputError> {
    let text = table.text(key)?;
    text.map(|text| amounts::amount(text).map_err(|reason| table.wrong(key, reason)))
        .transpose()
}

fn far_tiers(table: &Table<'_>) -> Result<Vec<u8>, InputError> {
    let Some(value) = table.raw("far_tiers") else {
        return Ok(Vec::new());
    };
    let last = TIERS_MAX - 1;
    let form = || {
        table.wrong(
            "far_tiers",
            format!("must be a list of numbers, 1 to {last}, like [1]"),
        )
    };
    let list = value.get_ref().as_array().ok_or_else(form)?;
    let tier = |text: &str| {
        text.parse::<u8>()
            .ok()
            .filter(|tier| (1..=last).contains(&usize::from(*tier)))
    };
    list.iter()
        .map(|item| {
            let number = item
                .get_ref()
                .as_integer()
                .filter(|number| number.radix() == 10);
            number
                .and_then(|number| tier(number.as_str()))
                .ok_or_else(form)
        })
        .collect()
}

fn profile(table: &Table<'_>) -> Result<Profile, InputError> {
    let text = |key: &str, read: &dyn Fn(&str) -> Result<u64, String>| {
        let text = table.text(key)?;
        text.map(|text| read(text).map_err(|reason| table.wrong(key, reason)))
            .transpose()
    };
    let cpu = text("cpu", &|text| {
        amounts::share(text).map(|share| u64::from(share / 1_000))
    })?;
    let best = match table.text("best")? {
        None => Slo::BestEffort,
        Some(text) => {
            let latency = amounts::latency(text).map(Slo::LatencyPs);
            let bandwidth = || amounts::bandwidth(text).map(Slo::BandwidthBytesPerS);
            latency.or_else(|_| bandwidth()).map_err(|_| {
                table.wrong(
                    "best",
                    "must be a latency or a bandwidth, like \"120ns\" or \"80GB/s\"",
                )
            })?
        }
    };
    Ok(Profile {
        admissible: table.flag("admissible")?.unwrap_or(true),
        local_bytes: table.size("local")?.map_or(0, |bytes| bytes.get()),
        cpu_per_mille: cpu.map_or(CPU_ONE, |cpu| u32::try_from(cpu).unwrap_or(CPU_ONE)),
        bandwidth_bytes_per_s: text("bandwidth", &amounts::bandwidth)?.unwrap_or(0),
        best,
    })
}

fn place(table: &Table<'_>) -> Result<(Place, Vec<String>), InputError> {
    let keys = ["cgroup", "pod", "container", "command"];
    let mut given = keys.into_iter().filter(|key| table.has(key));
    let (first, second) = (given.next(), given.next());
    if let Some(second) = second {
        let first = first.expect("it comes before the second");
        let expected =
            format!("{first} says already where the application is: leave one of the two out");
        return Err(table.wrong(second, expected));
    }
    if first == Some("command") {
        let words: Vec<String> = table
            .commands("command")?
            .into_iter()
            .map(|(_, word)| word.to_owned())
            .collect();
        if words.len() == 1 && words[0].contains(char::is_whitespace) {
            let expected = "must be a list of program and arguments, like [\"redis-server\", \"--port\", \"7777\"]";
            return Err(table.wrong("command", expected));
        }
        return Ok((Place::Caller, words));
    }
    let Some(key) = first else {
        return Ok((Place::Caller, Vec::new()));
    };
    let text = table.text(key)?.expect("it is there").to_owned();
    let place = match key {
        "cgroup" => Place::Cgroup(text),
        "pod" => Place::Pod(text),
        _ => Place::Container(text),
    };
    place.check().map_err(|error| at(table, error))?;
    Ok((place, Vec::new()))
}
