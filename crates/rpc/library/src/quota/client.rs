//! The client beside a table: renews leases from a thread of its own.
//!
//! Method: three times per term it reports the demand since the last report, raised by [`HEADROOM`], and puts the
//! granted rates into the table, valid for [`CLIENT_PART`] percent of the term from the time of the request. When the
//! server does not answer, it retries in the next round; meanwhile leases expire and the admit probability decides.
//! Units: bytes per second. Limits: the reported demand is that of the last round, so a burst is reported one round
//! later.

use super::line::{Address, Line};
use super::protocol::{Answer, Leased, Request, Want};
use crate::admission::Admission;
use crate::clock;
use crate::settings::QuotaSettings;
use crate::table::Grant;
use isolane_common_linux::key::Key;
use isolane_rpc_policy::quota::CLIENT_PART;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Requested rate above the used rate, percent, so that a growing sender is not limited to its past rate.
pub const HEADROOM: u64 = 25;

/// Interval of rounds before the term is known, and after a failure.
const FIRST: Duration = Duration::from_millis(200);

/// The client's identity and the server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Address of the server.
    pub server: Address,
    /// File of the server's key; read for each connection.
    pub key_file: Option<PathBuf>,
    /// Tenant that this process sends for.
    pub tenant: String,
    /// Name of this client, unique per process.
    pub client: String,
}

impl Options {
    /// Makes a client name from the host's name and the process id.
    pub fn new(quota: &QuotaSettings) -> Self {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy().into_owned();
        Self {
            server: quota.server.clone(),
            key_file: quota.key_file.clone(),
            tenant: quota.tenant.clone(),
            client: format!("{host}-{}-{:08x}", std::process::id(), clock::random()),
        }
    }
}

/// One group and class of the table.
#[derive(Clone, Debug)]
struct Seat {
    group: usize,
    class: u8,
    asked_bytes: u64,
    holds: Option<u64>,
}

/// Bytes requested by calls at the last reading.
#[derive(Debug)]
struct Asked {
    seats: Vec<Seat>,
    at: Instant,
}

/// Renews leases for `admission` while it exists. `say` gets one line whenever the server becomes unreachable or
/// reachable. Fails if no thread can be started.
pub fn start(
    admission: &Arc<Admission>,
    options: Options,
    say: impl Fn(&str) + Send + 'static,
) -> io::Result<()> {
    let weak = Arc::downgrade(admission);
    let asked = Asked {
        seats: seats(admission),
        at: Instant::now(),
    };
    let thread = std::thread::Builder::new().name("isolane-quota".to_owned());
    thread
        .spawn(move || keep(&weak, &options, asked, say))
        .map(drop)
}

fn keep(admission: &Weak<Admission>, options: &Options, mut asked: Asked, say: impl Fn(&str)) {
    let mut line = None;
    let mut well = None;
    let mut pause = FIRST;
    loop {
        std::thread::sleep(pause);
        let admission = match admission.upgrade() {
            Some(admission) if !admission.is_stopped() => admission,
            held => {
                // Calls go on without leases; the server gives our rates to others from here on.
                if let Some(admission) = held {
                    give_up(&admission, &asked.seats);
                }
                if let Some(line) = &mut line {
                    // The server need not wait for the end of our term.
                    let _ = release(line, options);
                }
                return;
            }
        };
        let round = round(&admission, options, &mut line, &mut asked);
        let now_well = round.is_ok();
        match round {
            Ok(term) => pause = term / 3,
            Err(error) => {
                line = None;
                pause = FIRST.max(pause.min(Duration::from_secs(5)));
                if well != Some(false) {
                    say(&format!(
                        "no quota from {}: {error}; going on without",
                        options.server
                    ));
                }
            }
        }
        if now_well && well == Some(false) {
            say(&format!("quota from {} again", options.server));
        }
        well = Some(now_well);
    }
}

fn give_up(admission: &Admission, seats: &[Seat]) {
    for seat in seats {
        let nothing = Grant::default();
        let now_ns = clock::fine_ns();
        admission
            .table()
            .set_lease(seat.group, seat.class, nothing, now_ns);
    }
}

