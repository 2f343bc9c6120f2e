//! From two traces to a story.
//!
//! Every figure per message is a mean over the followed messages that completed in the window, so that parts add up to
//! the mean latency. When no message completed under attack, the messages still under way at the end count instead, and
//! a sentence of the story states this.

use crate::explanation::{
    CacheStory, Cause, EXPLANATION_VERSION, Explanation, HURT, Layer, Loss, MeanLatency, Part,
    Series, StageTime, Step,
};
use crate::measure::{Measured, Recorded, Settings, measure};
use crate::sentences;
use crate::times::Times;
use crate::words::{self, letter, title};
use crate::{ExplainError, Subject};
use isolane_rdma_scenario::model::Host;
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_simulator::rnic::trace::{CacheName, FollowedMessage, Resource, Stage, Trace};
use isolane_study_audit::cell::{Metrics, VictimKind};
use std::collections::BTreeMap;
use std::ops::Range;

/// Waits that add less than this part of the added latency are summed up as one.
const SMALL: f64 = 0.01;
/// Hosts at most.
const HOSTS: u8 = Host::ALL.len() as u8;
/// Layers of the plot of waits before the rest is one layer.
const LAYERS: usize = 4;

/// Explains what `subject`'s attackers do to its victim on the device of `profile`. `rerun` is the command line that
/// repeats it. Fails if the simulator refuses the policy, or if no message completes even alone.
pub fn explain(
    subject: &Subject,
    profile: &Profile,
    settings: &Settings,
    rerun: String,
) -> Result<Explanation, ExplainError> {
    let measured = measure(subject, profile, settings)?;
    let analysis = Analysis::of(&measured, subject);
    if analysis.alone.messages == 0 {
        let [from_us, to_us] = analysis.window_us();
        let victim = subject.victim.name.clone();
        return Err(ExplainError::NothingAlone {
            victim,
            from_us,
            to_us,
        });
    }
    Ok(analysis.explanation(profile, settings, rerun))
}

struct Analysis<'a> {
    measured: &'a Measured,
    subject: &'a Subject,
    window: Range<usize>,
    legs: f64,
    alone: Times,
    attacked: Times,
    starved: bool,
}

impl<'a> Analysis<'a> {
    fn of(measured: &'a Measured, subject: &'a Subject) -> Self {
        let window = measured.window.0..measured.window.1;
        // In a ping-pong a latency is half the round trip, as perftest reports it.
        let legs = if ping_pong(&subject.victim) { 2.0 } else { 1.0 };
        let alone = Times::of(&measured.alone.trace, &window, legs);
        let mut attacked = Times::of(&measured.attacked.trace, &window, legs);
        let starved = attacked.messages == 0;
        if starved {
            attacked = Times::of_messages(&measured.attacked.trace.unfinished, legs);
        }
        Self {
            measured,
            subject,
            window,
            legs,
            alone,
            attacked,
            starved,
        }
    }

    fn explanation(&self, profile: &Profile, settings: &Settings, rerun: String) -> Explanation {
        let loss = self.loss();
        let causes = self.causes();
        let caches = self.caches();
        let mut explanation = Explanation {
            version: EXPLANATION_VERSION,
            profile: profile.name.clone(),
            policy: settings.policy.name.clone(),
            on_sale: isolane_rdma_scenario::stack::is_on_sale(&settings.policy.name),
            seed: settings.seed,
            victim: self.subject.victim.name.clone(),
            kind: self.subject.kind,
            victim_does: words::does(&self.subject.victim),
            attacker: self.subject.attacker.clone(),
            attacker_does: words::all_do(&self.subject.attackers),
            settled: self.measured.settled,
            warmup_us: settings.warmup.as_ps() as f64 / 1e6,
            measured_us: self.measured.duration.as_ps() as f64 / 1e6,
            attack_us: self.measured.attack.as_ps() as f64 / 1e6,
            window_us: self.window_us(),
            latency: MeanLatency {
                alone_us: self.alone.latency / 1e6,
                attacked_us: self.attacked.latency / 1e6,
                messages_alone: self.alone.messages,
                messages_attacked: self.attacked.messages,
                unfinished: self.measured.attacked.trace.unfinished.len() as u64,
            },
            verdict: String::new(),
            chain: Vec::new(),
            stages: self.stages(),
            message_alone: self.typical(&self.measured.alone, &self.measured.alone.trace.followed),
            message_attacked: self.typical_attacked(),
            series: self.series(&causes),
            loss,
            causes,
            caches,
            rerun,
        };
        sentences::tell(&mut explanation, self.starved);
        explanation
    }

