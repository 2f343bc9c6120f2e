//! `isolane rdma calibrate`: the parameters of a device for Justitia and Harmonic, the fit of its calibrated parameters,
//! and its parameters from experiments.

use crate::devices::{self, VerbsTestbed};
use crate::inputs::{self, bad};
use crate::output;
use crate::status::{BadInput, Status};
use crate::target::cancel_on_signal;
use crate::text::{Table, fitted, number};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::sourced::SourceKind;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_calibrate::CalibrationError;
use isolane_study_calibrate::edit;
use isolane_study_calibrate::fit::{self, Fit};
use isolane_study_calibrate::identify::bench::Hidden;
use isolane_study_calibrate::identify::{self, Identified, Method};
use isolane_study_calibrate::oracle::{self, Oracle};
use isolane_study_calibrate::requests::{self, RequestCosts};
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::{Testbed, TestbedError};
use isolane_study_testbed_simulator::SimTestbed;
use std::path::{Path, PathBuf};

/// What the simulated targets of `--identify` begin with.
const SIMULATED: &str = "sim:";

/// Time before measuring, and measured time, of an experiment on real devices.
const ON_DEVICES: (Duration, Duration) = (Duration::from_ms(100), Duration::from_ms(500));

/// Real devices, which measure for longer than a simulator.
struct Real<'a>(&'a VerbsTestbed);

impl Testbed for Real<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        let (warmup, duration) = ON_DEVICES;
        let scenario = Scenario {
            warmup,
            duration,
            sample_interval: duration,
            ..scenario.clone()
        };
        self.0.run(&scenario, profile)
    }
}

/// Arguments of `isolane rdma calibrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of a profile, or the path of a TOML file
    #[arg(value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: String,
    /// Fit the parameters marked `calibrated` to the calibration claims instead of measuring for Justitia
    #[arg(long)]
    fit: bool,
    /// Measure what requests of each verb cost next to a WRITE, for Harmonic, instead of measuring for Justitia
    #[arg(long, conflicts_with = "fit")]
    request_costs: bool,
    /// Find the parameters of this device by experiments on it: sim:PROFILE, verbs:DEVICE,DEVICE, or with three hosts
    /// verbs:DEVICE,DEVICE,DEVICE. The search starts at the argument PROFILE, a similar device
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["fit", "request_costs"])]
    identify: Option<String>,
    /// With --fit: stop after this number of evaluations of the claims
    #[arg(long, value_name = "N", default_value_t = 200, requires = "fit")]
    evaluations: usize,
    /// Put the results into this profile file, which must exist
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut library = inputs::library();
    let profile = inputs::profile(&mut library, &arguments.profile)?;
    if let Some(file) = &arguments.write {
        inputs::read(file, &inputs::PROFILE)?;
        output::check_file(file)?;
    }
    if let Some(target) = &arguments.identify {
        if let Some(name) = target.strip_prefix(SIMULATED) {
            let device = Hidden::new(inputs::profile(&mut library, name)?, &SimTestbed);
            return run_identify(arguments, &profile, &device);
        }
        if !target.starts_with("verbs:") {
            return Err(bad(format!(
                "--identify {target}: must be sim: and a profile, like sim:cx5-100g-roce, or verbs: and devices, like \
                 verbs:mlx5_0,mlx5_1"
            )));
        }
        let devices = devices::open(target, None, cancel_on_signal, |_| {})?;
        let (needed, given) = (Method::of(&profile).hosts, devices.different_devices());
        if given < needed {
            return Err(bad(format!(
                "--identify {target}: experiments on a device like {} need {needed} hosts, each with a device of its own, and these \
                 are {given}; start from profile soft-roce for a device in software, which needs two",
                profile.name
            )));
        }
        run_identify(arguments, &profile, &Real(&devices))
    } else if arguments.fit {
        run_fit(arguments, &profile)
    } else if arguments.request_costs {
        run_request_costs(arguments, &profile)
    } else {
        run_oracle(arguments, &profile)
    }
}

