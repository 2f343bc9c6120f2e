//! All pools of a server, and that no promise is given before it is written down.
//!
//! Method: what a restart needs - terms that were set and promises in force - goes to the [`Store`] first; if that
//! fails, nothing is promised. After a restart every written promise counts for a whole term more. Where the machine went
//! down and may have lost what was written last, the book promises nothing for the first term.
//! Units: bytes per second; time is an argument.

use super::protocol::{Answer, Leased, PoolState, Request, TenantState, Terms, Want};
use super::settings::Settings;
use super::store::{Record, Store, StoreError};
use isolane_core::policy::quota::{Pool, Terms as PoolTerms};
use isolane_core::units::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of a client's name.
const CLIENT_MAX: usize = 128;

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The policy refuses.
    #[error(transparent)]
    Quota(#[from] isolane_core::policy::quota::QuotaError),
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
    /// It cannot be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All pools.
pub struct Book {
    pools: BTreeMap<(String, String), Pool>,
    store: Box<dyn Store>,
    term: Duration,
    /// Terms that were set beside the file, by group, class and tenant: they hold over the file's.
    changed: BTreeMap<(String, String, String), Terms>,
    /// Nothing is promised before.
    quiet_until: Instant,
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
    /// Reads what was written before.
    ///
    /// # Errors
    /// When the store cannot be read, or the file's guarantees exceed what can be promised.
    pub fn open(
        settings: &Settings,
        mut store: Box<dyn Store>,
        now: Instant,
    ) -> Result<Self, BookError> {
        let loaded = store.load()?;
        let pools = settings.pools.iter().map(|(group, class, bound)| {
            let pool = Pool::new(bound.clone(), settings.term);
            ((group.clone(), class.clone()), pool)
        });
        let mut book = Self {
            pools: pools.collect(),
            store,
            term: settings.term,
            changed: BTreeMap::new(),
            quiet_until: match loaded.complete {
                true => Instant::ZERO,
                false => now.saturating_add(settings.term),
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
                } => {
                    if let Some(pool) = book.pools.get_mut(&(group.clone(), class.clone())) {
                        pool.restore(now, tenant, client, *serial, *rate_bytes_per_s);
                    }
                }
            }
        }
        book.compact()?;
        Ok(book)
    }

    /// Answers a request.
    pub fn answer(&mut self, now: Instant, request: Request) -> Answer {
        let answered = match request {
            Request::Renew {
                tenant,
                client,
                wants,
            } => self.renew(now, &tenant, &client, &wants),
            Request::Release { tenant, client } => {
                for pool in self.pools.values_mut() {
                    pool.release(now, &tenant, &client);
                }
                Ok(Answer::Done)
            }
            Request::Show => Ok(Answer::Pools(self.show(now))),
            Request::Set(terms) => self.change(&terms).map(|()| Answer::Done),
        };
        answered.unwrap_or_else(|error| Answer::Error(error.to_string()))
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
    ) -> Result<Answer, BookError> {
        if !(1..=CLIENT_MAX).contains(&client.len()) {
            return Err(BookError::Client(client.len()));
        }
        let quiet = now < self.quiet_until;
        let term_ms = self.term.as_ps() / 1_000_000_000;
        let (mut leases, mut records) = (Vec::new(), Vec::new());
        for want in wants {
            let pool = self.pool(&want.group, &want.class)?;
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
            });
            leases.push(Leased {
                serial: lease.serial,
                rate_bytes_per_s: lease.rate,
                term_ms,
            });
        }
        self.store.append(&records)?;
        if self.store.is_long() {
            self.compact()?;
        }
        Ok(Answer::Leases(leases))
    }

    fn set(&mut self, terms: &Terms) -> Result<(), BookError> {
        let pool_terms = PoolTerms {
            weight: terms.weight,
            guarantee: terms.guarantee_bytes_per_s,
        };
        let pool = self.pool(&terms.group, &terms.class)?;
        Ok(pool.set(&terms.tenant, pool_terms)?)
    }

    fn note(&mut self, terms: &Terms) {
        let key = (
            terms.group.clone(),
            terms.class.clone(),
            terms.tenant.clone(),
        );
        self.changed.insert(key, terms.clone());
    }

    /// Changes a tenant's terms for good.
    fn change(&mut self, terms: &Terms) -> Result<(), BookError> {
        self.set(terms)?;
        self.note(terms);
        Ok(self.store.append(&[Record::Set(terms.clone())])?)
    }

    /// Writes only what is in force.
    fn compact(&mut self) -> Result<(), BookError> {
        let mut records: Vec<Record> = self.changed.values().cloned().map(Record::Set).collect();
        for ((group, class), pool) in &self.pools {
            records.extend(
                pool.holdings()
                    .map(|(tenant, client, serial, rate)| Record::Grant {
                        group: group.clone(),
                        class: class.clone(),
                        tenant: tenant.to_owned(),
                        client: client.to_owned(),
                        serial,
                        rate_bytes_per_s: rate,
                    }),
            );
        }
        Ok(self.store.replace(&records)?)
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
