//! The ledger with a store in memory: rejections, records, restarts.

use super::*;
use crate::quota::protocol::{PoolState, Terms, Want};
use crate::quota::settings::parse;
use crate::quota::store::Loaded;
use crate::table::{CLASSES_MAX, GROUPS_MAX};
use isolane_common_quantities::units::Duration;
use std::sync::mpsc;

/// The records of a store, whether it fails from now on, and whether it is too long and cannot be compacted.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<(Vec<Record>, bool, bool)>>);

impl Memory {
    fn fail(&self, fails: bool) {
        self.0.lock().unwrap().1 = fails;
    }

    fn records(&self) -> Vec<Record> {
        self.0.lock().unwrap().0.clone()
    }
}

impl Store for Memory {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(Loaded {
            records: self.records(),
            complete: true,
            term_ms: 0,
        })
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let mut kept = self.0.lock().unwrap();
        if kept.1 {
            return Err(StoreError::Taken("memory".to_owned()));
        }
        kept.0.extend_from_slice(records);
        Ok(())
    }

    fn replace(&mut self, records: &[Record], _: u64) -> Result<(), StoreError> {
        let mut kept = self.0.lock().unwrap();
        if kept.2 {
            return Err(StoreError::Taken("long memory".to_owned()));
        }
        kept.0 = records.to_vec();
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.0.lock().unwrap().0.len() > 3
    }
}

/// Three classes as in the guide; tenant `search` has terms in the highest one only, `gone` in both.
fn settings(term: &str, gone: &str) -> Settings {
    let classes: String = [("critical", 8), ("normal", 4), ("scavenger", 1)]
        .map(|(name, weight)| format!("[[class]]\nname = \"{name}\"\nweight = {weight}\n"))
        .concat();
    let tenant = |name: &str, class: &str| {
        format!("[[tenant]]\nname = \"{name}\"\ngroup = \"rack1\"\nclass = \"{class}\"\n")
    };
    let tenants = tenant("search", "critical")
        + &tenant("ads", "critical")
        + &tenant(gone, "critical")
        + &tenant(gone, "normal");
    let text = format!(
        "term = \"{term}\"\nstore = \"/unused\"\n{classes}[[group]]\nname = \"rack1\"\nline_rate = \"100Gb/s\"\n\
         load = 0.8\nburst = 1.4\n{tenants}"
    );
    parse("test", &text).unwrap()
}

