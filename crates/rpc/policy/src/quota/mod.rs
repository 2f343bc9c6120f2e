//! Quotas: how much each tenant may send in a class, independent of Aequitas' admit probability.
//!
//! Problem: Aequitas keeps the latency of admitted calls, but how much of a tenant's traffic is admitted depends on the
//! other tenants. The paper leaves guarantees for tenants to a quota server (3.5.2). Method: any port admits at least
//! `r x phi_i / sum(phi) x mu / rho` of class `i` (3.5.2), because a class whose bursts stay below its weight's share
//! never waits. This bound can be promised, and nothing beyond it. A [`Pool`] divides the bound of one group of
//! destinations and one class among tenants: each gets its guarantee up to its demand, the rest is divided by weight,
//! max-min ([`divide()`]). A tenant's share is divided among its clients likewise. A client gets a *lease*: a rate for
//! a term. It renews well within the term and says which lease it holds. Everything that a client may still use counts
//! as promised until it expires or the client holds a newer lease. A lost answer, a dead client or a restart can
//! therefore make grants smaller for a term, but never the sum too large. This also holds if a restart changes the term
//! or removes a tenant with active clients. Time is an argument; a clock that runs backwards stands still. A client
//! counts its term from its request, by its own clock and shortened by [`CLIENT_PART`], so it stops before the pool
//! gives its rate to another client. Units: bytes per second, rounded down at each division. Limits: the bound holds
//! for the model of 3.4.1 (fluid traffic, one bottleneck for the group). Clients report their demand themselves.
//! Source: Aequitas (in the thesis "cloud QoS"), section 3.5.2; the server itself is ours.

pub mod divide;

use crate::queueing::fluid::Port;
use crate::queueing::region::guaranteed_share;
use divide::{Claim, divide};
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use std::collections::BTreeMap;
use std::fmt;

/// Part of a term that a client uses, percent: clocks may differ by up to a tenth.
pub const CLIENT_PART: u64 = 90;

/// Most recorded leases of one client: answers that were lost within a term.
const LEASES_MAX: usize = 16;

/// How far a held number may be above the latest one and is still believed: more leases than a crash of the machine takes
/// along, and so few that numbers never run out, whatever clients claim.
const LOST_MAX: u64 = 1 << 20;

/// Most clients of one tenant: each costs some hundred bytes and is visited at every renewal.
pub const CLIENTS_MAX: usize = 10_000;

/// The capacity of one class at one group of destinations, with its computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    line: BitRate,
    weight: f64,
    weights: f64,
    load: f64,
    burst: f64,
    share: f64,
}

impl Bound {
    /// The bound of `class` at a port of rate `line`. Panics if the port does not have the class, or it is the lowest
    /// one, which has no guarantees.
    pub fn new(port: &Port, line: BitRate, class: usize) -> Self {
        assert!(
            class + 1 < port.weights().len(),
            "the lowest class has no guarantees"
        );
        Self {
            line,
            weight: port.weights()[class],
            weights: port.weights().iter().sum(),
            load: port.arrivals().load,
            burst: port.arrivals().burst,
            share: guaranteed_share(port, class),
        }
    }

    /// The bound, bytes per second.
    pub fn bytes_per_s(&self) -> u64 {
        (self.line.as_gbps_f64() * 1e9 / 8.0 * self.share) as u64
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            weight,
            weights,
            load,
            burst,
            ..
        } = self;
        write!(
            f,
            "{} x {weight}/{weights} x {load}/{burst} = {}",
            bits(line.as_gbps_f64() * 1e9),
            rate(self.bytes_per_s())
        )
    }
}

/// A rate for people, in bits per second.
pub fn rate(bytes_per_s: u64) -> String {
    bits(bytes_per_s as f64 * 8.0)
}

fn bits(bits_per_s: f64) -> String {
    let (value, unit) = match bits_per_s {
        1e9.. => (bits_per_s / 1e9, "Gb/s"),
        1e6.. => (bits_per_s / 1e6, "Mb/s"),
        1e3.. => (bits_per_s / 1e3, "kb/s"),
        _ => (bits_per_s, "b/s"),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {unit}")
}

/// A tenant's terms, set by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Weight in the division of the rate beyond all guarantees, at least 1.
    pub weight: u32,
    /// Guaranteed rate, bytes per second.
    pub guarantee: u64,
}

