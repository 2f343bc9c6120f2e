//! A scenario's own tenants as victims and attackers, in place of the catalogue's.
//!
//! Every tenant is a victim, and attacks every other one; with three or more, all others together are one more
//! attacker, [`ALL_OTHERS`] (with two that would be the same pair again). Rows and columns keep the file's order.
//! A tenant runs as the file says, with its start, stop and weight, also when it runs alone.
//!
//! A tenant of class latency is judged by its 99th percentile, at most [`OVER_SOLO`] times what it is alone; a
//! distributed application by its operations; the others by the audit's predicate with n the number of tenants present.

use crate::AuditError;
use crate::cell::{Attacker, Victim, VictimKind};
use crate::plan::{AttackerPlan, VictimPlan};
use crate::select::choose;
use isolane_rdma_scenario::model::{Class, Scenario, Tenant, Traffic};

/// Name of the attacker that is all other tenants at once.
pub const ALL_OTHERS: &str = "all-others";

/// Accepted p99 under attack over p99 alone for tenants of class latency: twice, since one request of an equal
/// neighbour in front of each of the tenant's own doubles its latency and cannot be avoided.
pub const OVER_SOLO: f64 = 2.0;

/// The tenants of `scenario` that the globs choose, as victims and attackers. All where a glob is absent.
pub fn select(
    scenario: &Scenario,
    victims: Option<&str>,
    attackers: Option<&str>,
) -> Result<(Vec<VictimPlan>, Vec<AttackerPlan>), AuditError> {
    let tenants = &scenario.tenants;
    let problem = match tenants.iter().any(|tenant| tenant.name == ALL_OTHERS) {
        true => Some(
            "the tenant name all-others is reserved for all other tenants: choose another name",
        ),
        false if tenants.len() < 2 => {
            Some("a victim and an attacker are needed, so at least two tenants: add a [[tenant]]")
        }
        false => None,
    };
    if let Some(problem) = problem {
        return Err(AuditError::Tenants {
            scenario: scenario.name.clone(),
            problem,
        });
    }
    let mut all_attackers: Vec<AttackerPlan> = tenants.iter().map(attacker).collect();
    if tenants.len() > 2 {
        all_attackers.push(AttackerPlan {
            info: Attacker {
                name: ALL_OTHERS.to_owned(),
                category: "together".to_owned(),
                resource: "all that the other tenants use".to_owned(),
                column: None,
            },
            tenants: Ok(tenants.clone()),
        });
    }
    let victim_names: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let attacker_names: Vec<&str> = all_attackers.iter().map(|a| a.info.name.as_str()).collect();
    let among = |role, names: &[&str], globs: Option<&str>| {
        choose(role, names, globs.unwrap_or("*")).map_err(|error| naming(error, names))
    };
    let victims = among("victim", &victim_names, victims)?;
    let attackers = among("attacker", &attacker_names, attackers)?;
    Ok((
        victims
            .into_iter()
            .map(|index| victim(&tenants[index]))
            .collect(),
        attackers
            .into_iter()
            .map(|index| all_attackers[index].clone())
            .collect(),
    ))
}

/// The error with the tenants that there are, in place of the catalogue.
fn naming(mut error: AuditError, names: &[&str]) -> AuditError {
    if let AuditError::NoMatch { tenants, .. } = &mut error {
        *tenants = Some(names.iter().map(|name| (*name).to_owned()).collect());
    }
    error
}

fn victim(tenant: &Tenant) -> VictimPlan {
    let over_solo = (tenant.class == Class::Latency).then_some(OVER_SOLO);
    VictimPlan {
        info: Victim {
            name: tenant.name.clone(),
            kind: match over_solo {
                Some(_) => VictimKind::Latency,
                None if runs_application(tenant) => VictimKind::Application,
                None => VictimKind::Rate,
            },
            category: tenant.class.name().to_owned(),
            measured_us: None,
        },
        tenant: Ok(tenant.clone()),
        over_solo,
        duration: None,
    }
}

fn runs_application(tenant: &Tenant) -> bool {
    let mut workloads = tenant.workloads.iter();
    workloads.any(|workload| matches!(workload.traffic, Traffic::Application(_)))
}

fn attacker(tenant: &Tenant) -> AttackerPlan {
    AttackerPlan {
        info: Attacker {
            name: tenant.name.clone(),
            category: tenant.class.name().to_owned(),
            resource: format!("what tenant {} uses", tenant.name),
            column: None,
        },
        tenants: Ok(vec![tenant.clone()]),
    }
}
