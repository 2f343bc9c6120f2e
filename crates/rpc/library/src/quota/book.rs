//! All pools of a server. A promise is given only after it is stored.
//!
//! Method: each answer comes with the records that a restart needs, changed terms and valid promises ([`Step::Write`]);
//! they are stored before the answer is sent ([`super::ledger`]). After a restart every stored promise counts for
//! another term. If the machine went down and may have lost records, the book promises nothing for the first term.
//! Units: bytes per second; time is an argument.

use super::protocol::{Answer, Leased, PoolState, Request, TenantState, Terms, Want};
use super::settings::{Settings, TENANTS_MAX};
use super::store::{Loaded, Record, StoreError};
use crate::settings::read::{NAME_MAX, is_name};
use crate::table::{CLASSES_MAX, GROUPS_MAX};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::quota::{Holding, Pool, QuotaError, Terms as PoolTerms};
use std::collections::BTreeMap;

/// Longest client name, bytes.
const CLIENT_MAX: usize = 128;

/// Most groups and classes of one renewal: all that a table can have.
const WANTS_MAX: usize = GROUPS_MAX * CLASSES_MAX;

/// Why a request was rejected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum BookError {
    /// The policy rejects it.
    #[error(transparent)]
    Quota(#[from] isolane_rpc_policy::quota::QuotaError),
    #[error("no pool of group {group:?} and class {class:?}; there are {known}")]
    Pool {
        group: String,
        class: String,
        known: String,
    },
    #[error("the client's name has {0} bytes: must be 1 to {CLIENT_MAX}")]
    Client(usize),
    #[error("tenant {0:?}: a name is 1 to {NAME_MAX} letters, digits, '-', '_' or '.'")]
    Tenant(String),
    #[error("group {group:?}, class {class:?} has {TENANTS_MAX} tenants, which is the most")]
    Tenants { group: String, class: String },
    #[error("{0} groups and classes in one renewal: at most {WANTS_MAX} are answered")]
    Wants(usize),
    #[error(
        "this server has no key: give it the client's key_file, or take that from the client's settings"
    )]
    Key,
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All pools.
pub struct Book {
    pools: BTreeMap<(String, String), Pool>,
    term: Duration,
    /// Terms set at run time, by group, class and tenant; they override the file's.
    changed: BTreeMap<(String, String, String), Terms>,
    /// The tenant of a change that is not stored yet, and its earlier terms set at run time.
    pending: Option<(String, String, String, Option<Terms>)>,
    /// No promises before this time.
    quiet_until: Instant,
    /// Longest term of promises that may be missing until then, ms.
    missing_ms: u64,
}

/// Result of a request.
pub enum Step {
    /// The answer can be sent.
    Done(Answer),
    /// The answer can be sent after the records are stored.
    Write {
        /// The answer.
        answer: Answer,
        /// The records to store.
        records: Vec<Record>,
    },
}

/// The last terms of each tenant and the last promise of each client, which replace the earlier ones; terms first,
/// because promises refer to tenants.
fn latest(records: &[Record]) -> Vec<&Record> {
    let mut last = BTreeMap::new();
    for record in records {
        let place = match record {
            Record::Set(terms) => (&terms.group, &terms.class, &terms.tenant, None),
            Record::Grant {
                group,
                class,
                tenant,
                client,
                ..
            } => (group, class, tenant, Some(client)),
        };
        last.insert(place, record);
    }
    let mut last: Vec<&Record> = last.into_values().collect();
    last.sort_by_key(|record| matches!(record, Record::Grant { .. }));
    last
}

impl Book {
    /// Opens the book with the stored records. Fails if the file's guarantees exceed the capacity.
    pub fn open(settings: &Settings, loaded: &Loaded, now: Instant) -> Result<Self, BookError> {
        let own_ms = milliseconds(settings.term);
        // Missing promises may have had another term.
        let missing_ms = match loaded.complete {
            true => 0,
            false => own_ms.max(loaded.term_ms),
        };
        let pools = settings.pools.iter().map(|(group, class, bound)| {
            let pool = Pool::new(bound.clone(), settings.term);
            ((group.clone(), class.clone()), pool)
        });
        let mut book = Self {
            pools: pools.collect(),
            term: settings.term,
            changed: BTreeMap::new(),
            pending: None,
            quiet_until: match missing_ms {
                0 => Instant::ZERO,
                _ => now.saturating_add(Duration::from_ms(missing_ms)),
            },
            missing_ms,
        };
        for terms in &settings.tenants {
            book.set(terms)?;
        }
        let records = latest(&loaded.records);
        book.restore_terms(&records);
        for record in records {
            match record {
                Record::Set(_) => {}
                Record::Grant {
                    group,
                    class,
                    tenant,
                    client,
                    serial,
                    rate_bytes_per_s,
                    term_ms,
                } => {
                    if let Some(pool) = book.pools.get_mut(&(group.clone(), class.clone())) {
                        let holding = Holding {
                            tenant,
                            client,
                            serial: *serial,
                            rate: *rate_bytes_per_s,
                            term: Duration::from_ms(term_ms.unwrap_or(own_ms)),
                        };
                        pool.restore(now, holding);
                    }
                }
            }
        }
        Ok(book)
    }

