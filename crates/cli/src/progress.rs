//! The progress bar: on stderr, and only where somebody watches.

use crate::devices::{self, Stage};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar with the time left, on stderr when that is a terminal.
pub(crate) fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
        .expect("the template is a constant that parses");
    ProgressBar::new(0).with_style(style)
}

/// A bar for the part of the work that is done, on stderr when that is a terminal.
pub(crate) fn part() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left")
        .expect("the template is a constant that parses");
    ProgressBar::new(0).with_style(style)
}

/// How often a run in real time is drawn.
const TICK: Duration = Duration::from_millis(100);

/// A bar for runs that take their real time, and what moves it from stage to stage.
pub(crate) fn stages() -> (ProgressBar, impl Fn(Stage) + Send + Sync + 'static) {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(0),
        false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
    };
    let shown = bar.clone();
    let stage = move |stage: Stage| {
        // Only now: a simulated run shows no bar.
        shown.enable_steady_tick(TICK);
        let (words, time) = devices::words(stage);
        let template = match time {
            Some(time) => {
                shown.reset_elapsed();
                format!(
                    "{{spinner}} {{msg}} {{elapsed}} of {:.1} s",
                    time.as_secs_f64()
                )
            }
            None => "{spinner} {msg}".to_owned(),
        };
        let style = ProgressStyle::with_template(&template);
        shown.set_style(style.expect("the template has only known keys"));
        shown.set_message(words);
    };
    (bar, stage)
}
