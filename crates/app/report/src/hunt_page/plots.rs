//! The plots of a hunt's page: what was found over the experiments, a counter over them, and conditions on the grids of their features.

use crate::number::significant;
use crate::svg::{Anchor, Drawing, Scale, linear};
use isolane_study_hunt::hunt::{Anomaly, HuntResult};
use isolane_study_hunt::region::{Region, condition};
use isolane_study_hunt::space::Space;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 34.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;
const FOUND_WIDTH: f64 = 420.0;
const FOUND_HEIGHT: f64 = 230.0;
const FOUND_TOP: f64 = 24.0;
/// Length of a point's stroke, pixels: with round caps it looks like a dot.
const DOT: f64 = 0.8;
/// Numbers of discoveries nearer than this are one text, pixels.
const NUMBER_DISTANCE: f64 = 20.0;
/// Height of a row of conditions.
const ROW: f64 = 34.0;

/// What was found over the experiments, each with its number; grey is the time in which discoveries were reduced to
/// their conditions.
pub(super) fn found(result: &HuntResult) -> String {
    let label = format!(
        "{} discoveries in {} experiments",
        result.anomalies.len(),
        result.spent.experiments
    );
    let mut drawing = Drawing::new(FOUND_WIDTH, FOUND_HEIGHT, &label);
    let bottom = FOUND_HEIGHT - BOTTOM;
    let end = result.spent.experiments.max(1) as f64;
    let across = linear(0.0, end, 4);
    let up = linear(0.0, result.anomalies.len().max(1) as f64, 4);
    let last = |values: &[f64]| *values.last().expect("an axis has ticks");
    let x = Scale::linear((0.0, last(&across.values)), (LEFT, FOUND_WIDTH - 8.0));
    let y = Scale::linear((0.0, last(&up.values)), (bottom, FOUND_TOP));
    for anomaly in &result.anomalies {
        let (from, to) = (found_at(anomaly), anomaly.reduced_at.experiments as f64);
        let (left, right) = (x.map(from), x.map(to.max(from)));
        drawing.rectangle(
            "na faded",
            (left, FOUND_TOP),
            (right - left, bottom - FOUND_TOP),
        );
    }
    drawing.across(&across, &x, (FOUND_TOP, bottom), "experiments");
    drawing.text("axis-title", (0.0, 11.0), Anchor::Start, "found so far");
    for (value, text) in up.values.iter().zip(&up.labels) {
        // Discoveries are whole.
        if value.fract() == 0.0 {
            let text = text.trim_end_matches(".0");
            drawing.text("tick", (LEFT - 6.0, y.map(*value) + 4.0), Anchor::End, text);
        }
    }
    let mut order: Vec<&Anomaly> = result.anomalies.iter().collect();
    order.sort_by_key(|anomaly| (anomaly.found_at.experiments, anomaly.number));
    let mut steps = vec![(x.map(0.0), y.map(0.0))];
    let mut count = 0.0;
    for anomaly in &order {
        let at = x.map(found_at(anomaly));
        steps.push((at, y.map(count)));
        count += 1.0;
        steps.push((at, y.map(count)));
    }
    steps.push((x.map(end), y.map(count)));
    drawing.polyline("line s2", steps);
    for (index, anomaly) in order.iter().enumerate() {
        let at = (x.map(found_at(anomaly)), y.map(index as f64 + 1.0));
        let title = format!(
            "#{} {} after {} experiments",
            anomaly.number,
            anomaly.symptom.name(),
            anomaly.found_at.experiments
        );
        drawing.circle("dot f1", at, 5.0, &title);
        drawing.text(
            "label",
            (at.0 + 8.0, at.1 - 4.0),
            Anchor::Start,
            &format!("#{}", anomaly.number),
        );
    }
    drawing.finish()
}

