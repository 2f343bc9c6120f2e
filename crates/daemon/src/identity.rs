//! Whose process it is, what it needs and what it weighs: the kernel's word over the process's.
//!
//! Method: the operator's rules are tried in order; the first that fits counts. What no rule says, the process may
//! say where the operator lets it; what nobody says follows from its user.
//! Limits: a cgroup path is the unified hierarchy's; where there is none, the longest path of the others.

use crate::config::{Config, Rule};
use isolane_host::account::Account;
use isolane_proto::message::Class;

/// What is known of a process when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its process id in the daemon's namespace, by the kernel; zero where it has none there.
    pub pid: u32,
    /// Its user, by the kernel.
    pub user: u32,
    /// What its session is counted for, by the kernel.
    pub account: Account,
    /// Its cgroup's path, by the kernel; empty where unknown.
    pub cgroup: String,
    /// Its tenant, by its own word; may be empty.
    pub claim: String,
    /// Its program, by its own word.
    pub program: String,
    /// Its class, by its own word.
    pub class: Class,
    /// Its weight, by its own word.
    pub weight: u32,
}

/// What it is for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Its tenant.
    pub tenant: String,
    /// Its tenant's weight, where the operator gave one.
    pub tenant_weight: Option<u32>,
    /// Its class.
    pub class: Class,
    /// Its weight among its tenant's processes, and its tenant's where the operator gave none and it named one.
    pub weight: u32,
    /// Whether the tenant is the one that it named.
    pub named: bool,
}

/// Applies the operator's rules.
pub fn assign(config: &Config, who: &Who) -> Assigned {
    let rule = config.rules.iter().find(|rule| fits(rule, who));
    let claimed = config.trust_names && !who.claim.is_empty();
    let own_word = || match claimed {
        true => who.claim.clone(),
        false => format!("user-{}", who.user),
    };
    let by_rule = rule.and_then(|rule| rule.tenant.as_ref());
    let tenant = by_rule.map_or_else(own_word, |name| expand(name, who));
    let tenant_weight = config
        .tenants
        .iter()
        .find(|known| known.name == tenant)
        .map(|known| known.weight);
    let own_weight = match config.trust_names {
        true => who.weight.max(1),
        false => 1,
    };
    Assigned {
        tenant_weight,
        class: rule.and_then(|rule| rule.class).unwrap_or(who.class),
        weight: rule.and_then(|rule| rule.weight).unwrap_or(own_weight),
        named: by_rule.is_none() && claimed,
        tenant,
    }
}

fn fits(rule: &Rule, who: &Who) -> bool {
    let text = |pattern: &Option<String>, text: &str| {
        let pattern = pattern.as_deref();
        pattern.is_none_or(|pattern| matches(pattern, text))
    };
    rule.user.is_none_or(|user| user == who.user)
        && text(&rule.cgroup, &who.cgroup)
        && text(&rule.program, &who.program)
        && text(&rule.claim, &who.claim)
}

fn expand(name: &str, who: &Who) -> String {
    let last = who.cgroup.rsplit('/').next().unwrap_or_default();
    name.replace("{user}", &who.user.to_string())
        .replace("{claim}", &who.claim)
        .replace("{cgroup}", last)
}

/// Whether `text` is `pattern`, where `*` stands for any characters, also none. Linear in the product of lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Where the last star stood, and how much it has swallowed.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        if at < pattern.len() && pattern[at] == b'*' {
            star = Some((at, from));
            at += 1;
        } else if at < pattern.len() && pattern[at] == text[from] {
            at += 1;
            from += 1;
        } else if let Some((place, swallowed)) = star {
            star = Some((place, swallowed + 1));
            at = place + 1;
            from = swallowed + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TenantConfig;
    use proptest::prelude::*;

    fn who() -> Who {
        Who {
            pid: 7,
            user: 1000,
            account: Account::of_user(1000),
            cgroup: "/kubepods.slice/pod-12/cri-abc.scope".to_owned(),
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

    #[test]
    fn without_a_rule_its_own_word_counts() {
        let assigned = assign(&config(Vec::new()), &who());
        assert_eq!(
            (assigned.tenant.as_str(), assigned.weight, assigned.class),
            ("mine", 9, Class::Latency)
        );
        assert!(assigned.named);
    }

    #[test]
    fn an_operator_who_trusts_nobody_goes_by_user() {
        let config = Config {
            trust_names: false,
            ..config(Vec::new())
        };
        let assigned = assign(&config, &who());
        assert_eq!(
            (assigned.tenant.as_str(), assigned.weight),
            ("user-1000", 1)
        );
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
                cgroup: Some("/kubepods*/pod-12/*".to_owned()),
                tenant: Some("pod-{cgroup}-{user}".to_owned()),
                class: Some(Class::Bandwidth),
                weight: Some(2),
                ..Rule::default()
            },
        ];
        let mut config = config(rules);
        config.tenants.push(TenantConfig {
            name: "pod-cri-abc.scope-1000".to_owned(),
            weight: 4,
        });
        let expected = Assigned {
            tenant: "pod-cri-abc.scope-1000".to_owned(),
            tenant_weight: Some(4),
            class: Class::Bandwidth,
            weight: 2,
            named: false,
        };
        assert_eq!(assign(&config, &who()), expected);
    }

    proptest! {
        /// Goal: patterns mean what they say. Method: the recursive definition.
        #[test]
        fn stars_match_like_their_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,7}") {
            fn model(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|skip| model(rest, &text[skip..])),
                    Some((first, rest)) => text.first() == Some(first) && model(rest, &text[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), model(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
