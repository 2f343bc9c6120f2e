//! Finds the tenant of a process.
//!
//! Method: conditions that a tenant cannot forge are tried first, from the most to the least specific (see
//! [`isolane_rdma_scenario::enforcement`]): pod, container, container annotation, cgroup, user. The kernel supplies
//! these facts about the process. Only the runtime's message carries annotations; a container that was matched by an
//! annotation is remembered, and its other processes are found by its cgroup. A container is forgotten when its cgroup
//! is gone: the next container under the same path inherits no tenant. A claimed name counts only for tenants without
//! conditions.
//!
//! **Trust.** A sender with authority over this host ([`isolane_common_linux::peer`]), such as a container runtime, may
//! send another process's listener. For any other sender, including root inside a container, the process is the sender
//! itself, as the kernel reports it.
//!
//! Limits: the tenant of a process is found once, when its listener arrives; its children keep the tenant. A container
//! is remembered only if the path of its cgroup has its name, and the enforcer sees the cgroup below its own mount of
//! version 2.

use crate::arrival::Arrival;
use crate::control::pace::Limits;
use crate::control::supervisor::Tenant;
use crate::guardian::Handed;
use crate::seccomp::call::Class;
use isolane_common_linux::Root;
use isolane_common_linux::cgroup;
use isolane_common_linux::process::Process;
use isolane_rdma_inventory::inventory::TenantRule;
use isolane_rdma_scenario::enforcement::{EnforcedTenant, Selector};
use std::collections::BTreeMap;

/// The name of processes without a tenant.
pub(crate) const UNLISTED: &str = "unlisted";

/// The tenants of a file, and the containers that were matched by annotation.
#[derive(Debug)]
pub(crate) struct Tenants {
    tenants: Vec<EnforcedTenant>,
    /// Places with conditions, most specific first.
    order: Vec<(usize, TenantRule)>,
    /// Containers matched by annotation, by path of their cgroup.
    learnt: BTreeMap<String, Learnt>,
    root: Root,
    /// Where cgroups of version 2 are mounted.
    mount: Option<String>,
}

/// A container that was matched by an annotation.
#[derive(Debug)]
struct Learnt {
    /// The kernel's number of its cgroup.
    cgroup: u64,
    /// Place of its tenant.
    place: usize,
}

impl Tenants {
    /// Sorts the tenants' conditions. Processes and cgroups are read below `root`.
    pub(crate) fn new(root: Root, tenants: Vec<EnforcedTenant>) -> Self {
        let conditions = |(place, tenant): (usize, &EnforcedTenant)| {
            let selector = &tenant.selector;
            (!selector.is_empty()).then(|| (place, rule(&tenant.name, selector)))
        };
        let mut order: Vec<(usize, TenantRule)> =
            tenants.iter().enumerate().filter_map(conditions).collect();
        order.sort_by_key(|(place, _)| std::cmp::Reverse(tenants[*place].selector.precision()));
        Self {
            tenants,
            order,
            learnt: BTreeMap::new(),
            mount: cgroup::mount(&root),
            root,
        }
    }

    /// The tenants, in the file's order.
    pub(crate) fn all(&self) -> &[EnforcedTenant] {
        &self.tenants
    }

    /// The place of processes without a tenant: one after the last tenant.
    pub(crate) fn unlisted(&self) -> usize {
        self.tenants.len()
    }

    /// The name of the tenant at `place`.
    pub(crate) fn name(&self, place: usize) -> &str {
        self.tenants
            .get(place)
            .map_or(UNLISTED, |tenant| tenant.name.as_str())
    }

    /// The supervisor's tenants, by place; the last one is the unlisted.
    pub(crate) fn supervised(&self) -> Vec<Tenant> {
        let of = |tenant: &EnforcedTenant| Tenant {
            name: tenant.name.clone(),
            limits: limits(tenant),
        };
        let mut all: Vec<Tenant> = self.tenants.iter().map(of).collect();
        all.push(Tenant {
            name: UNLISTED.to_owned(),
            limits: Limits::default(),
        });
        all
    }

    /// The tenant's place and the process of a received listener.
    pub(crate) fn of_arrival(&mut self, handed: &Handed) -> (usize, u32) {
        let said = handed.arrival.clone().unwrap_or_default();
        let believed = handed.has_authority && said.process > 0;
        let process = if believed {
            said.process
        } else {
            handed.sender
        };
        let known = Process::read(&self.root, process).unwrap_or(Process {
            id: process,
            user: Some(handed.user),
            ..Process::default()
        });
        (self.of(&known, believed, &said), process)
    }

