//! Assigns tenant, class and weight to a process. Facts from the kernel take precedence over claims of the process.
//!
//! Method: the operator's rules are tried in order, and the first match counts. Without a rule, the process's *owner*
//! decides: its Kubernetes pod, else the user of its login session, else its user. The kernel supplies all three, and
//! only root can create further ones. A process's claims count where the operator permits it (`trust_names`,
//! `trust_classes`), and for classes that only slow the process itself. Limits: a cgroup path is that of the unified
//! hierarchy, or the longest path of the others. A user who owns a range of user ids (`/etc/subuid`) and leaves the
//! login session is a separate owner for each id.

use crate::cgroups;
use crate::config::{Config, Rule};
use isolane_common_linux::account::Account;
use isolane_common_linux::cgroup;
use isolane_rdma_session::message::Class;

/// Facts and claims about a new process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Process id in the daemon's namespace, from the kernel; zero if it has none there.
    pub pid: u32,
    /// User id, from the kernel.
    pub user: u32,
    /// The account that pays for its session, from the kernel.
    pub account: Account,
    /// Cgroup path, from the kernel; empty if unknown.
    pub cgroup: String,
    /// Tenant name that the process claims; may be empty.
    pub claim: String,
    /// Program name that the process claims.
    pub program: String,
    /// Class that the process claims.
    pub class: Class,
    /// Weight that the process claims.
    pub weight: u32,
}

/// The daemon's assignment of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Its tenant.
    pub tenant: String,
    /// The tenant's weight, if the operator set one.
    pub tenant_weight: Option<u32>,
    /// Its class.
    pub class: Class,
    /// Weight among the tenant's processes. It is also the tenant's weight if the process named both and the operator
    /// set none.
    pub weight: u32,
    /// Whether the tenant's name contains a claim of the process.
    pub named: bool,
    /// Whether its queue pairs start in the latency class and are watched; its class is then [`Class::Auto`].
    pub begins_fast: bool,
    /// The owner, from the kernel alone: a pod, a login or a user.
    pub owner: String,
}

/// Applies the operator's rules.
pub fn assign(config: &Config, who: &Who) -> Assigned {
    let rule = config.rules.iter().find(|rule| fits(rule, who));
    let owner = owner(who);
    let by_rule = rule.and_then(|rule| rule.tenant.as_ref());
    let (tenant, named) = match by_rule {
        Some(name) => (expand(name, who, &owner), name.contains("{claim}")),
        None if config.trust_names && !who.claim.is_empty() => (who.claim.clone(), true),
        None => (owner.clone(), false),
    };
    let tenant_weight = weight_of(config, &tenant);
    let own_weight = match config.trust_names {
        true => who.weight.clamp(1, config.own_weight_max),
        false => 1,
    };
    let by_operator = rule.and_then(|rule| rule.class);
    let watches_latency = rule.is_some_and(|rule| rule.watches_latency);
    let (class, begins_fast) = match (by_operator, who.class) {
        (Some(Class::Latency), _) if watches_latency => (Class::Auto, true),
        (Some(class), _) => (class, false),
        // Such a process is unpaced until its traffic is known, so the operator must permit it.
        (None, Class::Latency) => (Class::Auto, config.trust_classes),
        (None, class) => (class, false),
    };
    Assigned {
        tenant_weight,
        class,
        begins_fast,
        weight: rule.and_then(|rule| rule.weight).unwrap_or(own_weight),
        named,
        tenant,
        owner,
    }
}

impl Assigned {
    /// The same process without its claimed name, for an owner that has named too many tenants.
    pub(crate) fn without_its_word(self, config: &Config) -> Self {
        Self {
            tenant_weight: weight_of(config, &self.owner),
            tenant: self.owner.clone(),
            named: false,
            ..self
        }
    }
}

fn weight_of(config: &Config, tenant: &str) -> Option<u32> {
    let known = config.tenants.iter().find(|known| known.name == tenant);
    known.map(|known| known.weight)
}

