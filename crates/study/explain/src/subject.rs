//! Who is hurt, and by whom: one victim and one attacker of the catalogue, or tenants of a scenario.

use crate::ExplainError;
use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::model::{Scenario, Tenant, Topology, Traffic};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_audit::cell::VictimKind;
use isolane_study_audit::plan::{AttackerPlan, TOPOLOGY, VictimPlan};
use isolane_study_audit::select::Selection;
use isolane_study_audit::tenants;

/// One victim and what it meets.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The victim.
    pub victim: Tenant,
    /// What of it counts.
    pub kind: VictimKind,
    /// Name of the attacker in the request.
    pub attacker: String,
    /// Its tenants; at least one.
    pub attackers: Vec<Tenant>,
    /// How the hosts are joined.
    pub topology: Topology,
}

impl Subject {
    /// The catalogue's victim and attacker of these names on the device of `profile`. Fails if a name is unknown (the
    /// message names the nearest) or matches several tenants, or when the device cannot run one of the two.
    pub fn of_catalogue(
        catalogue: &Catalogue,
        profile: &Profile,
        victim: &str,
        attacker: &str,
    ) -> Result<Self, ExplainError> {
        let selection = Selection {
            victims: Some(victim.to_owned()),
            attackers: Some(attacker.to_owned()),
            quick: false,
        };
        let (victims, attackers) = selection.of(catalogue, profile)?;
        Self::of_plans(
            profile,
            one("victim", victim, victims, |plan| &plan.info.name)?,
            one("attacker", attacker, attackers, |plan| &plan.info.name)?,
            TOPOLOGY,
        )
    }

    /// The tenant `victim` of `scenario` against its tenant `attacker`, or against all others. Fails as
    /// [`Subject::of_catalogue`] does, and if the scenario has only one tenant.
    pub fn of_scenario(
        scenario: &Scenario,
        profile: &Profile,
        victim: &str,
        attacker: Option<&str>,
    ) -> Result<Self, ExplainError> {
        let (victims, mut attackers) = tenants::select(scenario, Some(victim), attacker)?;
        let victim = one("victim", victim, victims, |plan| &plan.info.name)?;
        attackers.retain(|plan| plan.info.name != victim.info.name);
        if attacker.is_none() && attackers.len() > 1 {
            attackers.retain(|plan| plan.info.name == tenants::ALL_OTHERS);
        }
        let pattern = attacker.unwrap_or(tenants::ALL_OTHERS);
        if attackers.is_empty() {
            return Err(ExplainError::NoAttacker(victim.info.name));
        }
        let attacker = one("attacker", pattern, attackers, |plan| &plan.info.name)?;
        if scenario.network.is_some() {
            return Err(ExplainError::NotApplicable {
                profile: profile.name.clone(),
                reason: "a network joins its hosts, and who waits for whom is followed on one cable or switch only: drop \
                         [network]"
                    .to_owned(),
            });
        }
        Self::of_plans(profile, victim, attacker, scenario.topology)
    }

    fn of_plans(
        profile: &Profile,
        victim: VictimPlan,
        attacker: AttackerPlan,
        topology: Topology,
    ) -> Result<Self, ExplainError> {
        let refused = |reason| ExplainError::NotApplicable {
            profile: profile.name.clone(),
            reason,
        };
        let mut tenant = victim.tenant.map_err(refused)?;
        tenant.name.clone_from(&victim.info.name);
        let application = victim.info.kind == VictimKind::Application;
        let reason = application.then_some("is judged as an application, by its operations");
        if let Some(reason) = not_followed(&tenant).or(reason) {
            let victim = tenant.name;
            return Err(ExplainError::NotFollowed { victim, reason });
        }
        let mut attackers = attacker.tenants.map_err(refused)?;
        attackers.retain(|other| other.name != tenant.name);
        Ok(Self {
            victim: tenant,
            kind: victim.info.kind,
            attacker: attacker.info.name,
            attackers,
            topology,
        })
    }
}

/// Why messages of `tenant` cannot be followed one by one, if they cannot.
fn not_followed(tenant: &Tenant) -> Option<&'static str> {
    let any = |of: fn(&Traffic) -> bool| tenant.workloads.iter().any(|load| of(&load.traffic));
    if any(|traffic| matches!(traffic, Traffic::Application(_))) {
        // An operation is many messages of several hosts that wait for each other.
        return Some("runs a distributed application");
    }
    (!any(|traffic| matches!(traffic, Traffic::Data(_)))).then_some("sends no data")
}

/// The only one of `found`.
fn one<T>(
    role: &'static str,
    pattern: &str,
    mut found: Vec<T>,
    name: impl Fn(&T) -> &String,
) -> Result<T, ExplainError> {
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    Err(ExplainError::Several {
        role,
        pattern: pattern.to_owned(),
        count: found.len(),
        first: found.first().map(name).cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn subject(victim: &str, attacker: &str) -> Result<Subject, String> {
        let library = Library::embedded();
        let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
        Subject::of_catalogue(&Catalogue::embedded(), profile, victim, attacker)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_name_names_the_nearest() {
        let error = subject("small_tput_ib_wite_bw", "Cache-QPC_ib_write_bw").unwrap_err();
        assert!(error.contains("nearest: small_tput_ib_write_bw"), "{error}");
    }

    #[test]
    fn a_pattern_must_match_one() {
        let error = subject("small_tput*", "Cache-QPC_ib_write_bw").unwrap_err();
        assert!(error.contains("name one, such as small_tput"), "{error}");
    }

    #[test]
    fn a_distributed_application_is_no_victim_whose_messages_are_followed() {
        let text = "profile = \"cx5-100g-roce\"\ntopology = \"switch\"\n\
            [[tenant]]\nname = \"store\"\n[[tenant.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\nrequest = [\"64B\"]\nresponse = [\"64B\"]\n\
            [[tenant]]\nname = \"bulk\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 65536\n";
        let library = Library::embedded();
        let scenario = isolane_rdma_scenario::parse(text, "test.toml", &library)
            .unwrap_or_else(|error| panic!("{error}"));
        let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
        let error = Subject::of_scenario(&scenario, profile, "store", None).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("victim store runs a distributed application"),
            "{message}"
        );
        assert!(Subject::of_scenario(&scenario, profile, "bulk", None).is_ok());
    }

    #[test]
    fn a_scenario_s_victim_meets_all_others_unless_one_is_named() {
        let tenant = |name: &str| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\n"
            )
        };
        let text = format!(
            "profile = \"cx5-100g-roce\"\n{}{}{}",
            tenant("a"),
            tenant("b"),
            tenant("c")
        );
        let library = Library::embedded();
        let scenario = isolane_rdma_scenario::parse(&text, "test.toml", &library).unwrap();
        let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
        let of = |victim, attacker| {
            Subject::of_scenario(&scenario, profile, victim, attacker).map(|subject| {
                let names = subject.attackers.iter().map(|tenant| tenant.name.clone());
                names.collect::<Vec<_>>()
            })
        };
        assert_eq!(of("b", None).unwrap(), ["a", "c"]);
        assert_eq!(of("b", Some("c")).unwrap(), ["c"]);
        assert!(of("b", Some("b")).is_err());
    }
}