fn ledger(memory: &Memory, settings: &Settings, now_ms: u64) -> Ledger {
    Ledger::open(settings, Box::new(memory.clone()), at(now_ms)).unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

/// The leases of a client of `tenant` with `demand` in each of `classes`.
fn ask(ledger: &Ledger, ms: u64, tenant: &str, classes: &[&str], demand: u64) -> Answer {
    let wants = classes.iter().map(|class| Want {
        group: "rack1".to_owned(),
        class: (*class).to_owned(),
        demand_bytes_per_s: demand,
        holds: None,
    });
    let request = Request::Renew {
        tenant: tenant.to_owned(),
        client: "here".to_owned(),
        wants: wants.collect(),
    };
    ledger.answer(at(ms), request)
}

fn show(ledger: &Ledger) -> Vec<PoolState> {
    match ledger.answer(at(0), Request::Show) {
        Answer::Pools(pools) => pools,
        other => panic!("{other:?}"),
    }
}

fn rates(answer: Answer) -> Vec<u64> {
    match answer {
        Answer::Leases(leases) => leases.iter().map(|lease| lease.rate_bytes_per_s).collect(),
        other => panic!("{other:?}"),
    }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Error(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// Terms of `tenant` that differ from those of the settings.
fn terms(tenant: &str) -> Terms {
    Terms {
        tenant: tenant.to_owned(),
        group: "rack1".to_owned(),
        class: "critical".to_owned(),
        weight: 7,
        guarantee_bytes_per_s: 1,
    }
}

#[test]
fn a_tenant_with_terms_in_some_classes_gets_its_leases_there() {
    let memory = Memory::default();
    let ledger = ledger(&memory, &settings("3s", "gone"), 0);
    // Clients request every group and class in their settings.
    let answer = ask(&ledger, 0, "search", &["critical", "normal"], 1_000_000);
    assert_eq!(rates(answer), [1_000_000, 0]);
    // An unknown tenant is still an error and gets no promise.
    let error = reason(ask(&ledger, 0, "nobody", &["critical", "normal"], 1));
    assert!(error.contains("isolane rpc quota set"), "{error}");
}

#[test]
fn a_renewal_that_is_refused_promises_nothing() {
    let memory = Memory::default();
    let ledger = ledger(&memory, &settings("3s", "gone"), 0);
    let error = reason(ask(&ledger, 0, "search", &["critical", "urgent"], 1 << 50));
    assert!(error.contains("class \"urgent\""), "{error}");
    let promised = show(&ledger)[0].leased_bytes_per_s;
    assert_eq!((promised, memory.records().len()), (0, 0));
    let many = vec!["critical"; GROUPS_MAX * CLASSES_MAX + 1];
    let error = reason(ask(&ledger, 0, "search", &many, 1));
    assert!(error.contains("at most 2048"), "{error}");
}

#[test]
fn terms_that_cannot_be_written_down_do_not_change() {
    let memory = Memory::default();
    let ledger = ledger(&memory, &settings("3s", "gone"), 0);
    memory.fail(true);
    reason(ledger.answer(at(0), Request::Set(terms("ads"))));
    let weight = |ledger: &Ledger| show(ledger)[0].tenants[0].weight;
    assert_eq!(weight(&ledger), 1);
    memory.fail(false);
    assert_eq!(
        ledger.answer(at(0), Request::Set(terms("ads"))),
        Answer::Done
    );
    assert_eq!(weight(&ledger), 7);
    for name in ["", "a/b", "two words", &"x".repeat(65)] {
        let error = reason(ledger.answer(at(0), Request::Set(terms(name))));
        assert!(error.contains("1 to 64 letters"), "{error}");
    }
}

/// Goal: an operator who reads the log learns of a failing store, however many clients learn of it meanwhile, and of a failed compaction that no
/// client learns of.
#[test]
fn a_failing_store_is_said_once_in_the_log_and_once_when_it_works_again() {
    let memory = Memory::default();
    let ledger = ledger(&memory, &settings("3s", "gone"), 0);
    let mut ms = 0;
    let mut set = || {
        ms += 1_000;
        let terms = Terms {
            tenant: "ads".to_owned(),
            group: "rack1".to_owned(),
            class: "critical".to_owned(),
            weight: 7,
            guarantee_bytes_per_s: ms,
        };
        let answer = ledger.answer(at(ms), Request::Set(terms));
        (answer == Answer::Done, ledger.take_lines())
    };
    assert_eq!(set(), (true, vec![]));
    memory.fail(true);
    let (is_done, lines) = set();
    assert!(!is_done && lines.len() == 1, "{lines:?}");
    assert!(lines[0].contains("memory belongs to another"), "{lines:?}");
    assert!(lines[0].contains("no promises until"), "{lines:?}");
    assert_eq!(set(), (false, vec![]));
    memory.fail(false);
    let again = "the store can be written again".to_owned();
    assert_eq!(set(), (true, vec![again]));
    memory.0.lock().unwrap().2 = true;
    let (is_done, lines) = (0..3)
        .map(|_| set())
        .reduce(|(is_done, lines), next| (is_done && next.0, [lines, next.1].concat()))
        .unwrap();
    assert!(is_done && lines.len() == 1, "{lines:?}");
    assert!(lines[0].contains("long memory"), "{lines:?}");
    assert!(
        lines[0].ends_with("grows until it can be compacted"),
        "{lines:?}"
    );
    memory.0.lock().unwrap().2 = false;
    let again = "the store can be compacted again".to_owned();
    assert_eq!(set(), (true, vec![again]));
    assert_eq!(set(), (true, vec![]));
}

/// Goal: acknowledged terms are there after a restart. Method: each fits beside the others, but not beside the file's
/// larger guarantee of another tenant, which a change lowered; a store may have the changes in any order.
#[test]
fn changed_terms_that_fit_together_are_there_after_a_restart() {
    let mut settings = settings("1s", "gone");
    settings.tenants[0].guarantee_bytes_per_s = 4_000_000_000;
    let memory = Memory::default();
    let terms =
        [("search", 1_000_000_000), ("ads", 3_000_000_000)].map(|(tenant, guarantee)| Terms {
            tenant: tenant.to_owned(),
            group: "rack1".to_owned(),
            class: "critical".to_owned(),
            weight: 1,
            guarantee_bytes_per_s: guarantee,
        });
    let first = ledger(&memory, &settings, 0);
    for terms in &terms {
        assert_eq!(
            first.answer(at(0), Request::Set(terms.clone())),
            Answer::Done
        );
    }
    for _ in 0..2 {
        memory.0.lock().unwrap().0.reverse();
        let next = ledger(&memory, &settings, 0);
        let pool = &show(&next)[0];
        let found = pool
            .tenants
            .iter()
            .map(|tenant| tenant.guarantee_bytes_per_s);
        assert_eq!(found.collect::<Vec<_>>(), [3_000_000_000, 0, 1_000_000_000]);
    }
}

#[test]
fn a_restart_with_a_shorter_term_and_without_a_tenant_counts_what_was_promised() {
    let memory = Memory::default();
    let before = ledger(&memory, &settings("60s", "gone"), 0);
    let bound = show(&before)[0].bound_bytes_per_s;
    assert_eq!(
        rates(ask(&before, 0, "gone", &["critical"], u64::MAX)),
        [bound]
    );
    drop(before);
    let next = ledger(&memory, &settings("3s", "other"), 1_000);
    let get = |ledger: &Ledger, ms| rates(ask(ledger, ms, "search", &["critical"], 1_000));
    assert_eq!(get(&next, 5_000), [0], "its client may use it for a minute");
    drop(next);
    // Restores a restored state once more.
    let last = ledger(&memory, &settings("3s", "other"), 6_000);
    assert_eq!(get(&last, 65_999), [0]);
    assert_eq!(get(&last, 66_000), [1_000]);
}

/// What an empty store loads.
fn nothing() -> Loaded {
    Loaded {
        complete: true,
        ..Loaded::default()
    }
}

/// A store whose first write has no answer. It reports the terms that it is settled with.
struct Unsure {
    unsure: Option<bool>,
    settled: mpsc::Sender<Vec<Record>>,
}

impl Store for Unsure {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(nothing())
    }

    fn append(&mut self, _: &[Record]) -> Result<(), StoreError> {
        match self.unsure {
            None => {
                self.unsure = Some(true);
                Err(StoreError::Taken("no answer".to_owned()))
            }
            Some(unsure) => {
                assert!(!unsure, "settled before the next write");
                Ok(())
            }
        }
    }

    fn replace(&mut self, _: &[Record], _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_long(&self) -> bool {
        false
    }

    fn is_unsure(&self) -> bool {
        self.unsure == Some(true)
    }

    fn settle(&mut self, terms: &[Record]) -> Result<(), StoreError> {
        self.unsure = Some(false);
        self.settled.send(terms.to_vec()).unwrap();
        Ok(())
    }
}

/// Goal: a change that failed is not among the terms that the store is settled with; the next one is.
#[test]
fn after_a_write_without_an_answer_the_store_gets_the_terms_that_hold() {
    let (settled, has_settled) = mpsc::channel();
    let store = Box::new(Unsure {
        unsure: None,
        settled,
    });
    let ledger = Ledger::open(&settings("3s", "gone"), store, at(0)).unwrap();
    let said = reason(ledger.answer(at(0), Request::Set(terms("search"))));
    assert!(said.contains("no answer"), "{said}");
    assert_eq!(
        ledger.answer(at(0), Request::Set(terms("ads"))),
        Answer::Done
    );
    assert_eq!(has_settled.try_recv().unwrap(), [Record::Set(terms("ads"))]);
    assert!(has_settled.try_recv().is_err(), "once");
}

/// A store whose writes block until released; it reports the number of records of each.
struct Slow {
    begun: mpsc::Sender<usize>,
    may_end: mpsc::Receiver<bool>,
}

impl Store for Slow {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(nothing())
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.begun.send(records.len()).unwrap();
        match self.may_end.recv().unwrap() {
            true => Ok(()),
            false => Err(StoreError::Taken("slow".to_owned())),
        }
    }

    fn replace(&mut self, _: &[Record], _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_long(&self) -> bool {
        false
    }
}

/// Goal: with a slow store a client waits for two writes at most, and a request without records for none. Method: a
/// write that ends when the test releases it; concurrent requests share the next one.
#[test]
fn a_slow_store_delays_no_client_for_longer_than_two_writes() {
    let (begun, has_begun) = mpsc::channel();
    let (let_end, may_end) = mpsc::channel();
    let store = Box::new(Slow { begun, may_end });
    let ledger = Ledger::open(&settings("3s", "gone"), store, at(0)).unwrap();
    std::thread::scope(|scope| {
        let ask_for = |tenant: &'static str| {
            let ledger = &ledger;
            scope.spawn(move || ask(ledger, 0, tenant, &["critical"], 1_000))
        };
        let first = ask_for("search");
        assert_eq!(has_begun.recv().unwrap(), 1);
        let others = [ask_for("ads"), ask_for("gone")];
        // The store is writing: the book can be read, and contains what the others want.
        while show(&ledger)[0].leased_bytes_per_s < 3_000 {
            std::thread::yield_now();
        }
        let gone = Request::Release {
            tenant: "search".to_owned(),
            client: "nobody".to_owned(),
        };
        assert_eq!(ledger.answer(at(0), gone), Answer::Done);
        let_end.send(true).unwrap();
        assert_eq!(rates(first.join().unwrap()), [1_000]);
        assert_eq!(has_begun.recv().unwrap(), 2, "both in one write");
        let_end.send(false).unwrap();
        for other in others {
            let said = reason(other.join().unwrap());
            assert!(said.contains("another quota server"), "{said}");
        }
    });
}
