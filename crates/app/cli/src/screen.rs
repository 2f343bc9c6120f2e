//! Views of something that changes, one after the other.

use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::io::IsTerminal;

/// Home, and clear what is below.
const OVER: &str = "\x1b[H\x1b[J";

/// When the views of a command that goes on by itself come, and in which form.
#[derive(Debug, clap::Args)]
pub(crate) struct Views {
    /// Time between two views
    #[arg(long, default_value = "2s", value_parser = crate::numbers::interval)]
    pub(crate) interval: std::time::Duration,
    /// End after this many views
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u64>(1..=1_000_000_000))]
    pub(crate) count: Option<u64>,
    /// Print each view as JSON on one line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Views {
    /// Where the views are printed.
    pub(crate) fn screen(&self) -> Screen {
        Screen::new(self.json, self.count.is_none())
    }
}

/// Where a command prints views of something that changes.
pub(crate) struct Screen {
    json: bool,
    draw_over: bool,
    shown: u64,
}

impl Screen {
    /// On a terminal, endless views replace each other; a limited number is printed one below the other.
    pub(crate) fn new(json: bool, endless: bool) -> Self {
        Self {
            json,
            draw_over: endless && !json && std::io::stdout().is_terminal(),
            shown: 0,
        }
    }

    /// How many were printed.
    pub(crate) fn shown(&self) -> u64 {
        self.shown
    }

    /// Prints one: JSON on one line, or `text`.
    pub(crate) fn print(
        &mut self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let between = match (self.draw_over, self.shown) {
            (true, _) => OVER,
            (false, 0) => "",
            (false, _) => "\n",
        };
        self.shown += 1;
        match self.json {
            true => output::print(&output::compact_json(value)?),
            false => output::print(&format!("{between}{}", text())),
        }
    }
}
