//! Parses the file of one assignment.

use super::keys;
use super::parse::{cgroup, name, path, pod, tenant_is_safe};
use crate::config::{Assignment, Members};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::table::{Source, Table};
use isolane_rdma_session::message::Class;

/// Parses `text`; `file` is its name in messages. The error is the first mistake: file, line, key, value, what is
/// allowed.
pub fn parse(file: &str, text: &str) -> Result<Assignment, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let table = Table::open(source, tree.get_ref(), 0, keys::ASSIGNMENT, None)?;
    let members = match (cgroup(&table)?, pod(&table)?) {
        (Some(pattern), None) => Members::Cgroup(pattern),
        (None, Some(identifier)) => Members::Pod(identifier),
        (None, None) => {
            return Err(table.missing("cgroup", "an assignment must give cgroup or pod"));
        }
        (Some(_), Some(_)) => return Err(table.wrong("pod", "must not be beside cgroup")),
    };
    // A pattern that fits every process would give the whole machine to one workload.
    if matches!(&members, Members::Cgroup(pattern) if !pattern.contains(|c: char| c.is_ascii_alphanumeric()))
    {
        return Err(table.wrong("cgroup", "must name a part of the cgroup's path"));
    }
    if let Some(mistake) = members.cgroup().and_then(earlier_form) {
        return Err(table.wrong("cgroup", mistake));
    }
    tenant_is_safe(&table)?;
    let mut assignment = Assignment {
        members,
        tenant: name(&table, "tenant")?,
        ..Assignment::default()
    };
    let class = table.choice::<String>("class")?;
    assignment.class =
        class.map(|class| Class::from_name(&class).expect("the list has the class's own names"));
    assignment.weight = table.count32("weight")?;
    assignment.lasts_while = path(&table, "lasts_while")?;
    if assignment.weight.is_some() && assignment.tenant.is_none() {
        return Err(table.missing("tenant", "a weight is that of a tenant; name it"));
    }
    if assignment.tenant.is_none() && assignment.class.is_none() {
        return Err(table.missing("tenant", "an assignment must give tenant or class"));
    }
    Ok(assignment)
}

/// What is wrong with a pattern in the form of a version in which `*` also matched `/`. Such a file may have outlived an
/// upgrade of the daemon, and would match nothing.
fn earlier_form(pattern: &str) -> Option<&'static str> {
    let parts = pattern.strip_prefix('/')?;
    match parts.rsplit_once('/') {
        Some((_, "*")) => Some(
            "matches the cgroups directly below and none further below; write ** for the cgroup and all below, or assign the job again",
        ),
        None if parts.starts_with("kubepods") && parts.contains('*') => Some(
            "matches no pod; give pod = \"UID\" in its place, or restart what writes the assignments of pods",
        ),
        _ => None,
    }
}
