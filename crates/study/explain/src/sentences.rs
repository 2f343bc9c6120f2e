//! The sentences of a story: verdict, chain, and one per cause. Every number in a sentence is in the data too.

use crate::explanation::{CacheStory, Cause, Explanation, Link, Part};
use crate::words::{self, letter, percent, us};
use isolane_rdma_simulator::rnic::trace::Resource;
use isolane_study_audit::cell::{Metrics, VictimKind};

/// A resource is called full from here on; as in the audit.
const FULL: f64 = 0.8;
/// A further cause of at least this part of the added latency is in the chain too.
const LARGE: f64 = 0.2;

/// Writes the verdict and the chain of `explanation`; `starved` says that nothing completed under attack.
pub(crate) fn tell(explanation: &mut Explanation, starved: bool) {
    explanation.verdict = verdict(explanation, starved);
    explanation.chain = chain(explanation, starved);
}

fn verdict(explanation: &Explanation, starved: bool) -> String {
    let Explanation {
        victim,
        attacker,
        loss,
        ..
    } = explanation;
    if starved {
        return format!("{attacker} starves {victim}: no message that was followed completed.");
    }
    if !loss.hurt {
        return format!(
            "{attacker} does not hurt {victim}, which {}.",
            kept(explanation)
        );
    }
    let top = explanation
        .causes
        .first()
        .filter(|cause| cause.added_us > 0.0);
    let why = match top {
        Some(cause) => format!(
            "{} of the added latency is waiting for {}",
            percent(cause.share),
            place(cause)
        ),
        None => "its messages take no longer, so it posts less; the cause is outside the NICs"
            .to_owned(),
    };
    format!("{victim} {}: {why}.", kept(explanation))
}

/// What the victim is left with.
fn kept(explanation: &Explanation) -> String {
    let loss = &explanation.loss;
    let share = match loss.retained {
        more if more >= 1.0 => "all".to_owned(),
        less => percent(less),
    };
    match explanation.kind {
        VictimKind::Rate if loss.alone.goodput_gbps > 0.0 => {
            format!("keeps {share} of its goodput")
        }
        VictimKind::Rate | VictimKind::Application => format!("keeps {share} of its rate"),
        VictimKind::Latency if loss.retained > 0.0 => format!(
            "has a p99 latency of {:.2} times what it has alone",
            1.0 / loss.retained
        ),
        VictimKind::Latency => "has no p99 latency, for too few messages completed".to_owned(),
    }
}

/// A cause's resource and host in a sentence.
fn place(cause: &Cause) -> String {
    words::of_host(resource(cause), cause.host)
}

/// What a cause waits for; its occupancy is that of [`words::occupied`].
fn resource(cause: &Cause) -> Resource {
    let mut all = Resource::ALL.into_iter();
    all.find(|resource| resource.name() == cause.resource)
        .expect("a cause names one of all resources")
}

fn chain(explanation: &Explanation, starved: bool) -> Vec<Link> {
    let link = |role: &str, text: String| Link {
        role: role.to_owned(),
        text,
    };
    let mut chain = vec![link(
        "cause",
        format!(
            "{} runs {}.",
            explanation.attacker, explanation.attacker_does
        ),
    )];
    let top = explanation
        .causes
        .first()
        .filter(|cause| cause.added_us > 0.0);
    if let Some(cause) = top {
        if let Some(cache) = cache_of(cause, &explanation.caches) {
            chain.push(link("resource", evictions(cache)));
        }
        chain.push(link("resource", filled(cause)));
        let further = explanation.causes[1..].iter();
        let large = further.filter(|cause| cause.share >= LARGE);
        for cause in std::iter::once(cause).chain(large) {
            chain.push(link("wait", cause.sentence.clone()));
        }
    } else if !explanation.loss.hurt {
        chain.push(link(
            "resource",
            "No resource makes the victim's messages wait longer than they do alone.".to_owned(),
        ));
    }
    let latency = &explanation.latency;
    let added = latency.attacked_us - latency.alone_us;
    chain.push(link(
        "wait",
        match starved {
            true => format!(
                "A message takes {} alone; the {} still under way at the end had waited {} on average.",
                us(latency.alone_us),
                latency.unfinished,
                us(latency.attacked_us)
            ),
            false => format!(
                "A message takes {} instead of {} on average ({}{}).",
                us(latency.attacked_us),
                us(latency.alone_us),
                if added >= 0.0 { "+" } else { "-" },
                us(added.abs())
            ),
        },
    ));
    chain.push(link("loss", lost(explanation)));
    chain
}