/// Why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum QuotaError {
    #[error(
        "guarantees of {sum} exceed what can be guaranteed, {bound}: {terms}; lower one of them"
    )]
    TooMuch {
        sum: String,
        bound: String,
        terms: String,
    },
    #[error("tenant {0:?} is not known here; add it with `isolane rpc quota set`")]
    Unknown(String),
    #[error(
        "tenant {0:?} has {CLIENTS_MAX} clients here already; let processes share one, or wait until some have gone"
    )]
    Crowded(String),
    #[error(
        "weight 0 of tenant {0:?} would keep it from everything beyond its guarantee; give 1 or more"
    )]
    Weight(String),
}

/// A rate for a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the lease; it grows within the pool.
    pub serial: u64,
    /// Rate, bytes per second.
    pub rate: u64,
    /// Duration from the time of the request.
    pub term: Duration,
}

/// What a client may be using, for a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'a> {
    /// Tenant that it sends for.
    pub tenant: &'a str,
    /// Name of the client.
    pub client: &'a str,
    /// Number of its latest lease.
    pub serial: u64,
    /// Largest rate of its leases, bytes per second.
    pub rate: u64,
    /// Longest term of its leases.
    pub term: Duration,
}

/// A rate that a client may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    serial: u64,
    rate: u64,
    term: Duration,
    until: Instant,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    demand: u64,
    /// Its demand counts until this time.
    until: Instant,
    promises: Vec<Promise>,
}