    /// Applies stored terms: first those that lower a guarantee, so that terms that fit together never exceed the
    /// capacity on the way. Stored terms may not fit a changed file; then the file counts.
    fn restore_terms(&mut self, records: &[&Record]) {
        let terms = records.iter().filter_map(|record| match record {
            Record::Set(terms) => Some(terms),
            Record::Grant { .. } => None,
        });
        let (raised, lowered): (Vec<&Terms>, Vec<&Terms>) =
            terms.partition(|terms| terms.guarantee_bytes_per_s > self.guarantee(terms));
        for terms in lowered.into_iter().chain(raised) {
            if self.set(terms).is_ok() {
                self.note(terms);
            }
        }
    }

    /// The present guarantee of the tenant and pool that `terms` name; zero for an unknown one.
    fn guarantee(&self, terms: &Terms) -> u64 {
        let pool = self.pools.get(&(terms.group.clone(), terms.class.clone()));
        let known = pool.and_then(|pool| pool.terms(&terms.tenant));
        known.map_or(0, |known| known.guarantee)
    }

    /// Handles a request. Changed terms are only noted; they apply after [`Book::set`], and no other change may begin
    /// before that or [`Book::forget`]. The error says why the request
    /// is rejected.
    pub fn begin(&mut self, now: Instant, request: Request) -> Result<Step, BookError> {
        match request {
            Request::Hello { .. } => Err(BookError::Key),
            Request::Renew {
                tenant,
                client,
                wants,
            } => self.renew(now, &tenant, &client, &wants),
            Request::Release { tenant, client } => {
                for pool in self.pools.values_mut() {
                    pool.release(now, &tenant, &client);
                }
                Ok(Step::Done(Answer::Done))
            }
            Request::Show => Ok(Step::Done(Answer::Pools(self.show(now)))),
            Request::Set(terms) => self.change(&terms),
        }
    }

    fn pool(&mut self, group: &str, class: &str) -> Result<&mut Pool, BookError> {
        let key = (group.to_owned(), class.to_owned());
        if !self.pools.contains_key(&key) {
            let known = self
                .pools
                .keys()
                .map(|(group, class)| format!("{group}/{class}"));
            return Err(BookError::Pool {
                group: key.0,
                class: key.1,
                known: known.collect::<Vec<_>>().join(", "),
            });
        }
        Ok(self.pools.get_mut(&key).expect("looked up just now"))
    }

    fn renew(
        &mut self,
        now: Instant,
        tenant: &str,
        client: &str,
        wants: &[Want],
    ) -> Result<Step, BookError> {
        if !(1..=CLIENT_MAX).contains(&client.len()) {
            return Err(BookError::Client(client.len()));
        }
        if wants.len() > WANTS_MAX {
            return Err(BookError::Wants(wants.len()));
        }
        // Reject before the first promise: an unsent promise would block capacity for a term.
        let mut known = false;
        for want in wants {
            let pool = self.pool(&want.group, &want.class)?;
            if pool.knows(tenant) {
                pool.admits(now, tenant, client)?;
                known = true;
            }
        }
        if !known && !wants.is_empty() {
            return Err(QuotaError::Unknown(tenant.to_owned()).into());
        }
        let quiet = now < self.quiet_until;
        let term_ms = milliseconds(self.term);
        let (mut leases, mut records) = (Vec::new(), Vec::new());
        for want in wants {
            let pool = self.pool(&want.group, &want.class)?;
            if !pool.knows(tenant) {
                // A client requests all its groups and classes; its tenant need not have terms in each.
                leases.push(Leased {
                    serial: want.holds.unwrap_or(0),
                    rate_bytes_per_s: 0,
                    term_ms,
                });
                continue;
            }
            let demand = if quiet { 0 } else { want.demand_bytes_per_s };
            let lease = pool.renew(now, tenant, client, demand, want.holds)?;
            records.push(Record::Grant {
                group: want.group.clone(),
                class: want.class.clone(),
                tenant: tenant.to_owned(),
                client: client.to_owned(),
                serial: lease.serial,
                // It may still use a larger lease.
                rate_bytes_per_s: pool.promised_to(tenant, client),
                term_ms: Some(term_ms),
            });
            leases.push(Leased {
                serial: lease.serial,
                rate_bytes_per_s: lease.rate,
                term_ms,
            });
        }
        let answer = Answer::Leases(leases);
        if records.is_empty() {
            return Ok(Step::Done(answer));
        }
        Ok(Step::Write { answer, records })
    }

