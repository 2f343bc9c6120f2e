//! The lab's calls in a model: the same times, port and algorithm, without a kernel or a processor.
//!
//! Problem: the lab must decide whether the mix is stationary. Admit probabilities change in steps forever and take
//! tens of seconds to forget a step (the time constant is a window times the probability over the increment), longer
//! than a short run. Neither calls nor seconds of one run are independent, and no blocks of it are long enough to
//! estimate the random difference of two halves. Method: the clients' jobs are replayed with other seeds on an ideal
//! weighted fair port under [`isolane_rpc_policy::aequitas`]; the root mean square of the replays' differences is the
//! standard error. Units: microseconds; shares are fractions of one. Limits: a call takes only its line time on a fluid
//! port, without the time of processors and TCP.

use crate::job::{Call, ClientJob};
use crate::measure::{apart, mix};
use crate::plan::{CLASSES, Plan};
use crate::report::Chance;
use crate::verdict::halves;
use crate::worker::admission::options;
use crate::worker::arrivals::Arrivals;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions, Decision};
use std::collections::VecDeque;

/// Number of replays: gives the standard error to within a twentieth.
const REPLAYS: u64 = 200;

/// Random differences of a lab's mixes, from the calls that are issued at `from_us` or later.
pub(crate) fn chance(plan: &Plan, jobs: &[ClientJob], from_us: u64) -> Chance {
    let mut squares = Chance::default();
    let mut sums = [0.0; CLASSES];
    let mut mixes = Vec::new();
    for replay in 1..=REPLAYS {
        let mut by_client = play_by_client(plan, &reseeded(jobs, replay));
        for calls in &mut by_client {
            calls.retain(|call| call.3 >= from_us);
        }
        let apart = apart(&by_client.iter().map(|calls| ran(calls)).collect::<Vec<_>>());
        let calls = in_order(by_client);
        let [first, second] = halves(&calls);
        let mix = ran(&calls);
        for class in 0..CLASSES {
            squares.halves[class] += (first[class] - second[class]).powi(2);
            squares.clients[class] += apart[class].powi(2);
            sums[class] += mix[class];
        }
        mixes.push(mix);
    }
    let count = REPLAYS as f64;
    let root = |squares: [f64; CLASSES]| squares.map(|sum| (sum / count).sqrt());
    let differences = std::array::from_fn(|class| {
        let mean = sums[class] / count;
        mixes.iter().map(|mix| (mix[class] - mean).powi(2)).sum()
    });
    Chance {
        halves: root(squares.halves),
        mix: root(differences),
        clients: root(squares.clients),
    }
}

/// Fraction of `calls` that ran in each class.
fn ran(calls: &[Call]) -> [f64; CLASSES] {
    mix(calls, |call| call.1)
}

fn reseeded(jobs: &[ClientJob], replay: u64) -> Vec<ClientJob> {
    let one = |job: &ClientJob| ClientJob {
        seed: job.seed.wrapping_add(replay << 32),
        ..job.clone()
    };
    jobs.iter().map(one).collect()
}

/// All calls of `jobs` on an ideal port, in order of their issue.
pub(crate) fn play(plan: &Plan, jobs: &[ClientJob]) -> Vec<Call> {
    in_order(play_by_client(plan, jobs))
}

fn in_order(by_client: Vec<Vec<Call>>) -> Vec<Call> {
    let mut calls = by_client.concat();
    calls.sort_by_key(|call| call.3);
    calls
}

/// The calls of each client, in order of their end.
fn play_by_client(plan: &Plan, jobs: &[ClientJob]) -> Vec<Vec<Call>> {
    let mut due: Vec<(u64, usize, u8)> = Vec::new();
    for (client, job) in jobs.iter().enumerate() {
        due.extend(Arrivals::new(job).map(|(at_us, class)| (at_us, client, class)));
    }
    due.sort_unstable();
    let mut port = Port::new(plan);
    let mut clients: Vec<Client> = jobs.iter().map(Client::new).collect();
    let mut calls = vec![Vec::new(); jobs.len()];
    for (at_us, client, asked) in due {
        port.serve(at_us as f64, |end| {
            clients[end.client].learn(plan, &end, &mut calls[end.client])
        });
        let ran = clients[client].class(at_us, asked);
        port.take(
            ran,
            Waiting {
                client,
                asked,
                at_us,
            },
        );
    }
    port.serve(f64::INFINITY, |end| {
        clients[end.client].learn(plan, &end, &mut calls[end.client])
    });
    calls
}

