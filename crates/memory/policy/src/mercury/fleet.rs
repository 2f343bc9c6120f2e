//! Rates machines for an application; a scheduler chooses by the score.
//!
//! Problem: several machines can take an application. On one machine it disturbs no other application; on another one,
//! an application loses its objective. Method: a score from [`Plan`], the result of a what-if question. Six tenths are
//! for objectives that hold (halved with the first lost objective, a third with the second, ...), a quarter is for
//! taking little near memory from others, and the rest is for near memory that stays free. So harm outweighs room, and
//! room breaks ties.
//!
//! Units: hundredths, 0 to 100. Limits: what a plan does not know (no reading, no profile) counts as harm by half.
//! Source: ours; mercury schedules one machine.

use super::{Objective, Plan, Verdict};
use isolane_common_quantities::units::Bytes;

/// How well a machine suits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suitability {
    /// Whether the objective is expected to hold there.
    pub keeps_objective: bool,
    /// Applications there that are expected to lose theirs; one about which nothing is known counts half.
    pub harmed: f64,
    /// 0 to 100, larger is better; 0 where the application may not run or its objective would not hold.
    pub score: u32,
}

/// Scores a plan for a machine whose near tier has `near` bytes, with `free` bytes unclaimed before.
pub fn suitability(plan: &Plan, objective: Objective, near: Bytes, free: Bytes) -> Suitability {
    let keeps_objective = match &plan.verdict {
        Verdict::Admitted => true,
        Verdict::BestEffort(_) => objective == Objective::BestEffort,
        Verdict::Refused(_) => false,
    };
    let harmed: f64 = plan
        .yields
        .iter()
        .map(|given| match given.keeps_objective {
            Some(true) => 0.0,
            Some(false) => 1.0,
            None => 0.5,
        })
        .sum();
    if !keeps_objective {
        return Suitability {
            keeps_objective,
            harmed,
            score: 0,
        };
    }
    let near = near.get().max(1) as f64;
    let taken: u64 = plan.yields.iter().map(|given| given.near.get()).sum();
    let own = plan.limits.tiers[0].map_or(0, Bytes::get);
    let left = free.get().saturating_sub(own.saturating_sub(taken));
    let part = |bytes: u64| (bytes as f64 / near).min(1.0);
    let score = HARM / (1.0 + harmed) + TAKEN * (1.0 - part(taken)) + LEFT * part(left);
    Suitability {
        keeps_objective,
        harmed,
        score: score.round() as u32,
    }
}

const HARM: f64 = 60.0;
const TAKEN: f64 = 25.0;
const LEFT: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mercury::{AppId, Limits, Shortfall, Yield};

    fn plan(verdict: Verdict, near: u64, yields: &[(u64, Option<bool>)]) -> Plan {
        let mut limits = Limits::NONE;
        limits.tiers[0] = Some(Bytes::new(near));
        Plan {
            verdict,
            limits,
            yields: yields
                .iter()
                .map(|&(given, keeps_objective)| Yield {
                    app: AppId(1),
                    name: "other".to_owned(),
                    near: Bytes::new(given),
                    cpu: 0,
                    near_after: Bytes::ZERO,
                    cpu_after: 1_000,
                    keeps_objective,
                })
                .collect(),
            near_bandwidth: 0,
            hint_faults_per_s: None,
        }
    }

    fn score(plan: &Plan, free: u64) -> u32 {
        let objective = Objective::Bandwidth(1);
        suitability(plan, objective, Bytes::new(100), Bytes::new(free)).score
    }

    #[test]
    fn an_empty_machine_is_best_and_room_breaks_ties() {
        let empty = plan(Verdict::Admitted, 10, &[]);
        assert_eq!(score(&empty, 100), 99);
        assert!(score(&empty, 100) > score(&empty, 20));
    }

    #[test]
    fn harm_outweighs_room() {
        let harmless = plan(Verdict::Admitted, 50, &[(50, Some(true))]);
        let harmful = plan(Verdict::Admitted, 50, &[(5, Some(false))]);
        let unknown = plan(Verdict::Admitted, 50, &[(5, None)]);
        assert!(score(&harmless, 0) > score(&harmful, 45));
        assert!(score(&unknown, 45) > score(&harmful, 45));
        let worse = plan(Verdict::Admitted, 50, &[(3, Some(false)), (2, Some(false))]);
        assert!(score(&harmful, 45) > score(&worse, 45));
    }

    #[test]
    fn where_the_objective_fails_the_score_is_nothing() {
        let short = plan(Verdict::BestEffort(Shortfall::default()), 1, &[]);
        assert_eq!(score(&short, 100), 0);
    }
}
