//! Why an application may not run, in words that help.
//!
//! Method: what needs no policy first (names, the machine's own measured best), then what the policy says.

use super::Controller;
use crate::application::amounts::{self, Amount};
use crate::application::{Application, PRIORITY_MAX, Slo};
use crate::journal::{APPLICATIONS_MAX, ENTRIES_MAX};
use crate::protocol::{Failure, FailureCode, Refused, RefusedCode};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{Objective, Refusal, STALE, Shortfall};

impl Controller {
    /// Reasons against it that need no policy.
    pub(super) fn refuse(&self, application: &Application) -> Option<Refused> {
        if self
            .apps
            .values()
            .any(|app| app.entry.application.name == application.name)
        {
            return Some(Refused {
                code: RefusedCode::Duplicate,
                message: format!(
                    "{} is under control already: choose another name with --name, or run isolane mem remove first",
                    application.name
                ),
                best: None,
            });
        }
        if self.apps.len() >= APPLICATIONS_MAX {
            return Some(Refused {
                code: RefusedCode::Full,
                message: format!(
                    "{APPLICATIONS_MAX} applications are under control, and there cannot be more"
                ),
                best: None,
            });
        }
        // Released applications stay in the journal while their processes run in our cgroups.
        if self.journal.entries.len() >= ENTRIES_MAX {
            return Some(Refused {
                code: RefusedCode::Full,
                message: format!(
                    "{ENTRIES_MAX} cgroups of ours have processes, and there cannot be more: end those of applications that were removed"
                ),
                best: None,
            });
        }
        // What the machine gives any application, and what this application got alone in its profile.
        let alone = application.profile.as_ref().map(|profile| profile.best);
        let best = match (application.slo, alone) {
            (Slo::LatencyPs(ps), alone) => {
                let alone = match alone {
                    Some(Slo::LatencyPs(best)) => Some(Duration::from_ps(best)),
                    _ => None,
                };
                let best = self.about.best_latency.into_iter().chain(alone).max();
                best.filter(|best| Duration::from_ps(ps) < *best)
                    .map(Objective::Latency)
            }
            (Slo::BandwidthBytesPerS(rate), alone) => {
                let alone = match alone {
                    Some(Slo::BandwidthBytesPerS(best)) => Some(best),
                    _ => None,
                };
                let best = self.about.best_bandwidth.into_iter().chain(alone).min();
                best.filter(|best| rate > *best).map(Objective::Bandwidth)
            }
            (Slo::BestEffort, _) => None,
        };
        best.map(|best| inadmissible(application, best))
    }

    /// An old reading decides nothing: memory that was free then may be in use now.
    pub(super) fn check_picture(&self, now: Instant) -> Result<(), Failure> {
        let age = self
            .parts
            .sensors
            .age()
            .max(now.saturating_since(self.looked));
        match age <= STALE {
            true => Ok(()),
            false => Err(Failure::new(
                FailureCode::Busy,
                format!(
                    "the machine was last looked at {} ms ago, and nothing is decided on a picture older than {} ms: try again; if that lasts, see isolane mem status",
                    age.as_ps() / 1_000_000_000,
                    STALE.as_ps() / 1_000_000_000
                ),
            )),
        }
    }

    /// What names more than the machine has.
    pub(super) fn check_against_machine(&self, application: &Application) -> Result<(), Failure> {
        let tiers = &self.seen.tiers;
        let bad = |message: String| Err(Failure::new(FailureCode::BadInput, message));
        let beyond = |tier: u8| !tiers.is_empty() && usize::from(tier) >= tiers.len();
        let all = application
            .caps
            .iter()
            .map(|cap| cap.tier)
            .chain(application.far_tiers.iter().copied());
        if let Some(tier) = all.into_iter().find(|tier| beyond(*tier)) {
            let last = tiers.len() - 1;
            return bad(format!(
                "tier {tier} does not exist: this machine has tiers 0 to {last}"
            ));
        }
        let near = tiers.first().map(|tier| tier.capacity.get());
        if let (Some(profile), Some(near)) = (&application.profile, near)
            && profile.local_bytes > near
        {
            return bad(format!(
                "measured.local = {}: the near tier of this machine has {}: measure the application here, or take a larger machine",
                amounts::size_text(profile.local_bytes),
                amounts::size_text(near)
            ));
        }
        for cap in &application.caps {
            let capacity = tiers
                .get(usize::from(cap.tier))
                .map(|tier| tier.capacity.get());
            if let (Amount::Bytes(bytes), Some(capacity)) = (cap.most, capacity)
                && bytes > capacity
            {
                return bad(format!(
                    "{} of tier {} is more than there is: it has {}: write at most that, or leave the limit out",
                    amounts::size_text(bytes),
                    cap.tier,
                    amounts::size_text(capacity)
                ));
            }
        }
        self.check_floors(application).map_or(Ok(()), bad)
    }