    /// The tenant's place of a process. `said` is the launcher's message, `believed` whether its sender runs as root.
    pub(crate) fn of(&mut self, process: &Process, believed: bool, said: &Arrival) -> usize {
        for (place, rule) in &self.order {
            let label = self.tenants[*place].selector.label.as_ref();
            let labelled = label
                .is_none_or(|(key, value)| believed && said.annotations.get(key) == Some(value));
            // A tenant matched only by its label has no other condition; a rule without conditions matches nothing.
            let only_label = *rule == bare(&rule.tenant);
            if labelled && (rule.matches(process) || (only_label && label.is_some())) {
                let place = *place;
                if label.is_some() {
                    self.learn(process, place);
                }
                return place;
            }
        }
        if let Some(place) = self.recall(process) {
            return place;
        }
        let named = said.tenant.as_deref().and_then(|name| {
            let reachable = |tenant: &EnforcedTenant| {
                tenant.name == name && tenant.selector.is_empty() && !tenant.others
            };
            self.tenants.iter().position(reachable)
        });
        named
            .or_else(|| self.tenants.iter().position(|tenant| tenant.others))
            .unwrap_or(self.unlisted())
    }

    fn learn(&mut self, process: &Process, place: usize) {
        // Processes of several containers, and of none, may share any other cgroup.
        if process.workload.container.is_none() {
            return;
        }
        let Some(path) = &process.cgroup else { return };
        if let Some(cgroup) = self.cgroup(path) {
            self.learnt.insert(path.clone(), Learnt { cgroup, place });
        }
    }

    /// The tenant's place of a process in a container that was matched by an annotation.
    fn recall(&self, process: &Process) -> Option<usize> {
        let path = process.cgroup.as_ref()?;
        let learnt = self.learnt.get(path)?;
        (self.cgroup(path) == Some(learnt.cgroup)).then_some(learnt.place)
    }

    /// Forgets the containers whose cgroups are gone.
    pub(crate) fn forget_ended(&mut self) {
        let mut learnt = std::mem::take(&mut self.learnt);
        learnt.retain(|path, learnt| self.cgroup(path) == Some(learnt.cgroup));
        self.learnt = learnt;
    }

    /// The kernel's number of the cgroup at `path`.
    fn cgroup(&self, path: &str) -> Option<u64> {
        cgroup::number(&self.root, self.mount.as_deref()?, path)
    }
}

fn bare(tenant: &str) -> TenantRule {
    TenantRule {
        tenant: tenant.to_owned(),
        ..TenantRule::default()
    }
}

fn rule(tenant: &str, selector: &Selector) -> TenantRule {
    TenantRule {
        cgroup: selector.cgroup.clone(),
        container: selector.container.clone(),
        pod: selector.pod.clone(),
        user: selector.user,
        ..bare(tenant)
    }
}

