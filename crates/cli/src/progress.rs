//! The progress bar: on stderr, and only where somebody watches.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar with the time left, on stderr when that is a terminal.
pub(crate) fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
        .expect("the template is a constant that parses");
    ProgressBar::new(0).with_style(style)
}
