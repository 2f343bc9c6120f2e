//! All sessions of a run, one per machine, and their messages in order of arrival.

use crate::error::VerbsError;
use crate::link::{Arrival, Link, Reach};
use crate::message::{Event, Request, VERSION};
use crate::target::{Machine, Target};
use isolane_rdma_traffic::nodes::Nodes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long an agent may take to greet: an ssh connection, a slow machine.
const GREETING: Duration = Duration::from_secs(30);
/// How long it may take to end all workers.
const CLEARING: Duration = Duration::from_secs(15);
/// How long it may take to describe a device.
const DESCRIBING: Duration = Duration::from_secs(15);
/// How often the user's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Where a place of the target is reached.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// The session.
    pub(crate) link: usize,
    /// The device's name there.
    pub(crate) device: String,
    pub(crate) port: u8,
    /// Entry of the port's GID table, where one is named.
    pub(crate) gid_index: Option<u8>,
    /// NUMA nodes of its machine.
    pub(crate) nodes: Nodes,
    /// For messages: `r0 of this machine`.
    pub(crate) words: String,
}

/// The sessions.
#[derive(Debug)]
pub(crate) struct Fleet {
    links: Vec<Link>,
    arrivals: Receiver<(usize, Arrival)>,
    /// One per place of the target, in its order.
    pub(crate) posts: Vec<Post>,
    next_worker: u32,
}

impl Fleet {
    /// Begins a session with each machine of `target`, and checks that its devices are there.
    pub(crate) fn open(
        target: &Target,
        reach: &Reach,
        cancel: &AtomicBool,
    ) -> Result<Self, VerbsError> {
        let (sender, arrivals) = channel();
        let mut machines: Vec<Option<&Machine>> = Vec::new();
        let mut links: Vec<Link> = Vec::new();
        let mut posts = Vec::new();
        for place in &target.places {
            let machine = place.machine.as_ref();
            let link = match machines.iter().position(|known| *known == machine) {
                Some(link) => link,
                None => {
                    links.push(Link::open(machine, reach, links.len(), &sender)?);
                    machines.push(machine);
                    links.len() - 1
                }
            };
            posts.push(Post {
                link,
                device: place.device.clone(),
                port: place.device_port,
                gid_index: place.gid_index,
                nodes: Nodes::default(),
                words: format!("{} of {}", place.device, links[link].machine),
            });
        }
        let mut fleet = Self {
            links,
            arrivals,
            posts,
            next_worker: 0,
        };
        fleet.greet(cancel)?;
        Ok(fleet)
    }

    fn greet(&mut self, cancel: &AtomicBool) -> Result<(), VerbsError> {
        let until = Instant::now() + GREETING;
        let mut greeted = vec![false; self.links.len()];
        while let Some(missing) = greeted.iter().position(|greeted| !greeted) {
            let arrival = self.arrival(until, cancel)?;
            let Some((index, arrival)) = arrival else {
                return Err(VerbsError::Unreachable {
                    machine: self.links[missing].machine.clone(),
                    reason: format!("no answer within {} s", GREETING.as_secs()),
                });
            };
            let machine = self.links[index].machine.clone();
            match arrival {
                Arrival::Event(Event::Welcome {
                    version, devices, ..
                }) if version == VERSION => {
                    self.take_devices(index, &devices)?;
                    greeted[index] = true;
                }
                Arrival::Event(Event::Welcome {
                    version, program, ..
                }) => {
                    return Err(VerbsError::Agent {
                        machine,
                        reason: format!(
                            "release {program} has version {version} of the protocol, this one {VERSION}; install \
                             the same release of isolane on both machines"
                        ),
                    });
                }
                Arrival::Event(Event::Failed { reason }) => {
                    return Err(VerbsError::Agent { machine, reason });
                }
                Arrival::Event(_) => {}
                Arrival::Closed(reason) => {
                    return Err(VerbsError::Unreachable { machine, reason });
                }
            }
        }
        Ok(())
    }