impl Client {
    fn promised(&self) -> u64 {
        let rates = self.promises.iter().map(|promise| promise.rate);
        rates.max().unwrap_or(0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tenant {
    terms: Terms,
    clients: BTreeMap<String, Client>,
}

impl Tenant {
    fn demand(&self) -> u64 {
        let demands = self.clients.values().map(|client| client.demand);
        demands.fold(0, u64::saturating_add)
    }
}

/// State of a tenant for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the tenant.
    pub tenant: String,
    /// The operator's terms.
    pub terms: Terms,
    /// Number of clients with a demand.
    pub clients: usize,
    /// Sum of the clients' demand, bytes per second.
    pub demand: u64,
    /// Its fair rate, bytes per second.
    pub target: u64,
    /// Sum of its clients' promises, bytes per second.
    pub promised: u64,
}

/// The quotas of one group of destinations and one class.
///
/// ```
/// use isolane_rpc_policy::quota::{Bound, Pool, Terms};
/// use isolane_rpc_policy::queueing::{Arrivals, fluid::Port};
/// use isolane_common_quantities::units::{BitRate, Duration, Instant};
/// let port = Port::new(&[8.0, 4.0, 1.0], Arrivals::new(0.8, 1.4)?)?;
/// let bound = Bound::new(&port, BitRate::from_gbps_f64(100.0), 0);
/// assert_eq!(bound.to_string(), "100 Gb/s x 8/13 x 0.8/1.4 = 35.165 Gb/s");
/// let mut pool = Pool::new(bound, Duration::from_secs(3));
/// pool.set("search", Terms { weight: 1, guarantee: 1_000_000_000 })?;
/// let lease = pool.renew(Instant::ZERO, "search", "host-1", 500_000_000, None)?;
/// assert_eq!(lease.rate, 500_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    bound: Bound,
    term: Duration,
    now: Instant,
    serial: u64,
    tenants: BTreeMap<String, Tenant>,
    /// Promises from before a restart to clients of removed tenants, by both names.
    orphans: BTreeMap<(String, String), Promise>,
}

impl Pool {
    /// A pool without tenants.
    pub fn new(bound: Bound, term: Duration) -> Self {
        Self {
            bound,
            term,
            now: Instant::ZERO,
            serial: 0,
            tenants: BTreeMap::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// The capacity.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Whether a tenant has terms here.
    pub fn knows(&self, tenant: &str) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// The terms of a tenant; `None` if it has none here.
    pub fn terms(&self, tenant: &str) -> Option<Terms> {
        self.tenants.get(tenant).map(|tenant| tenant.terms)
    }

    /// How many tenants have terms here.
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Checks that [`Pool::set`] would accept these terms. Fails if all guarantees together would exceed the bound, or
    /// a weight is zero.
    pub fn check(&self, name: &str, terms: Terms) -> Result<(), QuotaError> {
        if terms.weight == 0 {
            return Err(QuotaError::Weight(name.to_owned()));
        }
        let others = self.tenants.iter().filter(|(other, _)| *other != name);
        let mut guarantees: Vec<(&str, u64)> = others
            .map(|(name, tenant)| (name.as_str(), tenant.terms.guarantee))
            .filter(|(_, guarantee)| *guarantee > 0)
            .collect();
        guarantees.push((name, terms.guarantee));
        let sum = guarantees
            .iter()
            .fold(0, |sum: u64, (_, guarantee)| sum.saturating_add(*guarantee));
        if sum > self.bound.bytes_per_s() {
            let each = guarantees
                .iter()
                .map(|(name, guarantee)| format!("{name} {}", rate(*guarantee)));
            return Err(QuotaError::TooMuch {
                sum: rate(sum),
                bound: self.bound.to_string(),
                terms: each.collect::<Vec<_>>().join(" + "),
            });
        }
        Ok(())
    }

    /// Adds a tenant or changes its terms. Fails as [`Pool::check`] does; nothing changes then.
    pub fn set(&mut self, name: &str, terms: Terms) -> Result<(), QuotaError> {
        self.check(name, terms)?;
        let tenant = self.tenants.entry(name.to_owned()).or_insert(Tenant {
            terms,
            clients: BTreeMap::new(),
        });
        tenant.terms = terms;
        Ok(())
    }

    /// Checks that [`Pool::renew`] would answer this client at `now`. Fails if the tenant is unknown or has too many
    /// clients.
    pub fn admits(&mut self, now: Instant, tenant: &str, client: &str) -> Result<(), QuotaError> {
        self.tick(now);
        let Some(known) = self.tenants.get(tenant) else {
            return Err(QuotaError::Unknown(tenant.to_owned()));
        };
        match known.clients.len() < CLIENTS_MAX || known.clients.contains_key(client) {
            true => Ok(()),
            false => Err(QuotaError::Crowded(tenant.to_owned())),
        }
    }

    /// A client requests `demand` at `now` and names the lease that it holds. It gets its part of the tenant's share,
    /// but never more than what no other client may be using. Fails as [`Pool::admits`] does.
    pub fn renew(
        &mut self,
        now: Instant,
        tenant: &str,
        client: &str,
        demand: u64,
        holds: Option<u64>,
    ) -> Result<Lease, QuotaError> {
        self.admits(now, tenant, client)?;
        let until = self.now.saturating_add(self.term);
        let known = self.tenants.get_mut(tenant).expect("found just now");
        let asking = known.clients.entry(client.to_owned()).or_default();
        asking.demand = demand;
        asking.until = until;
        if let Some(held) = holds {
            // Leases older than the one it holds are unused; newer ones may be in flight.
            asking.promises.retain(|promise| promise.serial >= held);
        }
        // A crash of the machine can take the latest numbers along. The new lease must be newer than the held one, which a
        // late request may still name.
        let believed = self.serial.saturating_add(LOST_MAX);
        if let Some(held) = holds.filter(|held| *held <= believed) {
            self.serial = self.serial.max(held);
        }
        let own = asking.promised();
        let others = self.promised() - own;
        let room = self.bound.bytes_per_s().saturating_sub(others);
        let rate = self.target(tenant, client).min(room);
        self.serial += 1;
        let promise = Promise {
            serial: self.serial,
            rate,
            term: self.term,
            until,
        };
        let known = self.tenants.get_mut(tenant).expect("found above");
        let asking = known.clients.get_mut(client).expect("made above");
        remember(&mut asking.promises, promise);
        Ok(Lease {
            serial: promise.serial,
            rate,
            term: self.term,
        })
    }

    /// Removes all promises of a client that uses nothing any more.
    pub fn release(&mut self, now: Instant, tenant: &str, client: &str) {
        self.tick(now);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.clients.remove(client);
        }
    }

    /// Restores a promise from before a restart. It counts for its whole term from `now`, because its age is unknown,
    /// even if its tenant was removed, because its client does not know that.
    pub fn restore(&mut self, now: Instant, holding: Holding<'_>) {
        self.tick(now);
        let Holding {
            serial, rate, term, ..
        } = holding;
        self.serial = self.serial.max(serial);
        let promise = Promise {
            serial,
            rate,
            term,
            until: self.now.saturating_add(term),
        };
        let Some(tenant) = self.tenants.get_mut(holding.tenant) else {
            let names = (holding.tenant.to_owned(), holding.client.to_owned());
            self.orphans.insert(names, promise);
            return;
        };
        let client = tenant.clients.entry(holding.client.to_owned()).or_default();
        client.demand = rate;
        client.until = promise.until;
        remember(&mut client.promises, promise);
    }

    /// Sum of all promises, bytes per second.
    pub fn promised(&self) -> u64 {
        let clients = self
            .tenants
            .values()
            .flat_map(|tenant| tenant.clients.values());
        let rates = clients.map(Client::promised);
        let orphans = self.orphans.values().map(|promise| promise.rate);
        rates.chain(orphans).fold(0, u64::saturating_add)
    }

    /// State of every tenant at `now`.
    pub fn shares(&mut self, now: Instant) -> Vec<Share> {
        self.tick(now);
        let targets = self.targets();
        let tenants = self.tenants.iter().zip(targets);
        tenants
            .map(|((name, tenant), target)| Share {
                tenant: name.clone(),
                terms: tenant.terms,
                clients: tenant.clients.len(),
                demand: tenant.demand(),
                target,
                promised: (tenant.clients.values().map(Client::promised))
                    .fold(0, u64::saturating_add),
            })
            .collect()
    }

    /// What each client may be using.
    pub fn holdings(&self) -> impl Iterator<Item = Holding<'_>> {
        let known = self.tenants.iter().flat_map(|(tenant, state)| {
            let clients = state.clients.iter();
            clients.filter_map(move |(client, state)| {
                Some(Holding {
                    tenant,
                    client,
                    serial: state.promises.last()?.serial,
                    rate: state.promised(),
                    term: state.promises.iter().map(|promise| promise.term).max()?,
                })
            })
        });
        let orphans = self
            .orphans
            .iter()
            .map(|((tenant, client), promise)| Holding {
                tenant,
                client,
                serial: promise.serial,
                rate: promise.rate,
                term: promise.term,
            });
        known.chain(orphans)
    }