    fn window_us(&self) -> [f64; 2] {
        let point_us = self.measured.alone.trace.bucket as f64 / 1e6;
        [self.window.start, self.window.end].map(|point| point as f64 * point_us)
    }

    fn loss(&self) -> Loss {
        let alone = self.metrics(&self.measured.alone);
        let attacked = self.metrics(&self.measured.attacked);
        let ratio = |over: f64, under: f64| if under > 0.0 { over / under } else { 0.0 };
        let retained = match self.subject.kind {
            VictimKind::Rate if alone.goodput_gbps > 0.0 => {
                ratio(attacked.goodput_gbps, alone.goodput_gbps)
            }
            VictimKind::Rate | VictimKind::Application => {
                ratio(attacked.message_rate_per_s, alone.message_rate_per_s)
            }
            VictimKind::Latency => ratio(
                alone.p99_us.unwrap_or(0.0),
                attacked.p99_us.unwrap_or(f64::INFINITY),
            ),
        };
        Loss {
            alone,
            attacked,
            retained,
            hurt: retained < 1.0 - HURT,
        }
    }

    /// The victim's figures in the window.
    fn metrics(&self, run: &Recorded) -> Metrics {
        let tenant = &run.result.tenants[0];
        let mean = |series: &[f64]| {
            let part: Vec<f64> = in_window(series, &self.window).copied().collect();
            part.iter().sum::<f64>() / part.len().max(1) as f64
        };
        let goodput_gbps = mean(&tenant.goodput_series_gbps);
        let bytes = tenant.goodput_gbps / tenant.message_rate_per_s.max(1e-9);
        let mut latencies: Vec<u64> = run
            .trace
            .followed
            .iter()
            .filter(|message| self.within(run, message))
            .map(|message| message.latency)
            .collect();
        latencies.sort_unstable();
        let quantile = |part: usize| {
            let rank = (latencies.len() * part).div_ceil(100).checked_sub(1)?;
            latencies.get(rank).map(|&ps| ps as f64 / 1e6 / self.legs)
        };
        let p99: Vec<f64> = in_window(&tenant.p99_series_us, &self.window)
            .copied()
            .flatten()
            .collect();
        Metrics {
            goodput_gbps,
            message_rate_per_s: if tenant.goodput_gbps > 0.0 {
                goodput_gbps / bytes
            } else {
                tenant.message_rate_per_s
            },
            control_rate_per_s: tenant.control_rate_per_s,
            p50_us: quantile(50),
            p99_us: (!p99.is_empty()).then(|| median(p99)),
            ..Metrics::default()
        }
    }

    /// Whether a message completed in the window.
    fn within(&self, run: &Recorded, message: &FollowedMessage) -> bool {
        let end = message.posted + message.latency;
        let point = end.saturating_sub(run.trace.start) / run.trace.bucket;
        self.window.contains(&(point as usize))
    }

    fn causes(&self) -> Vec<Cause> {
        let mut keys: Vec<(Resource, u8)> = self.attacked.waits.keys().copied().collect();
        keys.extend(self.alone.waits.keys().copied());
        keys.sort_unstable();
        keys.dedup();
        let wait = |times: &Times, key| times.waits.get(&key).copied().unwrap_or(0.0);
        let added: f64 = keys
            .iter()
            .map(|&key| (wait(&self.attacked, key) - wait(&self.alone, key)).max(0.0))
            .sum();
        let mut causes: Vec<Cause> = keys
            .into_iter()
            .map(|key| {
                self.cause(
                    key,
                    (wait(&self.alone, key), wait(&self.attacked, key)),
                    added,
                )
            })
            .filter(|cause| cause.added_us.abs() * 1e6 >= SMALL * added && cause.added_us != 0.0)
            .collect();
        causes.sort_by(|one, other| other.added_us.total_cmp(&one.added_us));
        causes
    }

