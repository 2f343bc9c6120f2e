//! Thread domains: objects of which the application promises that one thread at a time uses them.
//!
//! Problem: a provider posts to the queue pairs of one thread domain without a lock, also where they share a doorbell
//! page. The application keeps its promise, but the pump posts waiting work by another thread. Method: `ibv_alloc_td`'s
//! domains come to queue pairs by a parent domain. A parent domain with a thread domain is noted, and each queue pair
//! that is created in it gets the domain's lock. [`Domains::post`] holds the lock around the provider's post. Queue pairs outside
//! thread domains keep the provider's function, so their path is unchanged. Limits: a queue pair that is not paced and
//! is posted by extended calls does not pass through here. Source: ibv_alloc_td(3), ibv_alloc_parent_domain(3).

use crate::lock::Lock;
use crate::queue_pair::PostSend;
use crate::table::{Table, lock};
use isolane_rdma_verbs_sys::*;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;

/// A queue pair's provider function and its thread domain's lock.
struct Member {
    post_send: PostSend,
    domain: &'static Lock<()>,
}

/// The thread domains of a process.
#[derive(Default)]
pub struct Domains {
    /// Locks by address of the thread domain. They are never freed.
    locks: Mutex<BTreeMap<usize, &'static Lock<()>>>,
    /// Parent domains with a thread domain, by address.
    parents: Mutex<BTreeMap<usize, &'static Lock<()>>>,
    /// Members by address of the function and of the lock. They are never freed.
    kinds: Mutex<BTreeMap<(usize, usize), &'static Member>>,
    members: Table<Member>,
}

impl std::fmt::Debug for Domains {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Domains").finish_non_exhaustive()
    }
}

impl Domains {
    /// Notes that `parent` has been created with `thread_domain`, or with none. Its entry stays until another parent
    /// domain has its address; a plain domain there has a lock without need.
    pub fn parent(&self, parent: *mut ibv_pd, thread_domain: *mut ibv_td) {
        let mut parents = lock(&self.parents);
        // The address may be that of an earlier domain.
        parents.remove(&parent.addr());
        if !thread_domain.is_null() {
            let new = || &*Box::leak(Box::new(Lock::new(())));
            let mut locks = lock(&self.locks);
            let domain = *locks.entry(thread_domain.addr()).or_insert_with(new);
            parents.insert(parent.addr(), domain);
        }
    }

    /// Notes a new queue pair of a protection domain. Returns the function by which it is posted: the provider's, or in a
    /// thread domain `locked`, which calls [`Self::post`].
    pub fn enter(
        &self,
        pd: *mut ibv_pd,
        qp: *mut ibv_qp,
        post_send: PostSend,
        locked: PostSend,
    ) -> PostSend {
        let Some(&domain) = lock(&self.parents).get(&pd.addr()) else {
            return post_send;
        };
        let kind = (post_send as usize, std::ptr::from_ref(domain).addr());
        let new = || &*Box::leak(Box::new(Member { post_send, domain }));
        let member = *lock(&self.kinds).entry(kind).or_insert_with(new);
        self.members.insert(qp.addr(), member);
        locked
    }

    /// Notes that a queue pair is gone.
    pub fn leave(&self, qp: *mut ibv_qp) {
        if self.members.find(qp.addr()).is_some() {
            self.members.remove(qp.addr());
        }
    }

    /// Whether the queue pair is in a thread domain.
    pub fn has(&self, qp: *mut ibv_qp) -> bool {
        self.members.find(qp.addr()).is_some()
    }

    /// Posts to a queue pair of a thread domain, while no other thread posts in this domain; `None` if the queue pair is
    /// in none.
    ///
    /// # Safety
    /// As for `ibv_post_send`.
    pub unsafe fn post(
        &self,
        qp: *mut ibv_qp,
        first: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> Option<c_int> {
        let member = self.members.find(qp.addr())?;
        let _alone = member.domain.lock();
        // SAFETY: passed on.
        Some(unsafe { (member.post_send)(qp, first, bad) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null_mut, without_provenance_mut};
    use std::sync::atomic::{AtomicU32, Ordering};

    static INSIDE: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn provider(
        _: *mut ibv_qp,
        _: *mut ibv_send_wr,
        _: *mut *mut ibv_send_wr,
    ) -> c_int {
        let inside = INSIDE.fetch_add(1, Ordering::SeqCst) + 1;
        MOST.fetch_max(inside, Ordering::SeqCst);
        std::thread::yield_now();
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        0
    }

    unsafe extern "C" fn locked(
        _: *mut ibv_qp,
        _: *mut ibv_send_wr,
        _: *mut *mut ibv_send_wr,
    ) -> c_int {
        unreachable!("the test calls the domains")
    }

    fn pd(at: usize) -> *mut ibv_pd {
        without_provenance_mut(at)
    }

    fn qp(at: usize) -> *mut ibv_qp {
        without_provenance_mut(at)
    }

    /// Goal: two threads never post to queue pairs of one thread domain at once. Method: a provider counts its callers.
    #[test]
    fn queue_pairs_of_a_thread_domain_are_posted_one_at_a_time() {
        let domains = Domains::default();
        for parent in [pd(64), pd(128)] {
            domains.parent(parent, without_provenance_mut(4_096));
        }
        for (parent, qp) in [(pd(64), qp(1_024)), (pd(128), qp(2_048))] {
            let given = domains.enter(parent, qp, provider, locked);
            assert_eq!(given as usize, locked as *const () as usize);
        }
        std::thread::scope(|scope| {
            for at in [1_024, 2_048] {
                let domains = &domains;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        // SAFETY: the provider reads nothing.
                        let answer = unsafe { domains.post(qp(at), null_mut(), null_mut()) };
                        assert_eq!(answer, Some(0));
                    }
                });
            }
        });
        assert_eq!(MOST.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn queue_pairs_outside_keep_the_providers_function() {
        let domains = Domains::default();
        domains.parent(pd(64), null_mut());
        for parent in [null_mut(), pd(64), pd(128)] {
            let given = domains.enter(parent, qp(1_024), provider, locked);
            assert_eq!(given as usize, provider as *const () as usize);
        }
        assert!(!domains.has(qp(1_024)));
        domains.parent(pd(64), without_provenance_mut(4_096));
        domains.enter(pd(64), qp(1_024), provider, locked);
        assert!(domains.has(qp(1_024)));
        domains.leave(qp(1_024));
        assert!(!domains.has(qp(1_024)));
    }
}