    /// Promise to one client, bytes per second.
    pub fn promised_to(&self, tenant: &str, client: &str) -> u64 {
        let client = self
            .tenants
            .get(tenant)
            .and_then(|tenant| tenant.clients.get(client));
        client.map_or(0, Client::promised)
    }

    /// Removes what has expired.
    fn tick(&mut self, now: Instant) {
        if now <= self.now {
            // Terms are longer than zero, so a second call at the same time changes nothing.
            return;
        }
        self.now = now;
        for tenant in self.tenants.values_mut() {
            for client in tenant.clients.values_mut() {
                client.promises.retain(|promise| promise.until > now);
            }
            let uses = |client: &Client| client.until > now || !client.promises.is_empty();
            tenant.clients.retain(|_, client| uses(client));
        }
        self.orphans.retain(|_, promise| promise.until > now);
    }

    /// Fair rate of each tenant, in order.
    fn targets(&self) -> Vec<u64> {
        let claims: Vec<Claim> = (self.tenants.values())
            .map(|tenant| Claim {
                demand: tenant.demand(),
                guarantee: tenant.terms.guarantee,
                weight: tenant.terms.weight,
            })
            .collect();
        divide(self.bound.bytes_per_s(), &claims)
    }

    /// Fair rate of one client.
    fn target(&self, tenant: &str, client: &str) -> u64 {
        let place = |mut names: std::collections::btree_map::Keys<'_, String, _>| {
            names.position(|name| name == tenant)
        };
        let index = place(self.tenants.keys()).expect("the caller found it");
        let part = self.targets()[index];
        let clients = &self.tenants[tenant].clients;
        let claims: Vec<Claim> = clients
            .values()
            .map(|client| Claim {
                demand: client.demand,
                guarantee: 0,
                weight: 1,
            })
            .collect();
        let index = clients.keys().position(|name| name == client);
        divide(part, &claims)[index.expect("the caller made it")]
    }
}

/// Adds a promise; merges the oldest ones upwards if there are too many, which promises no less.
fn remember(promises: &mut Vec<Promise>, promise: Promise) {
    promises.push(promise);
    if promises.len() > LEASES_MAX {
        let oldest = promises.remove(0);
        promises[0].rate = promises[0].rate.max(oldest.rate);
        promises[0].term = promises[0].term.max(oldest.term);
    }
}

#[cfg(test)]
mod tests;