    fn cause(&self, key: (Resource, u8), (before, after): (f64, f64), added: f64) -> Cause {
        let (resource, index) = key;
        let host = host(index);
        let caused_by = self.attacked.caused_by.iter();
        let caused_by = caused_by
            .filter(|((of, at, _), _)| (*of, *at) == key)
            .map(|((_, _, tenant), &ps)| (*tenant, ps))
            .collect();
        let filled = words::occupied(resource);
        let busy = |run| self.busy(run, (filled, index)).values().sum::<f64>() + 0.0;
        let meaningful = words::has_capacity(filled);
        let mut cause = Cause {
            resource: resource.name().to_owned(),
            title: title(resource).to_owned(),
            host,
            alone_us: before / 1e6,
            attacked_us: after / 1e6,
            added_us: (after - before) / 1e6,
            share: ((after - before).max(0.0) / added.max(1.0)).min(1.0),
            caused_by: self.parts(caused_by),
            busy_alone: meaningful.then(|| busy(&self.measured.alone)),
            busy_attacked: meaningful.then(|| busy(&self.measured.attacked)),
            occupants: self.parts(self.busy(&self.measured.attacked, (filled, index))),
            sentence: String::new(),
        };
        cause.sentence = sentences::sentence(&cause, resource, &self.subject.victim.name);
        cause
    }

    /// How busy a resource was in the window, by tenant.
    fn busy(&self, run: &Recorded, key: (Resource, u8)) -> BTreeMap<u16, f64> {
        let trace = &run.trace;
        let time = trace.bucket as f64 * self.window.len() as f64 * capacity(trace, key);
        let mut busy = BTreeMap::new();
        for one in &trace.occupancy {
            if (one.resource, one.host) == key {
                let sum: u64 = one.busy[self.window.clone()].iter().sum();
                busy.insert(one.tenant, sum as f64 / time);
            }
        }
        busy
    }

    /// Shares by name, the largest first; those that round to nothing are left out.
    fn parts(&self, of: BTreeMap<u16, f64>) -> Vec<Part> {
        let total: f64 = of.values().sum();
        let name = |tenant: u16| self.measured.attacked.trace.tenants[usize::from(tenant)].clone();
        let mut parts: Vec<Part> = of
            .into_iter()
            .filter(|(_, value)| total > 0.0 && *value >= total * 0.0005)
            .map(|(tenant, value)| Part {
                tenant: name(tenant),
                share: value / total,
            })
            .collect();
        parts.sort_by(|one, other| other.share.total_cmp(&one.share));
        parts
    }

    fn stages(&self) -> Vec<StageTime> {
        let mut names: Vec<Stage> = self.attacked.stages.keys().map(|key| key.0).collect();
        names.extend(self.alone.stages.keys().map(|key| key.0));
        names.sort_unstable();
        names.dedup();
        let of = |times: &Times, stage, service| {
            times.stages.get(&(stage, service)).copied().unwrap_or(0.0) / 1e6
        };
        names
            .into_iter()
            .map(|stage| StageTime {
                stage: stage.name().to_owned(),
                waited_alone_us: of(&self.alone, stage, false),
                served_alone_us: of(&self.alone, stage, true),
                waited_attacked_us: of(&self.attacked, stage, false),
                served_attacked_us: of(&self.attacked, stage, true),
            })
            .collect()
    }