    /// Takes the nodes of the posts' devices on session `link`. Fails if a device is not there.
    fn take_devices(
        &mut self,
        link: usize,
        devices: &BTreeMap<String, Nodes>,
    ) -> Result<(), VerbsError> {
        let machine = &self.links[link].machine;
        for post in self.posts.iter_mut().filter(|post| post.link == link) {
            match devices.get(&post.device) {
                Some(nodes) => post.nodes = nodes.clone(),
                None if devices.is_empty() => {
                    return Err(VerbsError::NoDevice {
                        machine: machine.clone(),
                    });
                }
                None => {
                    let known: Vec<&str> = devices.keys().map(String::as_str).collect();
                    return Err(VerbsError::UnknownDevice {
                        machine: machine.clone(),
                        device: post.device.clone(),
                        known: known.join(", "),
                    });
                }
            }
        }
        Ok(())
    }

    /// Firmware, driver, kernel and settings of every post's device and machine, in the order of the posts.
    pub(crate) fn describe(
        &mut self,
        cancel: &AtomicBool,
    ) -> Result<Vec<BTreeMap<String, String>>, VerbsError> {
        let until = Instant::now() + DESCRIBING;
        let posts = self.posts.clone();
        let mut all = Vec::new();
        for post in posts {
            let request = Request::Describe {
                device: post.device.clone(),
                port: post.port,
            };
            self.send(post.link, &request);
            loop {
                match self.event(until, cancel)? {
                    Some((link, Event::Described { facts, .. })) if link == post.link => {
                        all.push(facts);
                        break;
                    }
                    Some((link, Event::Failed { reason })) if link == post.link => {
                        let machine = self.machine(link).to_owned();
                        return Err(VerbsError::Agent { machine, reason });
                    }
                    Some(_) => {}
                    None => {
                        return Err(VerbsError::Agent {
                            machine: self.machine(post.link).to_owned(),
                            reason: format!(
                                "it does not describe {} within {} s",
                                post.device,
                                DESCRIBING.as_secs()
                            ),
                        });
                    }
                }
            }
        }
        Ok(all)
    }

    /// A number that no worker had before.
    pub(crate) fn next_worker(&mut self) -> u32 {
        self.next_worker += 1;
        self.next_worker
    }

    /// Sends `request` to session `link`.
    pub(crate) fn send(&self, link: usize, request: &Request) {
        self.links[link].send(request);
    }

    /// The name of session `link`'s machine.
    pub(crate) fn machine(&self, link: usize) -> &str {
        &self.links[link].machine
    }

    /// The next event of any session; none when `until` passes first.
    pub(crate) fn event(
        &mut self,
        until: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<(usize, Event)>, VerbsError> {
        match self.arrival(until, cancel)? {
            None => Ok(None),
            Some((link, Arrival::Event(event))) => Ok(Some((link, event))),
            Some((link, Arrival::Closed(reason))) => Err(VerbsError::Agent {
                machine: self.links[link].machine.clone(),
                reason,
            }),
        }
    }

    fn arrival(
        &mut self,
        until: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<(usize, Arrival)>, VerbsError> {
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(VerbsError::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.arrivals.recv_timeout(left.min(LOOK)) {
                Ok(arrival) => return Ok(Some(arrival)),
                Err(RecvTimeoutError::Timeout) if left > LOOK => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                // Every reader has said why it ended before.
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Ends every worker on every machine and waits for its end, also after the user interrupted the run.
    pub(crate) fn clear(&mut self) -> Result<(), VerbsError> {
        for link in 0..self.links.len() {
            self.send(link, &Request::Clear);
        }
        let never = AtomicBool::new(false);
        let until = Instant::now() + CLEARING;
        let mut left = self.links.len();
        while left > 0 {
            match self.event(until, &never)? {
                Some((_, Event::Cleared)) => left -= 1,
                Some(_) => {}
                None => {
                    return Err(VerbsError::Agent {
                        machine: self.links[0].machine.clone(),
                        reason: "it does not end its workers".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}