/// A call in the port.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    client: usize,
    asked: u8,
    at_us: u64,
}

/// A call that left the port.
#[derive(Clone, Copy, Debug)]
struct End {
    client: usize,
    asked: u8,
    ran: u8,
    at_us: u64,
    end_us: f64,
}

/// An ideal weighted fair port: the line is divided by weight among the backlogged classes.
#[derive(Clone, Debug)]
struct Port {
    weights: [f64; CLASSES],
    /// Time of the whole line that a call takes.
    call_us: f64,
    queues: [VecDeque<Waiting>; CLASSES],
    /// Remaining line time of the first call of each queue.
    left_us: [f64; CLASSES],
    now_us: f64,
}

impl Port {
    fn new(plan: &Plan) -> Self {
        Self {
            weights: plan.weights.map(f64::from),
            call_us: plan.wire_bytes() as f64 * 8e6 / plan.line_bit_per_s as f64,
            queues: Default::default(),
            left_us: [0.0; CLASSES],
            now_us: 0.0,
        }
    }

    fn take(&mut self, class: u8, call: Waiting) {
        let class = usize::from(class);
        if self.queues[class].is_empty() {
            self.left_us[class] = self.call_us;
        }
        self.queues[class].push_back(call);
    }

    /// Serves until `until_us`; `ended` receives the end of each call.
    fn serve(&mut self, until_us: f64, mut ended: impl FnMut(End)) {
        loop {
            let busy = |class: &usize| !self.queues[*class].is_empty();
            let sum: f64 = (0..CLASSES)
                .filter(busy)
                .map(|class| self.weights[class])
                .sum();
            let needs = |class: usize| self.left_us[class] * sum / self.weights[class];
            let next = (0..CLASSES)
                .filter(busy)
                .min_by(|&one, &other| needs(one).total_cmp(&needs(other)));
            let room_us = until_us - self.now_us;
            let first = next.filter(|&class| needs(class) <= room_us);
            let Some(step_us) = first.map(needs).or(next.map(|_| room_us)) else {
                self.now_us = until_us;
                return;
            };
            for class in 0..CLASSES {
                self.left_us[class] -= step_us * self.weights[class] / sum;
            }
            self.now_us += step_us;
            let Some(class) = first else { return };
            let call = self.queues[class].pop_front().expect("the class has calls");
            self.left_us[class] = self.call_us;
            ended(End {
                client: call.client,
                asked: call.asked,
                ran: class as u8,
                at_us: call.at_us,
                end_us: self.now_us,
            });
        }
    }
}

/// One client and its admit probabilities.
#[derive(Clone, Debug)]
struct Client {
    controlled: Vec<(AequitasOptions, AdmitState)>,
    draws: Stream,
}

impl Client {
    fn new(job: &ClientJob) -> Self {
        let classes = job
            .admission
            .iter()
            .flat_map(|admission| &admission.classes);
        Self {
            controlled: classes
                .map(|class| (options(class), AdmitState::new(Instant::ZERO)))
                .collect(),
            draws: Stream::named(job.seed, "draws of the model"),
        }
    }

    /// The class that a call runs in.
    fn class(&mut self, at_us: u64, asked: u8) -> u8 {
        let Some((options, state)) = self.controlled.get_mut(usize::from(asked)) else {
            return asked;
        };
        let draw = (self.draws.next_u64() >> 32) as u32;
        match state.decide(options, Instant::ZERO + Duration::from_us(at_us), draw) {
            Decision::Admit => asked,
            Decision::Downgrade => (CLASSES - 1) as u8,
        }
    }

    fn learn(&mut self, plan: &Plan, end: &End, calls: &mut Vec<Call>) {
        let took_us = end.end_us - end.at_us as f64;
        if let Some((options, state)) = self.controlled.get_mut(usize::from(end.ran)) {
            let now = Instant::ZERO + Duration::from_us(end.end_us as u64);
            let took = Duration::from_ps((took_us * 1e6) as u64);
            state.on_completion(options, now, took, plan.call_mtus());
        }
        let moved = u8::from(end.asked != end.ran);
        calls.push((end.asked, end.ran, moved, end.at_us, took_us as u64));
    }
}

#[cfg(test)]
mod tests;
