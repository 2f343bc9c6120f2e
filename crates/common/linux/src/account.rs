//! The account of a service's client, and how many places each account may hold.
//!
//! Problem: a service has a limited number of places (connections, sessions, listeners). Every local process may
//! connect, and a user id does not identify a tenant: containers share user 0, and one user may open thousands of
//! connections. Method: an [`Account`] is user, responsible cgroup and user namespace, or an address of the network.
//! [`Places`] has three bounds: each account has at most `per_account` places; all user namespaces of one user and
//! cgroup together have twice as many, because an unprivileged user can make user namespaces at will; and the last
//! `reserve` places go only to accounts that hold fewer than `few`. An account that holds many therefore cannot take
//! the last place from one that holds few. [`Waiting`] sheds members of such places for newcomers. Limits: a person
//! with many users, containers or addresses has as many accounts; an IPv6 customer with a /48 has 65,536.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// The account that places are counted for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// User id in this process's user namespace.
    pub user: u32,
    /// The cgroup that the host made, not the tenant; see [`crate::cgroup::responsible`]. Empty if unknown.
    pub group: String,
    /// Inode of the user namespace; 0 if unknown.
    pub user_namespace: u64,
    /// The network's address, whose user, cgroup and namespace are unknown; `None` for a process of this machine.
    pub address: Option<IpAddr>,
}

impl Account {
    /// The account of a user without further information.
    pub fn of_user(user: u32) -> Self {
        Self {
            user,
            ..Self::default()
        }
    }

    /// The account of an address. One host has 2^64 IPv6 addresses, so the first 64 bits count; of a link-local address
    /// all count, because these bits are those of every host on the link.
    pub fn of_address(address: IpAddr) -> Self {
        let address = match address.to_canonical() {
            IpAddr::V6(address) if !address.is_unicast_link_local() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
            }
            address => address,
        };
        Self {
            address: Some(address),
            ..Self::of_user(u32::MAX)
        }
    }

    /// Whether both have one owner: they differ in the user namespace at most.
    pub fn has_owner_of(&self, other: &Self) -> bool {
        owner(self) == owner(other)
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.address, self.group.as_str()) {
            (Some(address), _) => write!(f, "address {address}"),
            (None, "") => write!(f, "user {}", self.user),
            (None, group) => write!(f, "user {} in {group}", self.user),
        }
    }
}

/// Number of places and their distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Total number of places.
    pub total: usize,
    /// Largest number of places of one account.
    pub per_account: usize,
    /// Number of last places that are kept for accounts that hold few.
    pub reserve: usize,
    /// An account with at least this many places gets none of the reserve.
    pub few: usize,
}

impl PlaceLimits {
    /// The same shares of another total. Rounds down; each account keeps one place at least.
    pub fn scaled_to(self, total: usize) -> Self {
        let share =
            |count: usize| (count as u128 * total as u128 / self.total.max(1) as u128) as usize;
        Self {
            total,
            per_account: share(self.per_account).max(1),
            reserve: share(self.reserve),
            few: self.few,
        }
    }
}

/// Why no place is available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NoPlace {
    #[error("{account} holds {held} places, which is the most for one account")]
    Account { account: Account, held: usize },
    #[error(
        "{used} of {total} places are taken, and the rest is kept for accounts that hold fewer than {few}"
    )]
    Reserved {
        used: usize,
        total: usize,
        /// Only accounts with fewer places than this may take the rest.
        few: usize,
    },
}

/// Taken places by account.
#[derive(Clone, Debug, Default)]
pub struct Places {
    used: usize,
    by_account: BTreeMap<Account, usize>,
    /// Taken places by owner, over all user namespaces.
    by_owner: BTreeMap<Owner, usize>,
}

impl Places {
    /// Takes a place for `account`. Fails if no place is available; then nothing is taken.
    pub fn take(&mut self, limits: &PlaceLimits, account: &Account) -> Result<(), NoPlace> {
        self.check(limits, account)?;
        self.used += 1;
        *self.by_account.entry(account.clone()).or_default() += 1;
        *self.by_owner.entry(owner(account)).or_default() += 1;
        Ok(())
    }