/// The tenant's limits on control verbs.
pub(crate) fn limits(tenant: &EnforcedTenant) -> Limits {
    let control = &tenant.control;
    let classes = [
        (Class::QueuePairs, control.queue_pairs),
        (Class::CompletionQueues, control.completion_queues),
        (Class::MemoryRegions, control.memory_regions),
        (Class::AddressHandles, control.address_handles),
        (Class::Others, control.others),
        (Class::Queries, control.queries),
    ];
    let set = classes
        .into_iter()
        .filter_map(|(class, rate)| Some((class, rate?)));
    Limits {
        all: tenant.guarantee.control_requests_per_s,
        classes: set.collect(),
        burst: control.burst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::cgroup::Workload;
    use isolane_rdma_scenario::enforcement::parse;
    use std::fs;

    /// A machine with a cgroup of version 2 for the container `/lxc/c1`.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("sys/fs/cgroup");
        fs::create_dir_all(mount.join("lxc/c1")).unwrap();
        fs::write(mount.join("cgroup.controllers"), "").unwrap();
        folder
    }

    fn tenants() -> Tenants {
        tenants_of(Root::at("/nowhere"))
    }

    fn tenants_of(root: Root) -> Tenants {
        let text = r#"
            [[tenant]]
            name = "user"
            user = 1000
            [[tenant]]
            name = "group"
            cgroup = "/team"
            [[tenant]]
            name = "database"
            label = "app=db"
            [[tenant]]
            name = "named"
            [[tenant]]
            name = "rest"
            others = true
        "#;
        Tenants::new(root, parse(text, "p.toml").unwrap().tenants)
    }

    fn process(user: u32, cgroup: &str) -> Process {
        Process {
            id: 5,
            user: Some(user),
            cgroup: Some(cgroup.to_owned()),
            workload: Workload::of(cgroup),
            ..Process::default()
        }
    }

    fn labelled(value: &str) -> Arrival {
        Arrival {
            annotations: [("app".to_owned(), value.to_owned())].into(),
            ..Arrival::default()
        }
    }

    #[test]
    fn conditions_come_before_names_and_precise_ones_before_others() {
        let mut tenants = tenants();
        let claims = Arrival {
            tenant: Some("named".to_owned()),
            ..Arrival::default()
        };
        let mut name = |process: &Process, said: &Arrival| {
            let place = tenants.of(process, true, said);
            tenants.name(place).to_owned()
        };
        assert_eq!(name(&process(1000, "/"), &claims), "user");
        assert_eq!(name(&process(1000, "/team/1"), &claims), "group");
        assert_eq!(name(&process(1000, "/team/1"), &labelled("db")), "database");
        assert_eq!(name(&process(7, "/"), &claims), "named");
        assert_eq!(name(&process(7, "/"), &Arrival::default()), "rest");
    }

    #[test]
    fn a_claim_to_a_tenant_with_conditions_does_not_count() {
        let mut tenants = tenants();
        let claims = Arrival {
            tenant: Some("group".to_owned()),
            ..Arrival::default()
        };
        let place = tenants.of(&process(7, "/"), true, &claims);
        assert_eq!(tenants.name(place), "rest");
    }

    #[test]
    fn annotations_count_from_a_runtime_only_and_are_remembered() {
        let machine = machine();
        let mut tenants = tenants_of(Root::at(machine.path()));
        let container = process(7, "/lxc/c1");
        let place = tenants.of(&container, false, &labelled("db"));
        assert_eq!(tenants.name(place), "rest");
        let place = tenants.of(&container, true, &labelled("db"));
        assert_eq!(tenants.name(place), "database");
        // Another process of the same container, as the inventory lists it.
        let place = tenants.of(&container, false, &Arrival::default());
        assert_eq!(tenants.name(place), "database");
    }

    #[test]
    fn the_next_container_under_the_same_path_inherits_no_tenant() {
        let machine = machine();
        let mut tenants = tenants_of(Root::at(machine.path()));
        let place = tenants.of(&process(7, "/lxc/c1"), true, &labelled("db"));
        assert_eq!(tenants.name(place), "database");
        // The first container's directory stays elsewhere, so the file system cannot give its inode to the second one.
        let path = machine.path().join("sys/fs/cgroup/lxc/c1");
        fs::rename(&path, machine.path().join("ended")).unwrap();
        fs::create_dir(&path).unwrap();
        let place = tenants.of(&process(7, "/lxc/c1"), false, &Arrival::default());
        assert_eq!(tenants.name(place), "rest");
    }

    #[test]
    fn a_cgroup_that_is_no_containers_is_not_remembered() {
        let machine = machine();
        let mut tenants = tenants_of(Root::at(machine.path()));
        for shared in ["/", "/lxc"] {
            let place = tenants.of(&process(7, shared), true, &labelled("db"));
            assert_eq!(tenants.name(place), "database");
            let place = tenants.of(&process(8, shared), false, &Arrival::default());
            assert_eq!(tenants.name(place), "rest");
        }
    }

    #[test]
    fn a_container_is_forgotten_when_its_cgroup_is_gone() {
        let machine = machine();
        let mut tenants = tenants_of(Root::at(machine.path()));
        tenants.of(&process(7, "/lxc/c1"), true, &labelled("db"));
        tenants.forget_ended();
        assert_eq!(tenants.learnt.len(), 1);
        fs::remove_dir(machine.path().join("sys/fs/cgroup/lxc/c1")).unwrap();
        tenants.forget_ended();
        assert!(tenants.learnt.is_empty());
    }

    #[test]
    fn a_process_without_a_tenant_is_unlisted_and_unlimited() {
        let text = "[[tenant]]\nname = \"a\"\nguarantee = { control_requests_per_s = 9 }";
        let parsed = parse(text, "p.toml").unwrap().tenants;
        let mut tenants = Tenants::new(Root::at("/nowhere"), parsed);
        let place = tenants.of(&process(1, "/"), true, &Arrival::default());
        assert_eq!((place, tenants.name(place)), (1, UNLISTED));
        let supervised = tenants.supervised();
        assert_eq!(supervised[0].limits.all, Some(9));
        assert_eq!(supervised[1].limits, Limits::default());
    }
}
