//! Measures a machine's healthy limits with two microbenchmarks, and the needs of an application alone.
//!
//! Units: bytes; bytes per second; nanoseconds. Method: the balance of the memory system with pages in a given place; nothing
//! moves. Thresholds are where LS on the near tier has lost a tenth (mercury 5.5.2): of its latency alone, as BI grows on the
//! near tier; and of its best latency beside a BI at full speed, as BI's pages go farther. Profiles take near memory away
//! until the objective just holds, then processor time. Source: Mercury 5.3.1, 5.5.2.

use crate::balance::{Balance, Demand, Problem};
use crate::host::App;
use crate::pages::{Pages, older};
use crate::settings::{Access, Machine};
use crate::tier::LINE;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_memory_policy::mercury::{CPU_ONE, Objective, Profile, TIERS_MAX, Thresholds};
use isolane_memory_scenario::application::MemApplication;

/// What of LS's latency may be lost: a tenth (mercury 5.5.2).
const NOTICEABLE: f64 = 1.1;
/// Memory of BI for each core, bytes (mercury 5.3.1).
const BI_REGION: f64 = 128e6;
/// Steps of a sweep.
const STEPS: u32 = 200;

/// All requests to the near tier, or to the first far one.
fn mix_of(far: f64) -> [f64; TIERS_MAX] {
    [1.0 - far, far, 0.0, 0.0]
}

fn micro(name: &str) -> Access {
    let model = MemApplication::named(name).expect("the microbenchmarks are compiled in");
    Access::new(&model)
}

fn balance(machine: &Machine, demands: &[Demand]) -> Balance {
    let problem = Problem {
        tiers: &machine.tiers,
        slots: machine.slots,
        demands,
        background: [0.0; TIERS_MAX],
    };
    problem.solve(&Balance::default())
}

/// Where others begin to suffer on `machine`.
pub fn thresholds(machine: &Machine) -> Thresholds {
    let near = mix_of(0.0);
    let (ls, bi) = (micro("latency"), micro("bandwidth"));
    let demand = |access: &Access, cores: f64, far| Demand {
        requests: cores * access.requests,
        think: access.think,
        mix: mix_of(far),
    };
    // LS on the near tier, and BI on `cores` with the share `far` of its pages on the far one.
    let both =
        |cores: f64, far: f64| balance(machine, &[demand(&ls, 1.0, 0.0), demand(&bi, cores, far)]);
    let all = machine.cores - 1.0;
    let alone = both(0.0, 0.0).latency(&near);
    let mut local_bandwidth = 0.0;
    for step in 0..=STEPS {
        let balance = both(all * f64::from(step) / f64::from(STEPS), 0.0);
        if balance.latency(&near) > NOTICEABLE * alone {
            break;
        }
        local_bandwidth = balance.rate[0] * LINE * 1e9;
    }
    let mut best = f64::INFINITY;
    let mut hint_faults_per_s = 0.0;
    for step in 0..=STEPS {
        let far = f64::from(step) / f64::from(STEPS);
        let balance = both(all, far);
        let latency = balance.latency(&near);
        best = best.min(latency);
        if latency > NOTICEABLE * best {
            break;
        }
        hint_faults_per_s = faults(machine, balance.rates[1] * 1e9 / bi.lines, all, far);
    }
    Thresholds {
        local_bandwidth: local_bandwidth as u64,
        hint_faults_per_s,
    }
}

/// Hint faults per second of BI on `cores`, which makes `requests` a second together. Each core has a process of its own: the kernel
/// marks each address space for itself.
fn faults(machine: &Machine, requests: f64, cores: f64, far: f64) -> f64 {
    let kernel = &machine.kernel;
    let visits = requests / (cores * BI_REGION / kernel.page);
    let marked = cores * kernel.scan.min(BI_REGION) * far / kernel.page;
    marked * (1.0 - older(visits, (BI_REGION / kernel.scan).max(1.0)))
}

/// How an application does alone with `local` bytes near and a share of its processor time.
struct Alone {
    latency: f64,
    bandwidth: f64,
}

fn alone(machine: &Machine, app: &App<'_>, bytes: f64, local: f64, cpu: f64) -> Alone {
    let mut pages = Pages::new(app.access.skew);
    pages.add(0, bytes);
    pages.demote(0, 1, bytes - local);
    let demand = Demand {
        requests: f64::from(app.spec.cores) * cpu * app.access.requests,
        think: app.access.think,
        mix: pages.mix(),
    };
    let balance = balance(machine, &[demand]);
    Alone {
        latency: balance.latency(&demand.mix) * app.access.seen,
        bandwidth: balance.rates[0] * LINE * 1e9,
    }
}

/// What profiling finds of `app` on an empty machine.
pub(crate) fn profile(machine: &Machine, app: &App<'_>) -> Profile {
    let bytes = app.spec.initial.working_set.get() as f64;
    let most = bytes.min(machine.tiers[0].capacity * (1.0 - machine.kernel.free));
    let loads = app.spec.changes.iter().map(|change| change.to.activity);
    let busy = loads.fold(app.spec.initial.activity, f64::max);
    let meets = |local: f64, cpu: f64| {
        let alone = alone(machine, app, bytes, local, cpu);
        match app.spec.objective {
            Objective::Latency(limit) => alone.latency <= limit.as_ns_f64(),
            Objective::Bandwidth(least) => alone.bandwidth >= least as f64,
            Objective::BestEffort => true,
        }
    };
    let best = alone(machine, app, bytes, most, busy);
    let admissible = meets(most, busy);
    let local = match admissible {
        true => least(most, |local| meets(local, busy)),
        false => most,
    };
    let is_bulk = matches!(app.spec.objective, Objective::Bandwidth(_));
    let cpu = match admissible && is_bulk && local == 0.0 {
        true => least(busy, |cpu| meets(0.0, cpu)),
        false => 1.0,
    };
    let found = alone(machine, app, bytes, local, cpu.min(busy));
    Profile {
        admissible,
        local: Bytes::new(local.ceil() as u64),
        cpu: ((cpu * f64::from(CPU_ONE)).ceil() as u32).min(CPU_ONE),
        bandwidth: found.bandwidth as u64,
        best: match app.spec.objective {
            Objective::Latency(_) => Objective::Latency(Duration::from_ns_f64(best.latency)),
            Objective::Bandwidth(_) => Objective::Bandwidth(best.bandwidth as u64),
            Objective::BestEffort => Objective::BestEffort,
        },
    }
}

/// The least value up to `most`, which is enough, that is `enough`; zero if that is.
fn least(most: f64, enough: impl Fn(f64) -> bool) -> f64 {
    if enough(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, most);
    for _ in 0..24 {
        let middle = f64::midpoint(low, high);
        match enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}
