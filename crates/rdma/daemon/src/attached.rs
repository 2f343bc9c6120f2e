//! Builds the attachments of a real daemon's event loop from the settings.

use crate::attachment::Attachment;
use crate::peers::{Peers, PeersError, Targets};
use crate::ports::PortWatch;
use crate::reload::{Reload, Source};
use crate::settings::Settings;
use crate::show::exporter::Exporter;
use crate::show::server::ServerError;
use crate::unheld::Watch;
use crate::watchdog::Watchdog;
use isolane_common_linux::notify::Notify;
use std::os::unix::net::UnixStream;

/// Why an attachment cannot be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AttachError {
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error(transparent)]
    Show(#[from] ServerError),
    #[error("cannot start a thread that finds traffic that is not paced: {0}")]
    Thread(std::io::Error),
    #[error("cannot wait for the reload signal: {0}")]
    Reload(#[from] std::io::Error),
}

/// Builds reference flows, peers, metrics, reload (one per byte of `order`), and the service manager's watchdog.
/// `again` reads the settings again; `say` prints one line for people.
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
    all.push(Box::new(
        Watch::start(now_ns, say).map_err(AttachError::Thread)?,
    ));
    for device in 0..settings.config.devices.len() {
        let port = PortWatch::start(settings, device, now_ns, say);
        all.push(Box::new(port.map_err(AttachError::Thread)?));
    }
    let reload = Reload::new(order, again, settings.clone(), targets, say)?;
    all.push(Box::new(reload));
    if let Some(watchdog) = Watchdog::new(Notify::from_environment(), now_ns) {
        all.push(Box::new(watchdog));
    }
    Ok(all)
}