/// The cache whose misses a cause is about.
fn cache_of<'a>(cause: &Cause, caches: &'a [CacheStory]) -> Option<&'a CacheStory> {
    let names: &[&str] = match cause.resource.as_str() {
        "context-miss-slots" | "context-read" => &["contexts"],
        "translation-miss-slots" | "translation-read" => &["translations", "protections"],
        "receive-miss-slots" | "receive-read" => &["receives"],
        _ => return None,
    };
    let of = caches.iter().filter(|cache| cache.host == cause.host);
    of.filter(|cache| names.contains(&cache.cache.as_str()) && cache.miss_ratio_attacked > 0.0)
        .max_by(|one, other| {
            one.miss_ratio_attacked
                .total_cmp(&other.miss_ratio_attacked)
        })
}

fn evictions(cache: &CacheStory) -> String {
    let by = match cache.evicted_by.is_empty() {
        true => String::new(),
        false => format!(
            "; {:.2} million of the victim's entries per second were evicted, by {}",
            cache.evictions_per_s / 1e6,
            named(&cache.evicted_by)
        ),
    };
    format!(
        "{} of the victim's lookups in the cache of {} of host {} missed (alone: {}){by}.",
        percent(cache.miss_ratio_attacked),
        words::entries(&cache.cache),
        letter(cache.host),
        percent(cache.miss_ratio_alone)
    )
}

fn filled(cause: &Cause) -> String {
    let host = letter(cause.host);
    let full = words::occupied(resource(cause));
    let named_full = words::capital(&words::of_host(full, cause.host));
    let occupants = match cause.occupants.is_empty() {
        true => String::new(),
        false => format!(": {}", named(&cause.occupants)),
    };
    match (cause.busy_attacked, cause.busy_alone) {
        (Some(busy), _) if full == Resource::ReceiveBuffer => format!(
            "Host {host}'s receive buffer was filled to {} of its pause threshold on average{occupants}.",
            percent(busy)
        ),
        (Some(busy), Some(alone)) if words::is_stall(full) && busy > 0.0 => format!(
            "{} lasted {} of the time (alone: {}){occupants}.",
            named_full,
            percent(busy),
            percent(alone)
        ),
        (Some(busy), Some(alone)) if busy > 0.0 => format!(
            "{}: {} busy{} (alone: {}){occupants}.",
            named_full,
            percent(busy),
            if busy >= FULL { "" } else { ", not saturated" },
            percent(alone)
        ),
        _ => format!("The wait is for {}.", place(cause)),
    }
}

fn lost(explanation: &Explanation) -> String {
    let (alone, attacked) = (&explanation.loss.alone, &explanation.loss.attacked);
    match explanation.kind {
        VictimKind::Latency => {
            let p99 = |metrics: &Metrics| metrics.p99_us.map_or("nothing completed".to_owned(), us);
            format!(
                "p99 latency: {} alone, {} under attack.",
                p99(alone),
                p99(attacked)
            )
        }
        VictimKind::Rate | VictimKind::Application => format!(
            "Goodput: {:.2} Gb/s alone, {:.2} Gb/s under attack; messages: {:.3} M/s and {:.3} M/s.",
            alone.goodput_gbps,
            attacked.goodput_gbps,
            alone.message_rate_per_s / 1e6,
            attacked.message_rate_per_s / 1e6
        ),
    }
}

/// The total of one cause.
pub(crate) fn sentence(cause: &Cause, resource: Resource, victim: &str) -> String {
    let others: f64 = cause
        .caused_by
        .iter()
        .filter(|part| part.tenant != victim)
        .map(|part| part.share)
        .sum();
    let who = match resource {
        Resource::ContextRead | Resource::TranslationRead | Resource::ReceiveRead => {
            "for entries evicted by"
        }
        Resource::ReceiveBuffer => "while the buffer held bytes of",
        Resource::NotReadyStall | Resource::DropStall | Resource::DeregistrationStall => {
            "for stalls caused by"
        }
        Resource::ContextSlots | Resource::TranslationSlots | Resource::ReceiveSlots => {
            "for slots held by"
        }
        _ => "behind work of",
    };
    let caused_by = match cause.caused_by.is_empty() {
        true => String::new(),
        false if others <= 0.0005 => " (its own work)".to_owned(),
        false => format!(", {who} {}", named(&cause.caused_by)),
    };
    format!(
        "A message of {victim} waited {} on average for {} (alone: {}){caused_by}.",
        us(cause.attacked_us),
        words::of_host(resource, cause.host),
        us(cause.alone_us)
    )
}

/// `one 88 %, another 12 %`.
fn named(parts: &[Part]) -> String {
    let texts = parts
        .iter()
        .map(|part| format!("{} {}", part.tenant, percent(part.share)));
    texts.collect::<Vec<_>>().join(", ")
}