fn seats(admission: &Admission) -> Vec<Seat> {
    let settings = admission.settings();
    let classes = settings.classes.len() - 1;
    let groups = 0..settings.groups.len();
    groups
        .flat_map(|group| (0..classes).map(move |class| (group, class as u8)))
        .map(|(group, class)| Seat {
            group,
            class,
            asked_bytes: admission.table().asked_bytes(group, class),
            holds: None,
        })
        .collect()
}

/// Makes one request; returns the term.
fn round(
    admission: &Admission,
    options: &Options,
    line: &mut Option<Line>,
    asked: &mut Asked,
) -> io::Result<Duration> {
    let settings = admission.settings();
    let table = admission.table();
    let Asked { seats, at } = asked;
    let mut wants = Vec::with_capacity(seats.len());
    // From one reading to the next: a late answer does not raise the reported demand.
    let since = at.elapsed();
    *at = Instant::now();
    for seat in seats.iter_mut() {
        let asked = table.asked_bytes(seat.group, seat.class);
        let bytes = asked.wrapping_sub(seat.asked_bytes);
        seat.asked_bytes = asked;
        wants.push(Want {
            group: settings.groups[seat.group].name.clone(),
            class: settings.classes[usize::from(seat.class)].name.clone(),
            demand_bytes_per_s: demand(bytes, since),
            holds: seat.holds,
        });
    }
    let request = Request::Renew {
        tenant: options.tenant.clone(),
        client: options.client.clone(),
        wants,
    };
    // The term counts from here, before the server's begins.
    let asked_ns = clock::fine_ns();
    let answer = ask(line, &options.server, options.key_file.as_deref(), &request)?;
    let Answer::Leases(leases) = answer else {
        return Err(io::Error::other(match answer {
            Answer::Error(reason) => reason,
            _ => "an answer to another question".to_owned(),
        }));
    };
    if leases.len() != seats.len() {
        return Err(io::Error::other("an answer of another length"));
    }
    let mut term_ms = u64::MAX;
    for (seat, lease) in seats.iter_mut().zip(&leases) {
        let grant = Grant {
            rate_bytes_per_s: lease.rate_bytes_per_s,
            until_ns: valid_until(asked_ns, lease),
        };
        table.set_lease(seat.group, seat.class, grant, clock::fine_ns());
        seat.holds = Some(lease.serial);
        term_ms = term_ms.min(lease.term_ms);
    }
    // Without common groups the server has no leases for us; retry rarely.
    Ok(Duration::from_millis(term_ms.clamp(300, 600_000)))
}

/// The end of a lease that was requested at `asked_ns`, by the same clock.
pub fn valid_until(asked_ns: u64, lease: &Leased) -> u64 {
    asked_ns.saturating_add(lease.term_ms.saturating_mul(1_000_000 / 100 * CLIENT_PART))
}

/// Reported demand, with headroom.
fn demand(bytes: u64, since: Duration) -> u64 {
    let ns = since.as_nanos().max(1);
    let rate = u128::from(bytes) * 1_000_000_000 * u128::from(100 + HEADROOM) / 100 / ns;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Sends one request on the kept connection.
fn ask(
    line: &mut Option<Line>,
    server: &Address,
    key_file: Option<&Path>,
    request: &Request,
) -> io::Result<Answer> {
    let connection = match line {
        Some(connection) => connection,
        None => {
            let key = key_file.map(Key::read).transpose();
            let key = key.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            match Line::connect(server, key.as_ref())? {
                Ok(connection) => line.insert(connection),
                Err(refused) => return Ok(refused),
            }
        }
    };
    connection.ask(request)
}

/// Sends one request on a new connection, for operators. Fails if the key file cannot be used
/// ([`io::ErrorKind::InvalidInput`]), or the server does not answer in time or violates the protocol.
pub fn ask_once(
    server: &Address,
    key_file: Option<&Path>,
    request: &Request,
) -> io::Result<Answer> {
    ask(&mut None, server, key_file, request)
}

fn release(line: &mut Line, options: &Options) -> io::Result<Answer> {
    line.ask(&Request::Release {
        tenant: options.tenant.clone(),
        client: options.client.clone(),
    })
}