/// Counter `index` over the experiments.
pub(super) fn trace(result: &HuntResult, index: usize) -> String {
    let name = &result.counters[index];
    let value = |point: &isolane_study_hunt::hunt::TracePoint| {
        point.counters.get(index).copied().unwrap_or(f64::NAN)
    };
    let values = || {
        result
            .trace
            .iter()
            .map(value)
            .filter(|value| value.is_finite())
    };
    let most = values().fold(0.0, f64::max);
    let label = format!(
        "{name} over the experiments; the largest value is {}",
        significant(most, 3)
    );
    let mut drawing = Drawing::new(WIDTH, HEIGHT, &label);
    let bottom = HEIGHT - BOTTOM;
    let end = result.spent.experiments.max(1) as f64;
    let ticks = linear(0.0, end, 4);
    let last = *ticks.values.last().expect("an axis has ticks");
    let x = Scale::linear((0.0, last), (LEFT, WIDTH - 8.0));
    let y = Scale::linear((0.0, 1.0), (bottom, TOP));
    for anomaly in &result.anomalies {
        let (from, to) = (found_at(anomaly), anomaly.reduced_at.experiments as f64);
        let (left, right) = (x.map(from), x.map(to.max(from)));
        drawing.rectangle("na faded", (left, TOP), (right - left, bottom - TOP));
    }
    drawing.across(&ticks, &x, (TOP, bottom), "experiments");
    for part in [0.0, 0.5, 1.0] {
        let text = significant(part, 2);
        drawing.text("tick", (LEFT - 6.0, y.map(part) + 4.0), Anchor::End, &text);
    }
    let part = |value: f64| if most > 0.0 { value / most } else { 0.0 };
    let dots = places(result).flat_map(|(at, point)| {
        let (left, height) = (x.map(at), y.map(part(value(point))));
        [(left, height), (left + DOT, height), (f64::NAN, f64::NAN)]
    });
    drawing.polyline("line s2", dots);
    if let Some(usual) = result.usual_counters.get(name) {
        let height = y.map(part(*usual));
        drawing.segment("rule", (LEFT, height), (WIDTH - 8.0, height));
    }
    for anomaly in &result.anomalies {
        let at = x.map(found_at(anomaly));
        let value = anomaly.counters.get(name).copied().unwrap_or(0.0);
        let title = format!(
            "#{} {} after {} experiments: {}",
            anomaly.number,
            anomaly.symptom.name(),
            anomaly.found_at.experiments,
            significant(value, 3)
        );
        drawing.circle("dot f1", (at, y.map(part(value))), 4.5, &title);
    }
    let marks = result.anomalies.iter();
    for (at, text) in numbers(marks.map(|one| (x.map(found_at(one)), one.number))) {
        drawing.text("label", (at, TOP - 3.0), Anchor::Middle, &text);
    }
    drawing.finish()
}

/// The numbers of discoveries with their places; those that would overlap are one text.
fn numbers(marks: impl Iterator<Item = (f64, u32)>) -> Vec<(f64, String)> {
    let mut marks: Vec<(f64, u32)> = marks.collect();
    marks.sort_by(|left, right| left.0.total_cmp(&right.0));
    let near = |left: &(f64, u32), right: &(f64, u32)| right.0 - left.0 < NUMBER_DISTANCE;
    let texts = marks.chunk_by(near).map(|group| {
        let mut numbers: Vec<u32> = group.iter().map(|mark| mark.1).collect();
        numbers.sort_unstable();
        let runs: Vec<String> = numbers
            .chunk_by(|left, right| left + 1 == *right)
            .map(|run| match run {
                [one] => one.to_string(),
                [first, .., last] => format!("{first}-{last}"),
                [] => String::new(),
            })
            .collect();
        let middle = group.iter().map(|mark| mark.0).sum::<f64>() / group.len() as f64;
        (middle, runs.join(","))
    });
    texts.collect()
}

fn found_at(anomaly: &Anomaly) -> f64 {
    anomaly.found_at.experiments as f64
}

/// Every experiment of the search with its place on the axis: those of a batch are before its end, in their order.
fn places(
    result: &HuntResult,
) -> impl Iterator<Item = (f64, &isolane_study_hunt::hunt::TracePoint)> {
    let same = |point: &isolane_study_hunt::hunt::TracePoint| {
        let end = point.spent.experiments;
        result
            .trace
            .iter()
            .filter(|other| other.spent.experiments == end)
            .count()
    };
    let mut before = (u64::MAX, 0usize, 0usize);
    result.trace.iter().map(move |point| {
        let end = point.spent.experiments;
        before = match before.0 == end {
            true => (end, before.1, before.2 + 1),
            false => (end, same(point), 1),
        };
        ((end as f64) - (before.1 - before.2) as f64, point)
    })
}

/// The conditions of `region`, a row each, without those that every workload meets.
pub(super) fn region(number: u32, region: &Region, space: &Space) -> String {
    let region = region.clone().bare(space);
    let height = region.features.len() as f64 * ROW + 4.0;
    let label = format!("conditions of anomaly {number}: {}", region.text(space));
    let mut drawing = Drawing::new(WIDTH, height, &label);
    for (row, (&feature, allowed)) in region.features.iter().enumerate() {
        let top = row as f64 * ROW;
        let text = condition(feature, allowed, space);
        drawing.text("heading", (0.0, top + 13.0), Anchor::Start, &text);
        let grid = space.allowed(feature).grid();
        let width = (WIDTH - 2.0) / grid.len().max(1) as f64;
        for (index, &value) in grid.iter().enumerate() {
            let class = if allowed.has(value) { "f1" } else { "na faded" };
            let corner = (1.0 + index as f64 * width, top + 18.0);
            drawing.rectangle(class, corner, (width - 2.0, 10.0));
        }
    }
    drawing.finish()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn numbers_that_would_overlap_are_one_text() {
        let of = |marks: &[(f64, u32)]| {
            let texts = numbers(marks.iter().copied()).into_iter();
            texts
                .map(|(at, text)| format!("{at}: {text}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(&[(40.0, 1), (40.0, 2), (40.0, 3), (100.0, 4)]),
            ["40: 1-3", "100: 4"]
        );
        assert_eq!(
            of(&[(90.0, 5), (80.0, 2), (300.0, 1)]),
            ["85: 2,5", "300: 1"]
        );
        assert!(of(&[]).is_empty());
    }
}