fn run_oracle(arguments: &Arguments, profile: &Profile) -> Result<Status> {
    let bar = bar("{bar:30} {pos}/{len} runs, {eta} left");
    let oracle = oracle::measure(profile, &SimTestbed, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    match arguments.json {
        true => output::print_json(&oracle)?,
        false => output::show(&oracle_text(&oracle))?,
    }
    if let Some(file) = &arguments.write {
        let measured = [
            ("rate_max_gbps", oracle.rate_max_gbps),
            ("message_rate_max_mps", oracle.message_rate_max_mps),
            ("target_us", oracle.target_us),
        ];
        let mut text = inputs::read(file, &inputs::PROFILE)?;
        for (name, value) in measured {
            // A published value is the operator's choice, not ours to overwrite.
            if profile.justitia[name].kind != SourceKind::Published {
                text = edit::set_value(&text, "justitia", name, value)?;
            }
        }
        write(file, &edit::set_dictionary(&text, &oracle.token_dictionary))?;
    }
    Ok(Status::Done)
}

fn run_request_costs(arguments: &Arguments, profile: &Profile) -> Result<Status> {
    let bar = bar("{bar:30} {pos}/{len} runs, {eta} left");
    let costs = requests::measure(profile, &SimTestbed, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    match arguments.json {
        true => output::print_json(&costs)?,
        false => output::show(&costs_text(&costs, profile))?,
    }
    if let Some(file) = &arguments.write {
        let mut text = inputs::read(file, &inputs::PROFILE)?;
        for (name, value) in costs.parameters() {
            // A published value is the operator's choice, not ours to overwrite.
            if profile.harmonic[name].kind != SourceKind::Published {
                text = edit::set_value(&text, "harmonic", name, value)?;
            }
        }
        write(file, &text)?;
    }
    Ok(Status::Done)
}

fn run_identify(arguments: &Arguments, start: &Profile, device: &dyn Testbed) -> Result<Status> {
    let bar = bar("{bar:30} step {pos} of {len}, {eta} left");
    let found = identify::identify(start, device, &SimTestbed, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })
    .map_err(|error| match error {
        CalibrationError::Testbed(error) => error.into(),
        other => anyhow::Error::from(other),
    })?;
    bar.finish_and_clear();
    match arguments.json {
        true => output::print_json(&found)?,
        false => output::show(&identified_text(&found))?,
    }
    if let Some(file) = &arguments.write {
        write(
            file,
            &found.write_into(&inputs::read(file, &inputs::PROFILE)?)?,
        )?;
    }
    Ok(Status::Done)
}

fn run_fit(arguments: &Arguments, profile: &Profile) -> Result<Status> {
    let claims = isolane_study_claims::embedded_claims()?;
    let files = isolane_study_claims::embedded_scenarios();
    let bar = bar("{spinner} evaluation {pos} of at most {len}, misfit {msg}");
    bar.set_length(arguments.evaluations as u64);
    let fit = fit::fit(
        profile,
        &claims,
        &files,
        &SimTestbed,
        arguments.evaluations,
        &|done, best| {
            bar.set_position(done as u64);
            bar.set_message(format!("{best:.3}"));
        },
    )
    .map_err(|error| BadInput(error.to_string()))?;
    bar.finish_and_clear();
    match arguments.json {
        true => output::print_json(&fit)?,
        false => output::show(&fit_text(&fit))?,
    }
    if let Some(file) = &arguments.write {
        let mut text = inputs::read(file, &inputs::PROFILE)?;
        for change in &fit.parameters {
            text = edit::set_value(&text, &change.section, &change.name, change.after)?;
        }
        write(file, &text)?;
    }
    Ok(Status::Done)
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is ours");
    ProgressBar::new(1).with_style(style)
}

fn write(file: &Path, text: &str) -> Result<()> {
    output::write_file(file, text)?;
    output::note(&format!("wrote {}", file.display()));
    Ok(())
}

fn oracle_text(oracle: &Oracle) -> String {
    let mut sizes = Table::new("rr", &["message (B)", "goodput (Gb/s)"]);
    for (bytes, gbps) in &oracle.sizes {
        sizes.row(vec![bytes.to_string(), number(*gbps)]);
    }
    let mut tokens = Table::new("rr", &["up to (Gb/s)", "token (B)"]);
    for entry in &oracle.token_dictionary {
        tokens.row(vec![number(entry.rate_gbps), entry.token_bytes.to_string()]);
    }
    format!(
        "profile {}\n  bulk goodput         {} Gb/s\n  small messages       {} M/s\n  idle 10 B WRITE      p50 {} us, p99 {} us\n  \
         latency target       {} us\n\nOne pair, messages back to back\n{}\nToken dictionary\n{}",
        oracle.profile,
        number(oracle.rate_max_gbps),
        number(oracle.message_rate_max_mps),
        number(oracle.idle_p50_us),
        number(oracle.idle_p99_us),
        number(oracle.target_us),
        fitted(&sizes),
        fitted(&tokens),
    )
}

fn costs_text(costs: &RequestCosts, profile: &Profile) -> String {
    let mut verbs = Table::new("lrr", &["verb", "requests (M/s)", "cost"]);
    for one in &costs.verbs {
        verbs.row(vec![
            one.verb.to_owned(),
            number(one.rate_mps),
            number(one.cost),
        ]);
    }
    let mut parameters = Table::new("lrr", &["[harmonic]", "measured", "profile"]);
    for (name, value) in costs.parameters() {
        parameters.row(vec![
            name.to_owned(),
            number(value),
            number(profile.value("harmonic", name)),
        ]);
    }
    format!(
        "profile {}: requests of 1 B (atomics 8 B) in lists, 128 pairs; cost is the rate of WRITE over the verb's\n\n{}\n{}",
        costs.profile,
        fitted(&verbs),
        fitted(&parameters),
    )
}

fn identified_text(identified: &Identified) -> String {
    let end = |end: Option<f64>| end.map_or("-".to_owned(), number);
    let mut known = Table::new("lrrr", &["parameter", "value", "low", "high"]);
    let mut unknown = Table::new(
        "lrrrr",
        &["not told apart", "at", "low", "high", "model off"],
    );
    for found in &identified.parameters {
        let name = format!("{}.{}", found.section, found.name);
        let ends = [found.value.to_string(), end(found.low), end(found.high)];
        let mut row = vec![name];
        row.extend(ends);
        if found.known() {
            known.row(row);
        } else {
            let off = (found.modelled / found.measured - 1.0).abs() * 100.0;
            row.push(format!("{off:.1} %"));
            unknown.row(row);
        }
    }
    let mut text = format!(
        "started from profile {}; {} runs on the device, {} of the model\n\n{}",
        identified.start,
        identified.device_runs,
        identified.model_runs,
        fitted(&known),
    );
    if identified.parameters.iter().any(|found| !found.known()) {
        text += &format!(
            "\nAnother resource bounds these experiments\n{}",
            fitted(&unknown)
        );
    }
    for group in identified.together {
        text += &format!("\nnot separated: {group}");
    }
    text + "\n"
}

fn fit_text(fit: &Fit) -> String {
    let mut claims = Table::new(
        "lrrr",
        &["calibration claim", "published", "before", "after"],
    );
    for (id, published, before, after) in &fit.claims {
        claims.row(vec![
            id.clone(),
            number(*published),
            number(*before),
            number(*after),
        ]);
    }
    let mut parameters = Table::new("lrr", &["parameter", "before", "after"]);
    for change in &fit.parameters {
        parameters.row(vec![
            format!("{}.{}", change.section, change.name),
            number(change.before),
            number(change.after),
        ]);
    }
    format!(
        "profile {}: misfit {:.3} before, {:.3} after {} evaluations (root mean square of ln(ours / published))\n\n{}\n{}",
        fit.profile,
        fit.misfit.0,
        fit.misfit.1,
        fit.evaluations,
        fitted(&claims),
        fitted(&parameters),
    )
}