    fn caches(&self) -> Vec<CacheStory> {
        let mut stories = Vec::new();
        for cache in CacheName::ALL {
            for index in 0..HOSTS {
                let ratio = |run: &Recorded| miss_ratio(&run.trace, cache, index, &self.window);
                let (Some(attacked), alone) = (
                    ratio(&self.measured.attacked),
                    ratio(&self.measured.alone).unwrap_or(0.0),
                ) else {
                    continue;
                };
                let trace = &self.measured.attacked.trace;
                let mut by = BTreeMap::new();
                for one in &trace.evictions {
                    if (one.cache, one.host, one.of) == (cache, index, trace.victim) {
                        let sum: u64 = one.entries[self.window.clone()].iter().sum();
                        *by.entry(one.by).or_insert(0.0) += sum as f64;
                    }
                }
                let seconds = trace.bucket as f64 * self.window.len() as f64 / 1e12;
                stories.push(CacheStory {
                    cache: cache.name().to_owned(),
                    host: host(index),
                    miss_ratio_alone: alone,
                    miss_ratio_attacked: attacked,
                    // The sum of nothing is -0.
                    evictions_per_s: by.values().sum::<f64>() / seconds + 0.0,
                    evicted_by: self.parts(by),
                });
            }
        }
        stories
    }

    fn typical_attacked(&self) -> Vec<Step> {
        let trace = &self.measured.attacked.trace;
        match self.starved {
            true => steps(trace.unfinished.first(), trace),
            false => self.typical(&self.measured.attacked, &trace.followed),
        }
    }

    /// The steps of the message of median latency among those that completed in the window.
    fn typical(&self, run: &Recorded, messages: &[FollowedMessage]) -> Vec<Step> {
        let mut inside: Vec<&FollowedMessage> = messages
            .iter()
            .filter(|message| self.within(run, message))
            .collect();
        inside.sort_by_key(|message| (message.latency, message.posted));
        steps(inside.get(inside.len() / 2).copied(), &run.trace)
    }

    fn series(&self, causes: &[Cause]) -> Series {
        let (alone, attacked) = (&self.measured.alone, &self.measured.attacked);
        let victim = &attacked.result.tenants[0];
        let victim_alone = &alone.result.tenants[0];
        let points = attacked.trace.points;
        let mut attacker_gbps = vec![0.0; points];
        for tenant in &attacked.result.tenants[1..] {
            for (sum, value) in attacker_gbps.iter_mut().zip(&tenant.goodput_series_gbps) {
                *sum += value;
            }
        }
        let shown = causes.iter().find_map(|cause| self.shown(cause));
        let (resource, index) = shown.unwrap_or((Resource::Wire, 0));
        let bytes = resource == Resource::ReceiveBuffer;
        Series {
            point_us: attacked.trace.bucket as f64 / 1e6,
            victim_gbps: victim.goodput_series_gbps.clone(),
            alone_gbps: victim_alone.goodput_series_gbps.clone(),
            attacker_gbps,
            victim_p99_us: victim.p99_series_us.clone(),
            alone_p99_us: victim_alone.p99_series_us.clone(),
            occupancy_of: format!("{} of host {}", title(resource), letter(host(index))),
            occupancy_unit: if bytes { "KiB" } else { "busy, %" }.to_owned(),
            occupancy: self.occupancy((resource, index), bytes),
            waits: self.waits(causes),
            misses: self.misses(),
        }
    }

    /// The resource whose occupancy a cause is about, if it has one.
    fn shown(&self, cause: &Cause) -> Option<(Resource, u8)> {
        let resource = Resource::ALL
            .into_iter()
            .find(|one| one.name() == cause.resource)?;
        let resource = words::occupied(resource);
        let index = cause.host as u8;
        words::has_capacity(resource).then_some((resource, index))
    }

    fn occupancy(&self, key: (Resource, u8), bytes: bool) -> Vec<Layer> {
        let trace = &self.measured.attacked.trace;
        let full = trace.bucket as f64;
        let scale = match bytes {
            true => 1.0 / full / 1024.0,
            false => 100.0 / full / capacity(trace, key),
        };
        let mut layers = Vec::new();
        for one in &trace.occupancy {
            if (one.resource, one.host) == key {
                layers.push(Layer {
                    name: trace.tenants[usize::from(one.tenant)].clone(),
                    values: one.busy.iter().map(|&ps| Some(ps as f64 * scale)).collect(),
                });
            }
        }
        layers
    }