    /// Checks that a place is available for `account`. Fails if no place is available.
    pub fn check(&self, limits: &PlaceLimits, account: &Account) -> Result<(), NoPlace> {
        let (held, of_owner) = (self.of(account), self.of_owner(account));
        if held >= limits.per_account || of_owner >= limits.per_account.saturating_mul(2) {
            return Err(NoPlace::Account {
                account: account.clone(),
                held,
            });
        }
        let open = limits.total.saturating_sub(limits.reserve);
        let reserved = self.used >= open && of_owner >= limits.few;
        match reserved || self.used >= limits.total {
            true => Err(NoPlace::Reserved {
                used: self.used,
                total: limits.total,
                few: limits.few,
            }),
            false => Ok(()),
        }
    }

    /// Returns a place of `account`. Panics if it holds none.
    pub fn give_back(&mut self, account: &Account) {
        self.used -= 1;
        less(&mut self.by_account, account);
        less(&mut self.by_owner, &owner(account));
    }

    /// Number of places that `account` holds.
    pub fn of(&self, account: &Account) -> usize {
        self.by_account.get(account).copied().unwrap_or(0)
    }

    /// Number of taken places.
    pub fn used(&self) -> usize {
        self.used
    }

    fn of_owner(&self, account: &Account) -> usize {
        self.by_owner.get(&owner(account)).copied().unwrap_or(0)
    }

    /// The account in `among` whose owner holds most places; the first of several.
    pub fn greediest<'a>(&self, among: impl Iterator<Item = &'a Account>) -> Option<&'a Account> {
        among.fold(None, |most, account| match most {
            Some(other) if self.of_owner(other) >= self.of_owner(account) => most,
            _ => Some(account),
        })
    }
}

/// Address, user and cgroup.
pub(crate) type Owner = (Option<IpAddr>, u32, String);

pub(crate) fn owner(account: &Account) -> Owner {
    (account.address, account.user, account.group.clone())
}

/// Members of places that newcomers displace, such as connections before authentication; the least `K` is the oldest.
#[derive(Clone, Debug)]
pub struct Waiting<K> {
    limits: PlaceLimits,
    places: Places,
    members: BTreeMap<K, Account>,
}

impl<K: Ord + Copy> Waiting<K> {
    /// No members.
    pub fn new(limits: PlaceLimits) -> Self {
        Self {
            limits,
            places: Places::default(),
            members: BTreeMap::new(),
        }
    }

    /// The member that must be removed before one of `account` is added; `None` if there is room. It is the oldest of
    /// the account that has too many: the newcomer's own if it has all its places, otherwise that with most.
    pub fn in_the_way(&self, account: &Account) -> Option<K> {
        match self.places.check(&self.limits, account) {
            Ok(()) => None,
            Err(NoPlace::Account { .. }) => self.oldest(|other| other.has_owner_of(account)),
            Err(NoPlace::Reserved { .. }) => self.of_greediest(),
        }
    }

    /// The oldest member of the owner that has most.
    pub fn of_greediest(&self) -> Option<K> {
        let greediest = self.places.greediest(self.members.values())?;
        self.oldest(|other| other.has_owner_of(greediest))
    }

    fn oldest(&self, of: impl Fn(&Account) -> bool) -> Option<K> {
        let mut members = self.members.iter();
        members
            .find(|(_, account)| of(account))
            .map(|(key, _)| *key)
    }

    /// Adds a member under a key that no other member has. Returns false if there is no room.
    pub fn add(&mut self, key: K, account: Account) -> bool {
        let is_taken = self.places.take(&self.limits, &account).is_ok();
        if is_taken {
            let other = self.members.insert(key, account);
            assert!(other.is_none(), "a key of its own");
        }
        is_taken
    }

    /// Removes a member. Returns its account, or `None` if there was none.
    pub fn remove(&mut self, key: K) -> Option<Account> {
        let account = self.members.remove(&key)?;
        self.places.give_back(&account);
        Some(account)
    }

