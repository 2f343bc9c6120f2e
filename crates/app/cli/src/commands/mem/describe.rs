//! An application as options of the command line.

use crate::file_kind::{FileKind, Wanted};
use crate::inputs::bad;
use anyhow::Result;
use isolane_memory_policy::mercury::TIERS_MAX;
use isolane_memory_service::application::amounts::{self, Amount};
use isolane_memory_service::application::{
    self, Application, Cap, Floors, PRIORITY_MAX, Slo, WEIGHT,
};
use isolane_memory_service::profile::application::AppProfile;
use std::path::PathBuf;

/// What an application is.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Its name on this machine; by default the program's
    #[arg(long)]
    name: Option<String>,
    /// What it is: ls (sensitive to latency), bi (intensive in bandwidth) or best-effort
    #[arg(long = "type", value_name = "TYPE", value_parser = ["ls", "bi", "best-effort"])]
    kind: Option<String>,
    /// Mean latency of its memory accesses, at most, like 160ns
    #[arg(long, value_name = "TIME", value_parser = amounts::latency, allow_hyphen_values = true, conflicts_with = "slo_bandwidth")]
    slo_latency: Option<u64>,
    /// Its memory bandwidth, at least, like 40GB/s
    #[arg(long, value_name = "RATE", value_parser = amounts::bandwidth, allow_hyphen_values = true)]
    slo_bandwidth: Option<u64>,
    /// Larger is more important; unique on a machine
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = priority)]
    priority: Option<u32>,
    /// Its weight under the policy `weighted`; 1000 is usual
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// The memory that it uses at most, over all tiers, like 20GiB
    #[arg(long, value_name = "SIZE", value_parser = amounts::size)]
    memory: Option<u64>,
    /// Memory that the kernel leaves to it while other memory can be freed, like 2GiB
    #[arg(long, value_name = "SIZE", value_parser = amounts::size)]
    memory_low: Option<u64>,
    /// Memory that the kernel always leaves to it, like 1GiB
    #[arg(long, value_name = "SIZE", value_parser = amounts::size)]
    memory_min: Option<u64>,
    /// Maximum of its memory in the nearest tier, a size or a percentage of its memory
    #[arg(long, value_name = "AMOUNT", value_parser = amounts::amount)]
    local_max: Option<Amount>,
    /// The most of another tier, like 1=8GiB; may be repeated
    #[arg(long, value_name = "TIER=AMOUNT", value_parser = tier_max)]
    tier_max: Vec<Cap>,
    /// Tiers that its far pages may use, nearest first, like 1,2
    #[arg(long, value_name = "TIERS", value_delimiter = ',', value_parser = far_tier)]
    far_tiers: Vec<u8>,
    /// What `isolane mem measure` found: its file
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
}

/// A priority. The option accepts texts with a minus, so the error for them names the range.
fn priority(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok();
    number
        .filter(|priority| *priority <= PRIORITY_MAX)
        .ok_or_else(|| format!("must be 0 to {PRIORITY_MAX}; larger is more important"))
}

fn far_tier(text: &str) -> Result<u8, String> {
    let last = TIERS_MAX - 1;
    let tier = text.trim().parse().ok();
    tier.filter(|tier| (1..=last).contains(&usize::from(*tier)))
        .ok_or_else(|| format!("must be numbers of far tiers, 1 to {last}, with commas, like 1,2"))
}

fn tier_max(text: &str) -> Result<Cap, String> {
    let form = "must be a tier and an amount, like 1=8GiB or 1=25%";
    let (tier, most) = text.split_once('=').ok_or(form)?;
    let tier = tier.trim().parse().map_err(|_| form)?;
    let most = amounts::amount(most)?;
    Ok(Cap { tier, most })
}

impl Options {
    /// Whether anything is described.
    pub(super) fn is_given(&self) -> bool {
        self.kind.is_some()
            || self.name.is_some()
            || self.slo_latency.is_some()
            || self.slo_bandwidth.is_some()
            || self.priority.is_some()
            || self.weight.is_some()
            || self.memory.is_some()
            || self.memory_low.is_some()
            || self.memory_min.is_some()
            || self.local_max.is_some()
            || self.measured.is_some()
            || !(self.tier_max.is_empty() && self.far_tiers.is_empty())
    }

