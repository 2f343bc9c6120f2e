//! Which kinds of scenario a policy runs on, for policies that are named for another kind.

use isolane_memory_scenario::model::MEM_POLICIES;
use isolane_network_scenario::parameters::POLICY;
use isolane_rdma_scenario::stack;

/// A kind of scenario that has policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA hosts: `[[tenant]]`.
    Rdma,
    /// A network: `[fabric]`.
    Network,
    /// Tiered memory: `[memory]`.
    Memory,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Rdma, Self::Network, Self::Memory];

    /// In words, with the difference to other policies.
    fn words(self) -> &'static str {
        match self {
            Self::Rdma => "RDMA hosts ([[tenant]])",
            Self::Network => "networks ([fabric])",
            Self::Memory => "tiered memory ([memory])",
        }
    }

    /// The policies that run on it; of RDMA hosts the parts, which `+` joins.
    fn policies(self) -> Vec<&'static str> {
        match self {
            Self::Rdma => stack::part_names().collect(),
            Self::Network => POLICY.to_vec(),
            Self::Memory => MEM_POLICIES.to_vec(),
        }
    }

    fn runs(self, name: &str) -> bool {
        match self {
            Self::Rdma => stack::parts(name).is_ok(),
            Self::Network | Self::Memory => self.policies().contains(&name),
        }
    }
}

/// What to say of the policy `name` for a scenario of kind `here`: on which kinds it runs, and what runs here. None where it
/// runs here, or where no kind knows it.
pub(crate) fn elsewhere(name: &str, here: Kind) -> Option<String> {
    if here.runs(name) {
        return None;
    }
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.runs(name));
    let kinds: Vec<&str> = kinds.map(Kind::words).collect();
    if kinds.is_empty() {
        return None;
    }
    Some(format!(
        "runs on {}; for {} choose one of {}",
        kinds.join(" and "),
        here.words(),
        here.policies().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_other_kinds_are_named_with_their_kinds() {
        let said = elsewhere("aequitas", Kind::Rdma).unwrap();
        assert!(
            said.starts_with(
                "runs on networks ([fabric]); for RDMA hosts ([[tenant]]) choose one of none, justitia,"
            ),
            "{said}"
        );
        let said = elsewhere("justitia+hw-tc", Kind::Network).unwrap();
        assert!(
            said.starts_with(
                "runs on RDMA hosts ([[tenant]]); for networks ([fabric]) choose one of none, aequitas,"
            ),
            "{said}"
        );
        for (name, here) in [
            ("none", Kind::Memory),
            ("justitia", Kind::Rdma),
            ("justicia", Kind::Network),
        ] {
            assert_eq!(elsewhere(name, here), None, "{name}");
        }
    }
}
