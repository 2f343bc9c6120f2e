//! Hold model: 100,000 pending events, each taken event schedules one at an exponential distance.
use isolane_common_events::EventQueue;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use std::time::Instant as Clock;

fn main() {
    let mut rng = Stream::named(1, "hold");
    let gaps: Vec<Duration> = (0..65_536)
        .map(|_| rng.exponential(Duration::from_us(1)))
        .collect();
    let mut rates: Vec<f64> = (0..5).map(|_| hold(&gaps)).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "engine/hold-100k {:.1} million events/s (median of 5)",
        rates[2]
    );
}

fn hold(gaps: &[Duration]) -> f64 {
    const EVENTS: usize = 10_000_000;
    let mut queue: EventQueue<[u32; 3]> = EventQueue::new();
    for number in 0..100_000u32 {
        queue.schedule(
            Instant::ZERO + gaps[number as usize % gaps.len()],
            [number, 0, 0],
        );
    }
    let start = Clock::now();
    for number in 0..EVENTS {
        let (now, event) = queue.pop().expect("the hold model never runs dry");
        queue.schedule(now + gaps[(number.wrapping_mul(31)) % gaps.len()], event);
    }
    EVENTS as f64 / start.elapsed().as_secs_f64() / 1e6
}