/// The owner of a process, from the kernel alone.
fn owner(who: &Who) -> String {
    if let Some(pod) = cgroup::pod(&who.cgroup) {
        return format!("pod-{}", pod.uid);
    }
    let mut parts = who.cgroup.split('/').skip(1);
    let first = parts.next().unwrap_or_default();
    let session = parts.next().filter(|_| first == "user.slice");
    let user = session
        .and_then(|part| part.strip_prefix("user-")?.strip_suffix(".slice"))
        .and_then(|number| number.parse().ok())
        .unwrap_or(who.user);
    format!("user-{user}")
}

fn fits(rule: &Rule, who: &Who) -> bool {
    let fits = |pattern: &Option<String>, text: &str, matches: fn(&str, &str) -> bool| {
        let pattern = pattern.as_deref();
        pattern.is_none_or(|pattern| matches(pattern, text))
    };
    rule.user.is_none_or(|user| user == who.user)
        && fits(&rule.cgroup, &who.cgroup, cgroups::matches)
        && fits(&rule.pod, &who.cgroup, cgroups::is_of_pod)
        && fits(&rule.program, &who.program, cgroups::text_matches)
        && fits(&rule.claim, &who.claim, cgroups::text_matches)
}

fn expand(name: &str, who: &Who, owner: &str) -> String {
    let path = cgroups::chosen_by_host(&who.cgroup);
    let last = path.rsplit('/').next().unwrap_or_default();
    name.replace("{owner}", owner)
        .replace("{user}", &who.user.to_string())
        .replace("{claim}", &who.claim)
        .replace("{cgroup}", last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TenantConfig;
    use proptest::prelude::*;

    const UID: &str = "3f2a1c9e-0000-4000-8000-00000000000a";
    const POD: &str = "pod-3f2a1c9e-0000-4000-8000-00000000000a";
    const OTHER: &str = "3f2a1c9e-0000-4000-8000-00000000000b";

    fn who() -> Who {
        Who {
            pid: 7,
            user: 1000,
            account: Account::of_user(1000),
            cgroup: format!("/kubepods.slice/pod{UID}/cri-abc.scope"),
            claim: "mine".to_owned(),
            program: "ib_write_bw".to_owned(),
            class: Class::Latency,
            weight: 9,
        }
    }

    fn config(rules: Vec<Rule>) -> Config {
        Config {
            rules,
            ..Config::default()
        }
    }

    fn tenant_of(user: u32, cgroup: &str) -> String {
        let who = Who {
            user,
            cgroup: cgroup.to_owned(),
            ..who()
        };
        assign(&config(Vec::new()), &who).tenant
    }

    #[test]
    fn by_default_a_process_is_its_owners_despite_its_claim() {
        let assigned = assign(&config(Vec::new()), &who());
        assert_eq!(
            (assigned.tenant.as_str(), assigned.weight, assigned.class),
            (POD, 1, Class::Auto)
        );
        assert!(!assigned.named && !assigned.begins_fast);
    }

    #[test]
    fn an_owner_is_a_pod_a_login_or_a_user() {
        let underscores = UID.replace('-', "_");
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscores}.slice/cri-containerd-99.scope"
            ),
            format!("/kubepods/besteffort/pod{UID}/99"),
            format!("/kubepods/besteffort/pod{UID}/99/made-inside/pod{OTHER}"),
        ] {
            assert_eq!(tenant_of(0, &path), POD, "{path}");
        }
        // A user may create cgroups below its own and owns a range of user ids.
        let login = format!(
            "/user.slice/user-1000.slice/user@1000.service/user.slice/kubepods-pod{underscores}.slice"
        );
        assert_eq!(tenant_of(100_007, &login), "user-1000");
        assert_eq!(tenant_of(7, "/user.slice/user-x.slice"), "user-7");
        assert_eq!(tenant_of(7, "/kubepods.slice"), "user-7");
        assert_eq!(tenant_of(7, ""), "user-7");
    }

    #[test]
    fn an_operator_who_trusts_processes_bounds_their_word() {
        let config = Config {
            trust_names: true,
            trust_classes: true,
            ..config(Vec::new())
        };
        let assigned = assign(&config, &who());
        assert_eq!(
            (assigned.tenant.as_str(), assigned.weight, assigned.class),
            ("mine", 4, Class::Auto)
        );
        assert!(assigned.named && assigned.begins_fast);
        let own = assigned.without_its_word(&config);
        assert_eq!((own.tenant.as_str(), own.named), (POD, false));
    }

    #[test]
    fn a_class_that_slows_only_the_process_itself_is_believed() {
        let who = Who {
            class: Class::Bandwidth,
            ..who()
        };
        assert_eq!(assign(&config(Vec::new()), &who).class, Class::Bandwidth);
    }

    #[test]
    fn cgroup_and_user_win_over_the_processs_word() {
        let rules = vec![
            Rule {
                user: Some(1),
                tenant: Some("other".to_owned()),
                ..Rule::default()
            },
            Rule {
                cgroup: Some(format!("/kubepods*/pod{UID}/**")),
                tenant: Some("{cgroup}-{user}".to_owned()),
                class: Some(Class::Bandwidth),
                weight: Some(2),
                ..Rule::default()
            },
        ];
        let mut config = config(rules);
        config.tenants.push(TenantConfig {
            name: format!("pod{UID}-1000"),
            weight: 4,
        });
        let expected = Assigned {
            tenant: format!("pod{UID}-1000"),
            tenant_weight: Some(4),
            class: Class::Bandwidth,
            weight: 2,
            named: false,
            begins_fast: false,
            owner: POD.to_owned(),
        };
        assert_eq!(assign(&config, &who()), expected);
    }

    /// The attack: a pod that may create cgroups makes one with another pod's name below its own.
    #[test]
    fn a_pod_that_takes_anothers_name_below_its_own_cgroup_stays_itself() {
        let pod = Rule {
            pod: Some(OTHER.to_owned()),
            tenant: Some("prod/cache".to_owned()),
            ..Rule::default()
        };
        let pattern = Rule {
            cgroup: Some(format!("/kubepods*/*/pod{OTHER}/**")),
            pod: None,
            ..pod.clone()
        };
        let underscores = OTHER.replace('-', "_");
        let slices = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscores}.slice/c"
        );
        let other = format!("pod-{OTHER}");
        for (path, of_pod, of_pattern) in [
            (
                format!("/kubepods/burstable/pod{OTHER}/c"),
                "prod/cache",
                "prod/cache",
            ),
            (slices, "prod/cache", &other),
            (
                format!("/kubepods/pod{UID}/c/kubepods/burstable/pod{OTHER}"),
                POD,
                POD,
            ),
            (format!("/kubepods/pod{UID}/pod{OTHER}/c"), POD, POD),
            (format!("/kubepods/burstable/pod{UID}/pod{OTHER}"), POD, POD),
        ] {
            let who = Who {
                cgroup: path.clone(),
                ..who()
            };
            for (rule, want) in [(&pod, of_pod), (&pattern, of_pattern)] {
                assert_eq!(
                    assign(&config(vec![rule.clone()]), &who).tenant,
                    want,
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn a_watched_rule_lets_queue_pairs_begin_in_the_latency_class() {
        let rule = |watches_latency| Rule {
            class: Some(Class::Latency),
            watches_latency,
            ..Rule::default()
        };
        let watched = assign(&config(vec![rule(true)]), &who());
        assert_eq!((watched.class, watched.begins_fast), (Class::Auto, true));
        let trusted = assign(&config(vec![rule(false)]), &who());
        assert_eq!(
            (trusted.class, trusted.begins_fast),
            (Class::Latency, false)
        );
    }

    proptest! {
        /// Goal: patterns of names match by their definition. Method: compare with the recursive definition.
        #[test]
        fn stars_match_like_their_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,7}") {
            fn model(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|skip| model(rest, &text[skip..])),
                    Some((first, rest)) => text.first() == Some(first) && model(rest, &text[1..]),
                }
            }
            prop_assert_eq!(cgroups::text_matches(&pattern, &text), model(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
