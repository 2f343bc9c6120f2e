//! Every service on a full disk, and under a wall clock that is set.

use crate::kills::tiers::{Contained, applications, ask_memory, submission};
use crate::table::{ALL, Clock, Disk, Service, Subject};
use isolane_common_linux::skip::skip;
use isolane_memory_service::application::pod::Place;
use isolane_memory_service::protocol::Answer as MemoryAnswer;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::protocol::{Answer, Request, Terms};
use isolane_tools_abuse::shortage::{SmallDisk, Wall};
use isolane_tools_abuse::{Attack, Lack, MORE_DESCRIPTORS, Running, check_some, closed};
use std::fs;
use std::path::Path;

/// Seconds of three years.
const YEARS_S: i64 = 94_608_000;
/// Requests after each setting of the clock, and rejected changes on a full disk.
const REQUESTS: u64 = 10;
/// The most changes on a full disk.
const CHANGES: u64 = 100;

type Change = dyn FnMut(&Running, u64) -> Result<bool, String>;
type Kept = dyn Fn(&Running, &[u64]) -> Result<(), String>;

/// What clients change, and whether the service has it.
pub(crate) struct Stores {
    /// Makes change `number`. False: rejected with a reason. The error is something else than an answer.
    pub(crate) change: Box<Change>,
    /// Whether what the service has is what these confirmed changes have made.
    pub(crate) kept: Box<Kept>,
}

/// Guarantees of one tenant. Each replaces the one before.
pub(crate) fn quota_stores(folder: &Path) -> Stores {
    let key = folder.join("key");
    let ask = move |running: &Running, request| {
        let address = running.said().parse().unwrap();
        let key = key.exists().then_some(&*key);
        ask_once(&address, key, &request).map_err(|error| error.to_string())
    };
    let show = ask.clone();
    Stores {
        change: Box::new(move |running, number| {
            let terms = Terms {
                tenant: "search".to_owned(),
                group: "all".to_owned(),
                class: "high".to_owned(),
                weight: 1,
                guarantee_bytes_per_s: number,
            };
            match ask(running, Request::Set(terms))? {
                Answer::Done => Ok(true),
                Answer::Error(reason) if reason.contains("No space left") => Ok(false),
                other => Err(format!("{other:?}")),
            }
        }),
        kept: Box::new(move |running, confirmed| {
            let Answer::Pools(pools) = show(running, Request::Show)? else {
                return Err("no pools".to_owned());
            };
            let high = pools.iter().find(|pool| pool.class == "high");
            let found = high.map(|pool| pool.tenants[0].guarantee_bytes_per_s);
            same(found.as_ref(), confirmed.last())
        }),
    }
}

/// Applications in cgroups of their own.
pub(crate) fn memory_stores(folder: &Path) -> Stores {
    let folder = folder.to_owned();
    let mut contained = Vec::new();
    let name = |number: u64| format!("contained{number}");
    Stores {
        change: Box::new(move |running, number| {
            contained.push(Contained::start(&folder, number as u32));
            let place = Place::Cgroup(format!("/kube/{number}"));
            let submit = submission(&name(number), number as u32, place);
            match ask_memory(Path::new(running.said()), &submit)? {
                MemoryAnswer::Admitted(_) => Ok(true),
                MemoryAnswer::Failed(failure) if failure.message.contains("No space left") => {
                    Ok(false)
                }
                other => Err(format!("{other:?}")),
            }
        }),
        kept: Box::new(move |running, confirmed| {
            let mut found = applications(Path::new(running.said()))?;
            let mut wanted: Vec<String> = confirmed.iter().map(|number| name(*number)).collect();
            found.sort();
            wanted.sort();
            same(found, wanted)
        }),
    }
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{found:?} in place of {wanted:?}")),
    }
}

/// A service whose files and log lie on a small disk.
pub(crate) struct OnDisk<'a> {
    service: &'a Service,
    disk: SmallDisk,
    folder: tempfile::TempDir,
    stores: Option<Stores>,
    confirmed: Vec<u64>,
    next: u64,
}

impl<'a> OnDisk<'a> {
    /// `None`: the machine permits no namespaces.
    pub(crate) fn new(service: &'a Service) -> Option<Self> {
        let disk = SmallDisk::mount()?;
        let folder = tempfile::tempdir().unwrap();
        let state = disk.folder().as_os_str().as_encoded_bytes();
        fs::write(folder.path().join("state"), state).unwrap();
        let stores = match service.disk {
            Disk::Stores(stores) => Some(stores(folder.path())),
            Disk::Log(_) => None,
        };
        Some(Self {
            service,
            disk,
            folder,
            stores,
            confirmed: Vec::new(),
            next: 1,
        })
    }

