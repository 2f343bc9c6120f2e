//! Who a process is: the operator's rules over the process's own word.

use super::Config;
use isolane_proto::message::Class;
use isolane_scenario::glob;

/// One rule; every condition that it has must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRule {
    /// Name of the tenant.
    pub name: String,
    /// Patterns of control group paths.
    pub cgroup: Option<String>,
    /// User id.
    pub user: Option<u32>,
    /// Patterns of program names; the process's own word.
    pub program: Option<String>,
    /// Patterns of the tenant's name by the process's own word.
    pub declared: Option<String>,
    /// Class, over the process's own word.
    pub class: Option<Class>,
    /// Weight, over the process's own word.
    pub weight: Option<u32>,
}

/// What is known of a process when it says hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its user, by the kernel's word.
    pub user: u32,
    /// Its control group, by the kernel's word.
    pub cgroup: String,
    /// Its program, by its own word.
    pub program: String,
    /// Its tenant, by its own word; empty where it does not say.
    pub tenant: String,
    /// Its class, by its own word.
    pub class: Class,
    /// Its weight, by its own word.
    pub weight: u32,
}

/// What follows for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Its tenant.
    pub tenant: String,
    /// Its class; [`Class::Auto`]: the daemon finds out.
    pub class: Class,
    /// Its weight, at least 1.
    pub weight: u32,
}

impl TenantRule {
    fn fits(&self, identity: &Identity) -> bool {
        let pattern = |pattern: &Option<String>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| glob::matches(pattern, text))
        };
        self.user.is_none_or(|user| user == identity.user)
            && pattern(&self.cgroup, &identity.cgroup)
            && pattern(&self.program, &identity.program)
            && pattern(&self.declared, &identity.tenant)
    }
}

impl Config {
    /// Tenant, class and weight of a process: by the first rule that fits, else by its own word within the limits
    /// that the file sets. A process that says nothing is one of its user's.
    pub fn assign(&self, identity: &Identity) -> Assignment {
        let rule = self.tenants.iter().find(|rule| rule.fits(identity));
        let own_class = match (identity.class, self.trust_declared) {
            (Class::Latency, false) => Class::Auto,
            (class, _) => class,
        };
        Assignment {
            tenant: match rule {
                Some(rule) => rule.name.clone(),
                None if identity.tenant.is_empty() => format!("user-{}", identity.user),
                None => identity.tenant.clone(),
            },
            class: rule.and_then(|rule| rule.class).unwrap_or(own_class),
            weight: rule
                .and_then(|rule| rule.weight)
                .unwrap_or(identity.weight.clamp(1, self.declared_weight_max)),
        }
    }
}