    /// The application for a measurement, which runs it alone: nothing limits it and nothing competes with it.
    pub(super) fn described(&self, program: &str) -> Result<Application> {
        let without_effect = [
            ("--priority", self.priority.is_some()),
            ("--weight", self.weight.is_some()),
            ("--memory", self.memory.is_some()),
            ("--memory-low", self.memory_low.is_some()),
            ("--memory-min", self.memory_min.is_some()),
            ("--local-max", self.local_max.is_some()),
            ("--tier-max", !self.tier_max.is_empty()),
            ("--far-tiers", !self.far_tiers.is_empty()),
            ("--measured", self.measured.is_some()),
        ];
        if let Some((option, _)) = without_effect.iter().find(|(_, given)| *given) {
            return Err(bad(format!(
                "{option} has no effect on a measurement, which runs the command alone; leave it out"
            )));
        }
        self.checked(program, 0)
    }

    /// The application, held to the rules; `program` names it where nothing else does.
    pub(super) fn application(&self, program: &str) -> Result<Application> {
        let missing = "--priority is missing before the command: a number, larger is more important, unique on a machine";
        self.checked(program, self.priority.ok_or_else(|| bad(missing))?)
    }

    fn checked(&self, program: &str, priority: u32) -> Result<Application> {
        let mut caps = self.tier_max.clone();
        caps.extend(self.local_max.map(|most| Cap { tier: 0, most }));
        let application = Application {
            name: self.name.clone().unwrap_or_else(|| program.to_owned()),
            slo: self.slo()?,
            priority,
            weight: self.weight.unwrap_or(WEIGHT),
            memory_bytes: self.memory,
            caps,
            far_tiers: self.far_tiers.clone(),
            floors: Floors {
                low_bytes: self.memory_low.unwrap_or(0),
                min_bytes: self.memory_min.unwrap_or(0),
            },
            profile: match &self.measured {
                None => None,
                Some(file) => Some(profile(file)?),
            },
        };
        application
            .check()
            .map_err(|error| bad(option_of(&error, self.slo_latency.is_some())))?;
        Ok(application)
    }

    fn slo(&self) -> Result<Slo> {
        let slo = match (self.kind.as_deref(), self.slo_latency, self.slo_bandwidth) {
            (Some("ls") | None, Some(ps), None) => Slo::LatencyPs(ps),
            (Some("bi") | None, None, Some(rate)) => Slo::BandwidthBytesPerS(rate),
            (Some("best-effort"), None, None) => Slo::BestEffort,
            (Some("ls"), ..) => return Err(bad("--type ls needs --slo-latency, like 160ns")),
            (Some("bi"), ..) => return Err(bad("--type bi needs --slo-bandwidth, like 40GB/s")),
            (None, ..) => {
                return Err(bad(
                    "an objective is missing: give --slo-latency 160ns, --slo-bandwidth 40GB/s, or --type best-effort",
                ));
            }
            (Some(kind), ..) => {
                return Err(bad(format!(
                    "--type {kind} has no objective: leave --slo-latency and --slo-bandwidth out"
                )));
            }
        };
        Ok(slo)
    }
}

/// The option that a rule of applications is about.
fn option_of(error: &application::ApplicationError, is_latency: bool) -> String {
    let option = match error.key {
        "caps" => "--local-max or --tier-max",
        "far_tiers" => "--far-tiers",
        "slo" if is_latency => "--slo-latency",
        "slo" => "--slo-bandwidth",
        "measured.cpu" | "measured.local" => "--measured",
        key => return format!("--{key} {}: {}", error.value, error.expected),
    };
    format!("{option} {}: {}", error.value, error.expected)
}

/// What `--measured` takes.
const MEASURED: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Json | FileKind::RunResult),
    words: "the profile of an application (JSON that `isolane mem measure` writes)",
};

/// What profiling found, from its file.
fn profile(file: &std::path::Path) -> Result<application::Profile> {
    let text = crate::inputs::read(file, &MEASURED)?;
    let found: AppProfile = serde_json::from_str(&text).map_err(|error| {
        bad(format!(
            "{}: is no profile of an application ({error}); isolane mem measure writes one",
            file.display()
        ))
    })?;
    Ok(application::Profile::of(&found.profile()))
}
