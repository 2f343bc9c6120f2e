//! Everything that the event loop of a real daemon waits for beside processes, made from the settings.

use crate::attachment::Attachment;
use crate::notify::{Notify, Watchdog};
use crate::peers::{Peers, PeersError, Targets};
use crate::reload::{Reload, Source};
use crate::settings::Settings;
use crate::show::exporter::Exporter;
use crate::show::server::ServerError;
use std::os::unix::net::UnixStream;

/// Why something cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Reference flow and peers.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Metrics and snapshots.
    #[error(transparent)]
    Show(#[from] ServerError),
    /// Signals.
    #[error("cannot wait for the order to read the configuration again: {0}")]
    Reload(#[from] std::io::Error),
}

/// Reference flows, peers, metrics, reload at each byte of `order`, and the service manager's watchdog. `again` gives
/// the settings anew; `say` prints one line for people.
///
/// # Errors
/// See [`AttachError`].
pub fn attachments(
    settings: &Settings,
    again: Source,
    order: UnixStream,
    now_ns: u64,
    say: fn(&str),
) -> Result<Vec<Box<dyn Attachment>>, AttachError> {
    let targets = Targets::default();
    let mut all: Vec<Box<dyn Attachment>> = vec![Box::new(Exporter::start(settings)?)];
    all.push(Box::new(Peers::start(settings, targets.clone(), say)?));
    let notify = Notify::from_environment();
    let reload = Reload::new(order, again, settings.clone(), targets, notify, say)?;
    all.push(Box::new(reload));
    if let Some(watchdog) = Watchdog::new(Notify::from_environment(), now_ns) {
        all.push(Box::new(watchdog));
    }
    Ok(all)
}