    /// The oldest member.
    pub fn first(&self) -> Option<K> {
        self.members.first_key_value().map(|(key, _)| *key)
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("a place was taken");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: PlaceLimits = PlaceLimits {
        total: 20,
        per_account: 8,
        reserve: 6,
        few: 2,
    };

    fn account(user: u32, group: &str, user_namespace: u64) -> Account {
        Account {
            user,
            group: group.to_owned(),
            user_namespace,
            address: None,
        }
    }

    fn fill(places: &mut Places, account: &Account) -> usize {
        std::iter::from_fn(|| places.take(&LIMITS, account).ok()).count()
    }

    #[test]
    fn greedy_accounts_leave_the_reserve_to_others() {
        let mut places = Places::default();
        assert_eq!(fill(&mut places, &account(1, "/a", 1)), 8);
        // 14 places are open to every account.
        assert_eq!(fill(&mut places, &account(2, "/a", 1)), 6);
        let modest: Vec<usize> = (3..8)
            .map(|user| fill(&mut places, &account(user, "/a", 1)))
            .collect();
        assert_eq!(modest, [2, 2, 2, 0, 0]);
        assert_eq!(places.used(), 20);
    }

    #[test]
    fn containers_of_one_user_are_counted_apart_and_user_namespaces_are_not() {
        let mut places = Places::default();
        assert_eq!(fill(&mut places, &account(0, "/pod-a", 1)), 8);
        assert_eq!(fill(&mut places, &account(0, "/pod-b", 1)), 6);
        let mut places = Places::default();
        let limits = PlaceLimits {
            per_account: 4,
            ..LIMITS
        };
        let taken = (0..100)
            .filter(|namespace| {
                let account = account(1_000, "/a", *namespace);
                places.take(&limits, &account).is_ok()
            })
            .count();
        assert_eq!(taken, 8, "a hundred user namespaces of one user");
    }

    #[test]
    fn the_addresses_of_one_host_are_one_account() {
        let of = |text: &str| Account::of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1").to_string(), "address 2001:db8::");
    }

    #[test]
    fn a_newcomer_displaces_its_own_oldest_or_the_greediests() {
        let mut waiting = Waiting::new(LIMITS);
        let mut next = 0;
        let mut come = |waiting: &mut Waiting<u32>, account: &Account| {
            let gone = waiting.in_the_way(account);
            gone.into_iter().for_each(|key| drop(waiting.remove(key)));
            next += 1;
            assert!(waiting.add(next, account.clone()));
            gone
        };
        let (pod_a, pod_b) = (account(0, "/pod-a", 1), account(0, "/pod-b", 1));
        for _ in 0..LIMITS.per_account {
            assert_eq!(come(&mut waiting, &pod_a), None);
        }
        assert_eq!(come(&mut waiting, &pod_a), Some(1), "its own oldest");
        assert_eq!(come(&mut waiting, &pod_b), None);
        for user in 0..400 {
            come(&mut waiting, &account(user, "/c", 1));
        }
        assert!(waiting.len() <= LIMITS.total);
        assert!(waiting.places.of(&pod_a) < LIMITS.per_account);
        assert_eq!(waiting.remove(1), None);
    }

    #[test]
    fn the_greediest_is_who_holds_most() {
        let mut places = Places::default();
        let (one, two) = (account(1, "/a", 1), account(2, "/a", 1));
        places.take(&LIMITS, &one).unwrap();
        fill(&mut places, &two);
        assert_eq!(places.greediest([&one, &two].into_iter()), Some(&two));
        assert_eq!(places.greediest([].into_iter()), None);
    }

    proptest! {
        /// Goal: counts never drift, and no account exceeds its bound. Method: random takes and returns against a list.
        #[test]
        fn places_are_conserved(steps in prop::collection::vec((0_u32..4, 0_u64..2, any::<bool>()), 0..200)) {
            let (mut places, mut held) = (Places::default(), Vec::new());
            for (user, namespace, takes) in steps {
                let account = account(user, "/a", namespace);
                if takes {
                    if places.take(&LIMITS, &account).is_ok() {
                        held.push(account);
                    }
                } else if let Some(at) = held.iter().position(|other| *other == account) {
                    places.give_back(&held.swap_remove(at));
                }
                prop_assert_eq!(places.used(), held.len());
                prop_assert!(held.len() <= LIMITS.total);
                for of in &held {
                    let count = held.iter().filter(|other| *other == of).count();
                    prop_assert_eq!(places.of(of), count);
                    prop_assert!(count <= LIMITS.per_account);
                }
            }
            for account in held {
                places.give_back(&account);
            }
            prop_assert_eq!(places.used(), 0);
        }
    }
}
