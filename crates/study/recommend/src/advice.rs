//! The order of the policies, and the recommendation in a sentence.
//!
//! Policies that need hardware that is not on sale come after all others, and are recommended on request only.

use crate::result::PolicyOutcome;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::stack;

/// The order of the ranking: less is better. Policies that need no hardware outside the market come first.
pub(crate) fn rank(outcome: &PolicyOutcome) -> (bool, u32, i64, i64) {
    let missed = outcome.objectives - outcome.met;
    let steps = |value: f64, step: f64| (value / step).round() as i64;
    (
        !outcome.on_sale,
        missed,
        -steps(outcome.utilisation, UTILISATION_STEP),
        steps(outcome.policy_cores, CORES_STEP),
    )
}

/// Utilisations nearer than this are equal, so that CPU decides: a seed changes as much.
const UTILISATION_STEP: f64 = 0.02;
/// Cores nearer than this are equal.
const CORES_STEP: f64 = 0.01;

/// The recommendation in a sentence, of policies that can be bought, or of all.
pub(crate) fn advice(policies: &[PolicyOutcome], not_on_sale: bool) -> String {
    let mut candidates: Vec<&PolicyOutcome> = policies
        .iter()
        .filter(|one| not_on_sale || one.on_sale)
        .collect();
    if candidates.is_empty() {
        return "no policy that was compared can be bought: all need hardware that is not on sale; --not-on-sale advises \
                them all the same"
            .to_owned();
    }
    // Stable, and without the place of what cannot be bought.
    candidates.sort_by_key(|one| {
        let (_, missed, used, cores) = rank(one);
        (missed, used, cores)
    });
    let best = candidates[0];
    let equal = candidates.iter().skip(1);
    let equal = equal.filter(|other| other.met == best.met);
    let equal: Vec<String> = equal.map(|other| stack::marked(&other.policy)).collect();
    let cost = format!(
        "uses {:.0} % of the RDMA NIC for {:.2} cores",
        best.utilisation * 100.0,
        best.policy_cores
    );
    let (met, count) = (best.met, best.objectives);
    // "none meets the objective" would read as its opposite.
    let name = match best.policy.as_str() {
        "none" => "policy none",
        name => name,
    };
    let objectives = counted(u64::from(count), "objective");
    let mut text = match met {
        0 => return format!("no policy meets any of the {objectives}"),
        1 if count == 1 => format!("{name} meets the objective and {cost}"),
        _ if met == count => format!("{name} meets all {objectives} and {cost}"),
        _ => {
            format!("no policy meets all {objectives}; {name} meets most, {met}, and {cost}")
        }
    };
    if !equal.is_empty() {
        let verb = if equal.len() == 1 { "meets" } else { "meet" };
        text.push_str(&format!("; {} also {verb} {met}", equal.join(", ")));
    }
    if !best.on_sale {
        text.push_str(&format!("; {name} needs hardware that is not on sale"));
        if let Some(real) = candidates.iter().find(|other| other.on_sale) {
            let (name, met) = (&real.policy, real.met);
            text.push_str(&format!(
                ": of what is, {name} is best, with {met} of {count}"
            ));
        }
    }
    text
}
