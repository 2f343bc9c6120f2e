//! All pools of a server, and that no promise is given before it is written down.
//!
//! Method: what a restart needs - terms that were set and promises in force - is handed out with each answer
//! ([`Step::Write`]) and goes to the store before the answer is given ([`super::ledger`]). After a restart every written promise counts for a whole term more. Where the machine went
//! down and may have lost what was written last, the book promises nothing for the first term.
//! Units: bytes per second; time is an argument.

use super::protocol::{Answer, Leased, PoolState, Request, TenantState, Terms, Want};
use super::settings::{Settings, TENANTS_MAX};
use super::store::{Loaded, Record, StoreError};
use crate::settings::read::{NAME_MAX, is_name};
use crate::table::{CLASSES_MAX, GROUPS_MAX};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::quota::{Holding, Pool, QuotaError, Terms as PoolTerms};
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of a client's name.
const CLIENT_MAX: usize = 128;

/// Most groups and classes of one renewal: all that a table has.
const WANTS_MAX: usize = GROUPS_MAX * CLASSES_MAX;

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The policy refuses.
    #[error(transparent)]
    Quota(#[from] isolane_rpc_policy::quota::QuotaError),
    /// There is no such group and class.
    #[error("no pool of group {group:?} and class {class:?}; there are {known}")]
    Pool {
        /// The group asked for.
        group: String,
        /// The class asked for.
        class: String,
        /// What there is.
        known: String,
    },
    /// A name that is empty or too long.
    #[error("the client's name has {0} bytes: must be 1 to {CLIENT_MAX}")]
    Client(usize),
    /// A tenant's name that no file could have.
    #[error("tenant {0:?}: a name is 1 to {NAME_MAX} letters, digits, '-', '_' or '.'")]
    Tenant(String),
    /// More tenants than a file may have.
    #[error("group {group:?}, class {class:?} has {TENANTS_MAX} tenants, which is the most")]
    Tenants {
        /// The group.
        group: String,
        /// The class.
        class: String,
    },
    /// A renewal of too much at once.
    #[error("{0} groups and classes in one renewal: at most {WANTS_MAX} are answered")]
    Wants(usize),
    /// A client with a key, where none is asked for: it must not believe that anything is proven.
    #[error(
        "this server has no key: give it the client's key_file, or take that from the client's settings"
    )]
    Key,
    /// It cannot be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All pools.
pub struct Book {
    pools: BTreeMap<(String, String), Pool>,
    term: Duration,
    /// Terms that were set beside the file, by group, class and tenant: they hold over the file's.
    changed: BTreeMap<(String, String, String), Terms>,
    /// Nothing is promised before.
    quiet_until: Instant,
}

/// What becomes of a request.
pub enum Step {
    /// It is answered.
    Done(Answer),
    /// It may be answered when this has been written.
    Write {
        /// The answer then.
        answer: Answer,
        /// What must be written.
        records: Vec<Record>,
        /// Where terms are to change, those that were set before: see [`Book::forget`].
        before: Option<Terms>,
    },
}

/// What holds of records in the order of writing: of each client's promises only the last, which says all it may use.
fn latest(records: &[Record]) -> Vec<&Record> {
    let mut last = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        if let Record::Grant {
            group,
            class,
            tenant,
            client,
            ..
        } = record
        {
            last.insert((group, class, tenant, client), index);
        }
    }
    let kept: BTreeSet<usize> = last.into_values().collect();
    let holds = |(index, record): (usize, _)| match record {
        record @ &Record::Set(_) => Some(record),
        record => kept.contains(&index).then_some(record),
    };
    records.iter().enumerate().filter_map(holds).collect()
}

impl Book {
    /// With what was written before.
    ///
    /// # Errors
    /// When the file's guarantees exceed what can be promised.
    pub fn open(settings: &Settings, loaded: &Loaded, now: Instant) -> Result<Self, BookError> {
        let own_ms = milliseconds(settings.term);
        let pools = settings.pools.iter().map(|(group, class, bound)| {
            let pool = Pool::new(bound.clone(), settings.term);
            ((group.clone(), class.clone()), pool)
        });
        let mut book = Self {
            pools: pools.collect(),
            term: settings.term,
            changed: BTreeMap::new(),
            quiet_until: match loaded.complete {
                true => Instant::ZERO,
                // What is missing may have been promised under another term.
                false => now.saturating_add(Duration::from_ms(own_ms.max(loaded.term_ms))),
            },
        };
        for terms in &settings.tenants {
            book.set(terms)?;
        }
        for record in latest(&loaded.records) {
            match record {
                // What was set may not fit a file that was changed since: then the file holds.
                Record::Set(terms) => {
                    if book.set(terms).is_ok() {
                        book.note(terms);
                    }
                }
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

    /// Does what a request asks for; terms that an operator changes are only noted, and hold from [`Book::set`] on.
    ///
    /// # Errors
    /// Why it is refused.
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
        // Refusals come before the first promise: one that nobody hears of would be in the way for a term.
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
                // A client asks for all its groups and classes, and its tenant need not have terms in each.
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
                // It may still be using a larger one.
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
        Ok(Step::Write {
            answer,
            records,
            before: None,
        })
    }

    /// Lets terms hold from now on.
    ///
    /// # Errors
    /// When they exceed what can be promised.
    pub fn set(&mut self, terms: &Terms) -> Result<(), BookError> {
        let pool = self.pool(&terms.group, &terms.class)?;
        Ok(pool.set(&terms.tenant, pool_terms(terms))?)
    }

    /// The terms that it replaces.
    fn note(&mut self, terms: &Terms) -> Option<Terms> {
        self.changed.insert(place_of(terms), terms.clone())
    }

    /// Terms that were to change could not be written: those of before stay.
    pub fn forget(&mut self, terms: &Terms, before: Option<Terms>) {
        match before {
            Some(before) => self.note(&before),
            None => self.changed.remove(&place_of(terms)),
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
        // A store that is put in order before they hold must not lose them.
        let before = self.note(terms);
        Ok(Step::Write {
            answer: Answer::Done,
            records: vec![Record::Set(terms.clone())],
            before,
        })
    }

    /// All that a restart needs.
    pub fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.changed.values().cloned().map(Record::Set).collect();
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
                    promised_bytes_per_s: share.promised,
                });
                PoolState {
                    group: group.clone(),
                    class: class.clone(),
                    bound_bytes_per_s: pool.bound().bytes_per_s(),
                    arithmetic: pool.bound().to_string(),
                    tenants: tenants.collect(),
                    promised_bytes_per_s: pool.promised(),
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

/// Rounded up: what is written down never ends too early.
fn milliseconds(term: Duration) -> u64 {
    term.as_ps().div_ceil(1_000_000_000)
}
