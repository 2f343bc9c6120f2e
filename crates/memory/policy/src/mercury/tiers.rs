//! Limits of the far tiers.
//!
//! Problem: a machine may have several far tiers (another socket, CXL, a remote box), and an operator says which of
//! them an application may use. Method: in descending order of priority every application's far memory fills its
//! permitted tiers, nearest first, as far as they have room; its last permitted tier stays open, so that an allocation
//! never fails for a limit of ours. Units: bytes. Limits: decided when applications come and go, for the far memory
//! that is expected then. Source: ours (mercury has one far tier).

use super::state::Book;
use super::{AppSpec, CPU_ONE, Limits, Observation, TIERS_MAX};
use isolane_common_quantities::units::Bytes;

/// Whether the application's far pages may be in this tier.
pub(super) fn permitted(spec: &AppSpec, tier: usize) -> bool {
    spec.far_tiers.is_empty() || spec.far_tiers.iter().any(|&far| usize::from(far) == tier)
}

/// What an application can hold over all tiers it may use.
pub(super) fn most(spec: &AppSpec, seen: &Observation) -> u64 {
    let mut sum: u64 = 0;
    for (tier, view) in seen.tiers.iter().enumerate().take(TIERS_MAX) {
        if tier == 0 || permitted(spec, tier) {
            let cap = spec.caps[tier].map_or(u64::MAX, Bytes::get);
            sum = sum.saturating_add(view.capacity.get().min(cap));
        }
    }
    sum
}

/// The limits an application starts with: `near` bytes of the near tier, its own caps elsewhere.
pub(super) fn start(spec: &AppSpec, near: u64, cpu: u32) -> Limits {
    let mut tiers = spec.caps;
    tiers[0] = Some(Bytes::new(near));
    for (tier, limit) in tiers.iter_mut().enumerate().skip(1) {
        if !permitted(spec, tier) {
            *limit = Some(Bytes::ZERO);
        }
    }
    Limits {
        tiers,
        cpu: cpu.min(CPU_ONE),
    }
}

/// Spreads the far memory of all applications over the far tiers. Does nothing on a machine with one.
pub(super) fn spread(book: &mut Book, seen: &Observation) {
    let tiers = seen.tiers.len().min(TIERS_MAX);
    if tiers < 3 {
        return;
    }
    let mut room: Vec<u64> = seen.tiers.iter().map(|tier| tier.capacity.get()).collect();
    for app in book.apps.iter_mut().rev() {
        let near = app.limits.tiers[0].map_or(u64::MAX, Bytes::get);
        let mut far = app.spec.footprint.get().saturating_sub(near);
        let order: Vec<usize> = if app.spec.far_tiers.is_empty() {
            (1..tiers).collect()
        } else {
            let listed = app.spec.far_tiers.iter().map(|&tier| usize::from(tier));
            listed.filter(|tier| (1..tiers).contains(tier)).collect()
        };
        for (place, &tier) in order.iter().enumerate() {
            let cap = app.spec.caps[tier].map(Bytes::get);
            let given = far.min(room[tier]).min(cap.unwrap_or(u64::MAX));
            far -= given;
            room[tier] -= given;
            let open = place + 1 == order.len();
            app.limits.tiers[tier] = if open {
                app.spec.caps[tier]
            } else {
                Some(Bytes::new(given))
            };
        }
    }
}
