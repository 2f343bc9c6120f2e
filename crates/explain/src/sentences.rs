//! The sentences of a story: verdict, chain, and one per cause. Every number in them stands in the data too.

use crate::explanation::{CacheStory, Cause, Explanation, Link, Part};
use crate::words::{letter, percent, us};
use isolane_audit::matrix::{Metrics, VictimKind};
use isolane_sim::rnic::trace::Resource;

/// A resource is called full from here on; as in the audit.
const FULL: f64 = 0.8;

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
        let kept = match loss.retained {
            more if more > 1.0 => "all".to_owned(),
            less => percent(less),
        };
        return format!(
            "{attacker} does not hurt {victim}: it keeps {kept} of what it does alone."
        );
    }
    let top = explanation
        .causes
        .first()
        .filter(|cause| cause.added_us > 0.0);
    let why = match top {
        Some(cause) => format!(
            "{} of the added latency is waiting for {} of host {}",
            percent(cause.share),
            cause.title,
            letter(cause.host)
        ),
        None => "its messages take no longer, so it posts less; the cause lies outside the NICs"
            .to_owned(),
    };
    format!(
        "{victim} keeps {} of what it does alone: {why}.",
        percent(loss.retained)
    )
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
        chain.push(link("wait", cause.sentence.clone()));
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
            "; {:.2} million of its entries per second were evicted, by {}",
            cache.evictions_per_s / 1e6,
            named(&cache.evicted_by)
        ),
    };
    format!(
        "{} of the victim's lookups in the cache of {} of host {} missed (alone: {}){by}.",
        percent(cache.miss_ratio_attacked),
        cache.cache,
        letter(cache.host),
        percent(cache.miss_ratio_alone)
    )
}

fn filled(cause: &Cause) -> String {
    let host = letter(cause.host);
    let occupants = match cause.occupants.is_empty() {
        true => String::new(),
        false => format!(": {}", named(&cause.occupants)),
    };
    match (cause.busy_attacked, cause.busy_alone) {
        (Some(busy), _) if cause.resource == Resource::ReceiveBuffer.name() => format!(
            "Host {host}'s receive buffer was filled to {} of its pause threshold on average{occupants}.",
            percent(busy)
        ),
        (Some(busy), Some(alone)) => format!(
            "{}{} of host {host}: {} busy (alone: {}){occupants}.",
            if busy >= FULL {
                ""
            } else {
                "Nothing is saturated, but "
            },
            cause.title,
            percent(busy),
            percent(alone)
        ),
        _ => format!("The wait is for {}.", cause.title),
    }
}

fn lost(explanation: &Explanation) -> String {
    let (alone, attacked) = (&explanation.loss.alone, &explanation.loss.attacked);
    match explanation.kind {
        VictimKind::Latency => {
            let p99 = |metrics: &Metrics| metrics.p99_us.map_or("never".to_owned(), us);
            format!(
                "p99 latency: {} alone, {} under attack.",
                p99(alone),
                p99(attacked)
            )
        }
        VictimKind::Rate => format!(
            "Goodput: {:.2} Gb/s alone, {:.2} Gb/s under attack; messages: {:.3} M/s and {:.3} M/s.",
            alone.goodput_gbps,
            attacked.goodput_gbps,
            alone.message_rate_per_s / 1e6,
            attacked.message_rate_per_s / 1e6
        ),
    }
}

/// What one cause comes to.
pub(crate) fn sentence(cause: &Cause, resource: Resource, victim: &str) -> String {
    let others: f64 = cause
        .blamed
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
    let blamed = match cause.blamed.is_empty() {
        true => String::new(),
        false if others <= 0.0005 => " (its own work)".to_owned(),
        false => format!(", {who} {}", named(&cause.blamed)),
    };
    format!(
        "Each message of {victim} waited {} for {} of host {} (alone: {}){blamed}.",
        us(cause.attacked_us),
        cause.title,
        letter(cause.host),
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