    /// What is wrong with floors: the kernel cannot keep more memory for applications than the machine has.
    fn check_floors(&self, application: &Application) -> Option<String> {
        let tiers = self.seen.tiers.iter().map(|tier| tier.capacity.get());
        let capacity = tiers.reduce(u64::saturating_add)?;
        let floors = application.floors;
        let others = self.apps.values();
        let others = others
            .map(|app| app.entry.application.floors.min_bytes)
            .fold(0, u64::saturating_add);
        let text = amounts::size_text;
        for (key, bytes) in [
            ("memory_low", floors.low_bytes),
            ("memory_min", floors.min_bytes),
        ] {
            if bytes > capacity {
                return Some(format!(
                    "{key} = {}: all tiers of this machine together have {}: write a smaller floor, or leave the floor out",
                    text(bytes),
                    text(capacity)
                ));
            }
        }
        (floors.min_bytes > capacity.saturating_sub(others)).then(|| {
            format!(
                "memory_min = {}: other applications have a memory_min of {} together, and all tiers of this machine have {}: write a smaller floor, or leave the floor out",
                text(floors.min_bytes),
                text(others),
                text(capacity)
            )
        })
    }

    /// What the policy's refusal means.
    pub(super) fn refused(&self, application: &Application, refusal: Refusal) -> Refused {
        let name = &application.name;
        match refusal {
            Refusal::Inadmissible(best) => inadmissible(application, best),
            Refusal::DuplicatePriority(other) => {
                let other = self.name(other);
                let taken = |priority: &u32| {
                    self.apps
                        .values()
                        .any(|app| app.entry.application.priority == *priority)
                };
                // There are more priorities than applications, so one of the two directions has one.
                let wanted = application.priority;
                let free = (wanted..=PRIORITY_MAX)
                    .chain((0..wanted).rev())
                    .find(|priority| !taken(priority))
                    .expect("fewer applications than priorities");
                Refused {
                    code: RefusedCode::DuplicatePriority,
                    message: format!(
                        "priority {} of {name} is that of {other}; priorities are unique: {free} is free",
                        application.priority
                    ),
                    best: None,
                }
            }
            Refusal::Duplicate => Refused {
                code: RefusedCode::Duplicate,
                message: format!("{name} is under control already"),
                best: None,
            },
            Refusal::Exhausted(lacks) => Refused {
                code: RefusedCode::Exhausted,
                message: format!(
                    "{name} lacks {}: wait until an application ends, or give a weaker objective",
                    shortfall(lacks)
                ),
                best: None,
            },
            Refusal::TooLarge {
                footprint,
                capacity,
            } => Refused {
                code: RefusedCode::TooLarge,
                message: format!(
                    "{name} needs {} and all tiers together have {}: give it less, or a larger machine",
                    amounts::size_text(footprint.get()),
                    amounts::size_text(capacity.get())
                ),
                best: None,
            },
        }
    }
}

/// What is short, without what is not.
fn shortfall(lacks: Shortfall) -> String {
    let local = (lacks.local > Bytes::ZERO)
        .then(|| format!("{} of near memory", amounts::size_text(lacks.local.get())));
    let rate = (lacks.bandwidth > 0)
        .then(|| format!("{} of bandwidth", amounts::bandwidth_text(lacks.bandwidth)));
    let parts: Vec<String> = local.into_iter().chain(rate).collect();
    parts.join(" and ")
}

fn inadmissible(application: &Application, best: Objective) -> Refused {
    let name = &application.name;
    let wanted = super::show::slo(application.slo);
    let message = match best {
        Objective::BestEffort => {
            format!(
                "{name}: {wanted} cannot be kept on this machine, not even alone: give a weaker objective"
            )
        }
        best => format!(
            "{name}: {wanted} is better than {}, the best value measured on this machine: give a weaker objective, or use another machine",
            super::show::slo(Slo::of(best))
        ),
    };
    Refused {
        code: RefusedCode::Inadmissible,
        message,
        best: Some(Slo::of(best)),
    }
}
