//! Aequitas: delay bounds of weighted fair queueing, and what admission control does with one call.

use super::{Model, model, whole};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions};
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::fluid::{Port, fair_rates};
use isolane_rpc_policy::queueing::region::{Line, guaranteed_share};
use isolane_rpc_policy::queueing::two_class::{TwoClasses, high_delay_of_infinite_weight};

pub(super) const MODELS: &[Model] = &[
    // Worst delay of the high one of two classes by the exact fluid solution, periods.
    model("high_delay", &["phi", "rho", "mu", "share"], |given| {
        exact(given).map(|delays| delays[0])
    }),
    // Worst delay of the low one of two classes by the exact fluid solution, periods.
    model("low_delay", &["phi", "rho", "mu", "share"], |given| {
        exact(given).map(|delays| delays[1])
    }),
    // The same of the high class by the closed form 3.1, periods.
    model(
        "high_delay_closed",
        &["phi", "rho", "mu", "share"],
        |given| Ok(two(given)?.high_delay(given[3])),
    ),
    // The same of the low class by the closed form B.4, periods.
    model(
        "low_delay_closed",
        &["phi", "rho", "mu", "share"],
        |given| Ok(two(given)?.low_delay(given[3])),
    ),
    // Worst delay of the high class as its weight grows without bound, equation 3.4, periods.
    model(
        "high_delay_infinite_weight",
        &["rho", "mu", "share"],
        |given| {
            let arrivals = arrivals(given[1], given[0])?;
            Ok(high_delay_of_infinite_weight(arrivals, given[2]))
        },
    ),
    // Share of the high one of two classes at which the admissible region ends, found by scanning the exact solution.
    model("inversion_share", &["phi", "rho", "mu"], |given| {
        let port = port(&[given[0], 1.0], given[2], given[1])?;
        region_end(port, &[0.0, 1.0])
    }),
    // The same for three classes with these weights, the lower two at 2:1.
    model(
        "inversion_share_of_three",
        &["high", "middle", "low", "rho", "mu"],
        |given| {
            let port = port(&given[..3], given[4], given[3])?;
            region_end(port, &[0.0, 2.0, 1.0])
        },
    ),
    // Worst delay of class 1, 2 or 3 of three with these weights by the exact fluid solution, the lower two at 2:1,
    // periods.
    model(
        "delay_of_three",
        &["class", "high", "middle", "low", "rho", "mu", "share"],
        |given| {
            let port = port(&given[1..4], given[5], given[4])?;
            let rest = 1.0 - given[6];
            let shares = [given[6], rest * 2.0 / 3.0, rest / 3.0];
            let delays = port.delays(&shares).map_err(|error| error.to_string())?;
            let class = whole("class", given[0])? as usize;
            let delay = delays.get(class - 1).copied();
            delay.ok_or_else(|| format!("class = {class}: must be 1, 2 or 3"))
        },
    ),
    // What the high one of two classes is admitted at least, line rates.
    model("guaranteed_line_rates", &["phi", "rho", "mu"], |given| {
        let port = port(&[given[0], 1.0], given[2], given[1])?;
        Ok(guaranteed_share(&port, 0))
    }),
    // How fast the low class's queue grows while both arrive at these rates, Gb/s.
    model(
        "low_queue_growth_gbps",
        &["phi", "high_gbps", "low_gbps", "line_gbps"],
        |given| {
            let demands = [given[1] / given[3], given[2] / given[3]];
            let rates = fair_rates(&[given[0], 1.0], &demands);
            Ok((demands[1] - rates[1]) * given[3])
        },
    ),
    // Time between two increases of the admit probability, microseconds.
    model(
        "increment_window_us",
        &["target_us", "percentile"],
        |given| Ok(options(given[0], given[1])?.increment_window().as_us_f64()),
    ),
    // Admit probability of a new destination after so many misses of calls of so many MTUs.
    model("probability_after_misses", &["misses", "mtus"], |given| {
        let options = options(15.0, 99.9)?;
        let mut state = AdmitState::new(Instant::ZERO);
        let mtus = whole("mtus", given[1])? as u32;
        for _ in 0..whole("misses", given[0])? {
            state.on_completion(&options, Instant::ZERO, Duration::from_ms(100), mtus);
        }
        Ok(state.probability().as_f64())
    }),
];

fn arrivals(mu: f64, rho: f64) -> Result<Arrivals, String> {
    Arrivals::new(mu, rho).map_err(|error| error.to_string())
}

fn port(weights: &[f64], mu: f64, rho: f64) -> Result<Port, String> {
    Port::new(weights, arrivals(mu, rho)?).map_err(|error| error.to_string())
}

fn two(given: &[f64]) -> Result<TwoClasses, String> {
    TwoClasses::new(given[0], arrivals(given[2], given[1])?).map_err(|error| error.to_string())
}

fn exact(given: &[f64]) -> Result<Vec<f64>, String> {
    let port = port(&[given[0], 1.0], given[2], given[1])?;
    let delays = port.delays(&[given[3], 1.0 - given[3]]);
    delays.map_err(|error| error.to_string())
}

fn region_end(port: Port, rest: &[f64]) -> Result<f64, String> {
    let line = Line::new(port, 0, rest).map_err(|error| error.to_string())?;
    let first = line.admissible().first().copied();
    first
        .map(|(_, to)| to)
        .ok_or_else(|| "no share is admissible".to_owned())
}

fn options(target_us: f64, percentile: f64) -> Result<AequitasOptions, String> {
    let target = Duration::from_ns_f64(target_us * 1e3);
    let options = AequitasOptions::new(target, percentile);
    options.check().map_err(|error| error.to_string())?;
    Ok(options)
}
