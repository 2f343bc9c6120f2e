//! Made-up delays of a weighted fair port.

use crate::{WfqDelays, WfqPoint};

/// Two classes in which both wait, at the shares of the first class.
pub(crate) fn delays(shares: &[f64]) -> WfqDelays {
    let point = |share: &f64| WfqPoint {
        share: *share,
        delay_periods: vec![*share, 1.0 - share],
        delay_us: None,
        case: Some("both <wait>".to_owned()),
    };
    WfqDelays {
        version: 1,
        weights: vec![4.0, 1.0],
        load: 0.8,
        burst: 2.0,
        rest: vec![1.0],
        period_us: None,
        admissible_share: vec![[0.0, 0.8]],
        guaranteed_line_rates: vec![0.32],
        undelayed_share_max: 0.4,
        points: shares.iter().map(point).collect(),
    }
}