    /// Mean latency per point: what the largest causes made of it, other waits, and service.
    fn waits(&self, causes: &[Cause]) -> Vec<Layer> {
        let trace = &self.measured.attacked.trace;
        let shown: Vec<&Cause> = causes
            .iter()
            .filter(|cause| cause.added_us > 0.0)
            .take(LAYERS)
            .collect();
        // Points in which nothing completed have no mean.
        let completed: Vec<Option<f64>> = trace
            .messages
            .iter()
            .map(|&messages| (messages > 0).then_some(0.0))
            .collect();
        let mut layers: Vec<Layer> = shown
            .iter()
            .map(|cause| format!("{}, {}", label(cause), letter(cause.host)))
            .chain(["other waits".to_owned(), "service".to_owned()])
            .map(|name| Layer {
                name,
                values: completed.clone(),
            })
            .collect();
        for (part, series) in &trace.waits {
            let cause = shown.iter().position(|cause| {
                cause.resource == part.resource.name() && cause.host == host(part.host)
            });
            let layer = match cause {
                _ if part.service => shown.len() + 1,
                Some(index) => index,
                None => shown.len(),
            };
            let values = layers[layer].values.iter_mut();
            for ((value, &ps), &messages) in values.zip(series).zip(&trace.messages) {
                if let Some(mean) = value {
                    *mean += ps as f64 / messages as f64 / 1e6 / self.legs;
                }
            }
        }
        layers
    }

    fn misses(&self) -> Vec<Layer> {
        let trace = &self.measured.attacked.trace;
        let mut layers = Vec::new();
        for cache in CacheName::ALL {
            for index in 0..HOSTS {
                let point = |at: usize| miss_ratio(trace, cache, index, &(at..at + 1));
                let values: Vec<Option<f64>> = (0..trace.points)
                    .map(|at| Some(point(at)? * 100.0))
                    .collect();
                if values.iter().flatten().any(|&value| value >= 1.0) {
                    layers.push(Layer {
                        name: format!("{}, host {}", cache.name(), letter(host(index))),
                        values,
                    });
                }
            }
        }
        layers
    }
}

fn steps(message: Option<&FollowedMessage>, trace: &Trace) -> Vec<Step> {
    let mut at = 0;
    let spans = message.into_iter().flat_map(|message| &message.spans);
    spans
        .map(|span| {
            let step = Step {
                stage: span.part.stage.name().to_owned(),
                resource: title(span.part.resource).to_owned(),
                host: host(span.part.host),
                waits: !span.part.service,
                caused_by: (!span.part.service)
                    .then(|| trace.tenants[usize::from(span.part.tenant)].clone()),
                from_us: at as f64 / 1e6,
                us: span.ps as f64 / 1e6,
            };
            at += span.ps;
            step
        })
        .collect()
}

fn miss_ratio(trace: &Trace, cache: CacheName, host: u8, window: &Range<usize>) -> Option<f64> {
    let mine = trace
        .lookups
        .iter()
        .find(|one| (one.cache, one.host, one.tenant) == (cache, host, trace.victim))?;
    let hits: u64 = mine.hits[window.clone()].iter().sum();
    let misses: u64 = mine.misses[window.clone()].iter().sum();
    (hits + misses > 0).then(|| misses as f64 / (hits + misses) as f64)
}

/// A cause beside a plot.
fn label(cause: &Cause) -> &'static str {
    let mut all = Resource::ALL.into_iter();
    let resource = all.find(|one| one.name() == cause.resource);
    resource.map_or("other", words::short)
}

fn capacity(trace: &Trace, key: (Resource, u8)) -> f64 {
    let found = trace.capacity.iter().find(|one| (one.1, one.0) == key);
    found.map_or(1.0, |one| one.2 as f64)
}

fn in_window<'s, T>(series: &'s [T], window: &Range<usize>) -> impl Iterator<Item = &'s T> {
    let end = window.end.min(series.len());
    series[window.start.min(end)..end].iter()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn host(index: u8) -> Host {
    Host::ALL[usize::from(index)]
}

fn ping_pong(tenant: &isolane_rdma_scenario::model::Tenant) -> bool {
    use isolane_rdma_scenario::model::{Arrival, Traffic};
    tenant.workloads.iter().any(|workload| {
        matches!(&workload.traffic, Traffic::Data(data) if matches!(data.arrival, Arrival::PingPong))
    })
}
