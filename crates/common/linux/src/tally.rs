//! Counters of each listening service of this process, under one name scheme.
//!
//! Method: a [`Tally`] belongs to one service. [`figures`] has those of all services, for the program's metrics.
//! Units: connections, bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All sessions are taken, or all that one account may have.
    Sessions,
    /// The memory of all connections is taken.
    Memory,
}

/// Why a connection is closed in favour of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// A newcomer needed its place.
    Place,
    /// It held the most memory when none was left, or the kernel had none.
    Memory,
    /// No descriptor was left.
    Descriptor,
}

impl Refusal {
    /// All reasons with their names.
    pub const ALL: [(Self, &'static str); 2] =
        [(Self::Sessions, "sessions"), (Self::Memory, "memory")];
}

impl Shed {
    /// All reasons with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Place, "place"),
        (Self::Memory, "memory"),
        (Self::Descriptor, "descriptor"),
    ];
}

/// What a service has counted; totals are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Connections accepted.
    pub accepted_total: u64,
    /// Connections or requests refused, by [`Refusal`].
    pub refused_total: [u64; 2],
    /// Connections closed for others, by [`Shed`].
    pub shed_total: [u64; 3],
    /// Connections whose exchange took too long.
    pub late_total: u64,
    /// Times that the kernel had no descriptor, memory or thread for a connection.
    pub starved_total: u64,
    /// Connections that have sent a whole request or have proved who they are.
    pub open: usize,
    /// The other connections.
    pub entering: usize,
    /// Memory of requests and answers, bytes.
    pub body_bytes: u64,
}

impl Figures {
    /// Adds those of another listener of the service.
    fn add(&mut self, other: &Self) {
        self.accepted_total += other.accepted_total;
        for (sum, more) in self.refused_total.iter_mut().zip(other.refused_total) {
            *sum += more;
        }
        for (sum, more) in self.shed_total.iter_mut().zip(other.shed_total) {
            *sum += more;
        }
        self.late_total += other.late_total;
        self.starved_total += other.starved_total;
        self.open += other.open;
        self.entering += other.entering;
        self.body_bytes += other.body_bytes;
    }
}

/// The counters of one service.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Figures>>);

static SERVICES: Mutex<Services> = Mutex::new(Services {
    tallies: Vec::new(),
    ended: BTreeMap::new(),
});

#[derive(Default)]
struct Services {
    tallies: Vec<(&'static str, Arc<Mutex<Figures>>)>,
    /// Sums of the listeners that have ended: a total that fell would be read as a restart of the program.
    ended: BTreeMap<&'static str, Figures>,
}

impl Services {
    fn bury(&mut self) {
        let Self { tallies, ended } = self;
        tallies.retain(|(service, tally)| {
            let is_used = Arc::strong_count(tally) > 1;
            if !is_used {
                ended.entry(service).or_default().add(&lock(tally));
            }
            is_used
        });
    }
}

impl Tally {
    /// Counters that [`figures`] shows under this name.
    pub fn of(service: &'static str) -> Self {
        let tally = Self::default();
        let mut services = lock(&SERVICES);
        services.bury();
        services.tallies.push((service, Arc::clone(&tally.0)));
        tally
    }

    /// Changes the figures.
    pub fn count(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut lock(&self.0));
    }

    /// Counts a refused connection or request.
    pub fn refused(&self, why: Refusal) {
        self.count(|figures| figures.refused_total[why as usize] += 1);
    }

    /// Counts a connection that is closed for others.
    pub fn shed(&self, why: Shed) {
        self.count(|figures| figures.shed_total[why as usize] += 1);
    }

    /// The figures at this moment.
    pub fn figures(&self) -> Figures {
        *lock(&self.0)
    }
}

/// The figures of every listening service of this process, listeners that have ended included.
pub fn figures() -> BTreeMap<&'static str, Figures> {
    let mut services = lock(&SERVICES);
    services.bury();
    let mut all = services.ended.clone();
    for (service, tally) in &services.tallies {
        all.entry(service).or_default().add(&lock(tally));
    }
    all
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_of_one_service_are_summed_and_an_ended_one_stays_in_the_totals() {
        let [one, two] = [Tally::of("tally-test"), Tally::of("tally-test")];
        one.shed(Shed::Memory);
        two.shed(Shed::Memory);
        two.refused(Refusal::Memory);
        two.count(|figures| figures.open = 3);
        let sum = figures()["tally-test"];
        assert_eq!((sum.shed_total, sum.refused_total), ([0, 2, 0], [0, 1]));
        assert_eq!(sum.open, 3);
        two.count(|figures| figures.open = 0);
        drop(two);
        let _three = Tally::of("tally-test");
        let sum = figures()["tally-test"];
        assert_eq!((sum.shed_total[1], sum.open), (2, 0));
    }

    #[test]
    fn reasons_are_in_the_order_of_their_counts() {
        for (at, (reason, _)) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
        for (at, (reason, _)) in Shed::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
