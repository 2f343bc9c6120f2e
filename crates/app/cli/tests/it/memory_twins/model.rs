//! A story on the simulator.

use super::{App, Change, Machine, Measured, Reported, Slo, Story};
use isolane_memory_scenario::parse::MemOverrides;
use isolane_memory_simulator::run;
use isolane_study_results::memory::MemResult;

/// The machine of the scenarios that have one, and of the files.
pub(crate) const MACHINE: &str = "xeon-6330";

/// The simulator, under Mercury.
pub(crate) struct Model;

impl Machine for Model {
    fn name(&self) -> &'static str {
        "the model"
    }

    /// Two periods of 200 ms.
    fn answers_within_s(&self) -> f64 {
        0.45
    }

    fn play(&self, story: &Story) -> Reported {
        under("mercury", story)
    }
}

/// The simulator's kind of an application.
pub(crate) fn kind(app: &App) -> &'static str {
    match app.slo {
        Slo::LatencyNs(_) => "redis",
        Slo::GbPerS(_) => "llama",
    }
}

/// A story under another policy.
pub(crate) fn under(policy: &str, story: &Story) -> Reported {
    let result = result(policy, story);
    let verdict = |app: &isolane_study_results::memory::MemAppResult| {
        (app.name.clone(), app.verdict.clone().unwrap_or_default())
    };
    let changes = result.changes.iter().map(|change| Change {
        at_s: change.at_s,
        app: change.app.clone(),
        near_limit: change.local_limit_bytes,
        cpu_share: change.cpu_share,
        reason: change.reason.clone(),
    });
    let points = result.series.iter().map(|point| {
        let apps = point.apps.iter().map(|(name, app)| {
            let measured = Measured {
                latency_ns: app.latency_ns,
                gb_per_s: app.bandwidth_gb_per_s,
            };
            (name.clone(), measured)
        });
        (point.at_s, apps.collect())
    });
    Reported {
        verdicts: result.apps.iter().map(verdict).collect(),
        changes: changes.collect(),
        points: points.collect(),
    }
}

/// What the simulator says of a story.
pub(crate) fn result(policy: &str, story: &Story) -> MemResult {
    let mut text = format!(
        "warmup = \"0s\"\nduration = \"{}s\"\nsample_interval = \"1s\"\n[memory]\nmachine = \"{MACHINE}\"\nlocal = \"{}GB\"\n",
        story.seconds, story.near_gb
    );
    for app in &story.apps {
        let slo = match app.slo {
            Slo::LatencyNs(ns) => format!("slo_latency = \"{ns}ns\""),
            Slo::GbPerS(gb) => format!("slo_bandwidth = \"{gb}GB/s\""),
        };
        text += &format!(
            "[[app]]\nname = \"{}\"\nkind = \"{}\"\nworking_set = \"{}GB\"\ncores = {}\npriority = {}\n{slo}\n\
             start = \"{}s\"\nactivity = {}\n",
            app.name,
            kind(app),
            app.gb,
            app.cores,
            app.priority,
            app.start_s,
            app.busy.0
        );
        if app.surge_s > 0 {
            text += &format!(
                "[[app.change]]\nat = \"{}s\"\nactivity = {}\n",
                app.surge_s, app.busy.1
            );
        }
    }
    let overrides = MemOverrides {
        policy: Some(policy.to_owned()),
        ..MemOverrides::default()
    };
    run(&overrides.parse(&text, "story.toml").unwrap())
}