    /// Applies terms from now on. Fails if they exceed the capacity.
    pub fn set(&mut self, terms: &Terms) -> Result<(), BookError> {
        self.pending = None;
        let pool = self.pool(&terms.group, &terms.class)?;
        Ok(pool.set(&terms.tenant, pool_terms(terms))?)
    }

    /// Notes new terms; returns the terms that they replace.
    fn note(&mut self, terms: &Terms) -> Option<Terms> {
        self.changed.insert(place_of(terms), terms.clone())
    }

    /// Forgets a change that could not be stored. Without one, nothing happens.
    pub fn forget(&mut self) {
        let Some((group, class, tenant, before)) = self.pending.take() else {
            return;
        };
        let place = (group, class, tenant);
        match before {
            Some(before) => self.changed.insert(place, before),
            None => self.changed.remove(&place),
        };
    }

    fn change(&mut self, terms: &Terms) -> Result<Step, BookError> {
        if !is_name(&terms.tenant) {
            return Err(BookError::Tenant(terms.tenant.clone()));
        }
        let pool = self.pool(&terms.group, &terms.class)?;
        if pool.tenants() >= TENANTS_MAX && !pool.knows(&terms.tenant) {
            return Err(BookError::Tenants {
                group: terms.group.clone(),
                class: terms.class.clone(),
            });
        }
        pool.check(&terms.tenant, pool_terms(terms))?;
        // A compaction of the store before they apply must keep them.
        let before = self.note(terms);
        let (group, class, tenant) = place_of(terms);
        self.pending = Some((group, class, tenant, before));
        Ok(Step::Write {
            answer: Answer::Done,
            records: vec![Record::Set(terms.clone())],
        })
    }

    /// The terms set at run time, with those of which the write is under way.
    pub fn changed(&self) -> Vec<Record> {
        self.changed.values().cloned().map(Record::Set).collect()
    }

    /// The longest term of promises that may be missing from the store at `now`, ms; 0: none is missing.
    pub fn missing_ms(&self, now: Instant) -> u64 {
        if now < self.quiet_until {
            self.missing_ms
        } else {
            0
        }
    }

    /// All records that a restart needs.
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.changed();
        for ((group, class), pool) in &self.pools {
            records.extend(pool.holdings().map(|holding| Record::Grant {
                group: group.clone(),
                class: class.clone(),
                tenant: holding.tenant.to_owned(),
                client: holding.client.to_owned(),
                serial: holding.serial,
                rate_bytes_per_s: holding.rate,
                term_ms: Some(milliseconds(holding.term)),
            }));
        }
        records
    }

    fn show(&mut self, now: Instant) -> Vec<PoolState> {
        let pools = self.pools.iter_mut();
        pools
            .map(|((group, class), pool)| {
                let tenants = pool.shares(now).into_iter().map(|share| TenantState {
                    tenant: share.tenant,
                    weight: share.terms.weight,
                    guarantee_bytes_per_s: share.terms.guarantee,
                    clients: share.clients,
                    demand_bytes_per_s: share.demand,
                    target_bytes_per_s: share.target,
                    leased_bytes_per_s: share.promised,
                });
                PoolState {
                    group: group.clone(),
                    class: class.clone(),
                    bound_bytes_per_s: pool.bound().bytes_per_s(),
                    arithmetic: pool.bound().to_string(),
                    tenants: tenants.collect(),
                    leased_bytes_per_s: pool.promised(),
                }
            })
            .collect()
    }
}

fn place_of(terms: &Terms) -> (String, String, String) {
    let Terms {
        group,
        class,
        tenant,
        ..
    } = terms.clone();
    (group, class, tenant)
}

fn pool_terms(terms: &Terms) -> PoolTerms {
    PoolTerms {
        weight: terms.weight,
        guarantee: terms.guarantee_bytes_per_s,
    }
}

/// Rounded up, so that a stored promise never ends too early.
fn milliseconds(term: Duration) -> u64 {
    term.as_ps().div_ceil(1_000_000_000)
}
