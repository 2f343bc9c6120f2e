//! Limits of the far tiers, and limits written as parts of something.
//!
//! Problem: a machine may have several far tiers (another socket, CXL, a remote box), and an operator says which of
//! them an application may use. Method: in descending order of priority every application's far memory fills its
//! permitted tiers, nearest first, as far as they have room; its last permitted tier stays open, so that an allocation
//! never fails for a limit of ours. Units: bytes. Limits: decided when applications come and go, for the far memory
//! that is expected then. Source: ours (mercury has one far tier).

use super::state::Book;
use super::{AppSpec, CPU_ONE, Limits, Observation, TIERS_MAX, TierLimits};
use crate::units::Bytes;

/// A limit of one tier as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// So many bytes.
    Bytes(Bytes),
    /// A part of the tier, in millionths.
    OfTier(u32),
    /// A part of the application's footprint, in millionths.
    OfFootprint(u32),
}

impl Cap {
    /// The limit in bytes, rounded down; parts beyond the whole count as the whole.
    pub fn resolve(self, tier: Bytes, footprint: Bytes) -> Bytes {
        let part = |whole: Bytes, millionths: u32| {
            let millionths = u128::from(millionths.min(MILLION));
            let bytes = u128::from(whole.get()) * millionths / u128::from(MILLION);
            Bytes::new(u64::try_from(bytes).expect("a part is not larger than the whole"))
        };
        match self {
            Self::Bytes(bytes) => bytes,
            Self::OfTier(millionths) => part(tier, millionths),
            Self::OfFootprint(millionths) => part(footprint, millionths),
        }
    }
}

/// Limits in bytes of all tiers: `capacities` are those of the machine, nearest first.
pub fn resolve_caps(
    caps: &[Option<Cap>; TIERS_MAX],
    capacities: &[Bytes],
    footprint: Bytes,
) -> TierLimits {
    let mut limits = [None; TIERS_MAX];
    for (tier, cap) in caps.iter().enumerate() {
        let capacity = capacities.get(tier).copied().unwrap_or_default();
        limits[tier] = cap.map(|cap| cap.resolve(capacity, footprint));
    }
    limits
}

/// Whether the application's far pages may lie in this tier.
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

const MILLION: u32 = 1_000_000;