    fn start(&self) -> Result<Running, String> {
        let mut running = self.disk.spawn(self.service.role, self.folder.path());
        running.listens().map(|()| running)
    }

    /// An honest request and a change. True: the change is confirmed.
    fn use_it(&mut self, running: &Running) -> Result<bool, String> {
        ((self.service.subject)(running).honest)()?;
        let Some(stores) = &mut self.stores else {
            return Ok(true);
        };
        self.next += 1;
        let is_confirmed = (stores.change)(running, self.next)?;
        self.confirmed.extend(is_confirmed.then_some(self.next));
        (stores.kept)(running, &self.confirmed).map(|()| is_confirmed)
    }

    /// Its honest client beside attackers, and then a lack of descriptors, about which services print lines.
    fn full(&mut self, running: &Running) -> Result<(), String> {
        let Subject { target, honest } = (self.service.subject)(running);
        let descriptors = running.descriptors() + MORE_DESCRIPTORS;
        check_some(&[Attack::Noise], running, &target, &honest)?;
        closed(running, descriptors)?;
        Lack::Descriptors.check(running, &target)?;
        // The last page of a file has room for some changes.
        let mut rejected = 0;
        for _ in 0..CHANGES {
            rejected += u64::from(!self.use_it(running)?);
            if rejected == REQUESTS {
                break;
            }
        }
        match self.stores.is_none() || rejected == REQUESTS {
            true => Ok(()),
            false => Err(format!("{rejected} of {CHANGES} changes were rejected")),
        }
    }

    /// Everything that clients were told is there, and the next change is confirmed.
    fn works(&mut self, running: &Running) -> Result<(), String> {
        if let Some(stores) = &self.stores {
            (stores.kept)(running, &self.confirmed)?;
        }
        match self.use_it(running)? {
            true => Ok(()),
            false => Err("a change is rejected with room on the disk".to_owned()),
        }
    }

    /// What the service does wrong.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let running = self.start()?;
        self.use_it(&running)?;
        self.disk.fill();
        let full = self.full(&running);
        full.map_err(|reason| format!("on the full disk: {reason}"))?;
        self.disk.free();
        let works = self.works(&running);
        works.map_err(|reason| format!("on the disk with room again: {reason}"))?;
        self.disk.fill();
        running.kill();
        // It may end with an error; what it has stored must stay.
        drop(self.start());
        self.disk.free();
        let running = self.start()?;
        let works = self.works(&running);
        works.map_err(|reason| format!("after a start on the full disk: {reason}"))
    }
}

/// Goal: honest clients are served and changes confirmed or rejected on a full disk; nothing confirmed is lost, also by a
/// start on it; with room again everything works.
#[test]
fn every_service_survives_a_full_disk() {
    for service in ALL {
        let Some(mut case) = OnDisk::new(service) else {
            skip("no namespaces for a small disk");
            return;
        };
        if let Disk::Log(why) = service.disk {
            println!("{}: its log alone, as {why}", service.role);
        }
        if let Err(wrong) = case.check() {
            let log = fs::read_to_string(case.disk.folder().join("log")).unwrap_or_default();
            panic!("{}: {wrong}; its log:\n{log}", service.role);
        }
    }
}

/// Goal: a clock that is set by years, forwards and back, keeps no client out for longer than it is wrong.
#[test]
fn every_service_survives_a_clock_that_is_set() {
    let Some(wall) = Wall::find() else {
        skip("libfaketime is not installed");
        return;
    };
    for service in ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut running = wall.spawn(service.role, folder.path());
        running.listens().unwrap();
        for ahead_s in [0, YEARS_S, 0, -YEARS_S, 0] {
            wall.set(ahead_s);
            for _ in 0..REQUESTS {
                let answer = ((service.subject)(&running).honest)();
                let is_right = match (&service.clock, &answer) {
                    (Clock::Rejects(words), Err(reason)) => ahead_s != 0 && reason.contains(words),
                    (Clock::Rejects(_), Ok(())) => ahead_s == 0,
                    (Clock::Serves, answer) => answer.is_ok(),
                };
                assert!(is_right, "{}, {ahead_s} s: {answer:?}", service.role);
            }
        }
        assert!(running.lives(), "{}", service.role);
    }
}
