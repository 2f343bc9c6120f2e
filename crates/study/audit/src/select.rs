//! Which victims and attackers take part: globs over the catalogue's names, or the quick selection.

use crate::AuditError;
use crate::cell::{Attacker, Victim, VictimKind};
use crate::plan::{AttackerPlan, VictimPlan};
use isolane_common_toml_input::glob::matches;
use isolane_rdma_scenario::catalogue::{Catalogue, CatalogueEntry, Category};
use isolane_rdma_scenario::check::DeviceLimits;
use isolane_rdma_scenario::model::Tenant;
use isolane_rdma_scenario::profile::Profile;

/// Victims of the quick selection: one per kind of need (bits, packets, messages, translations, latency).
pub const QUICK_VICTIMS: [&str; 6] = [
    "large_bw_ib_write_bw",
    "mtu_tput_ib_write_bw",
    "small_tput_ib_write_bw",
    "te_many_mr_w_1_512",
    "te_many_qp_s_1_512",
    "lat_ib_write_16",
];

/// Attackers of the quick selection: one per resource of husky's table 4.3.
pub const QUICK_ATTACKERS: [&str; 10] = [
    "BW-1MB_ib_write_bw",
    "PCIe-size_w_1_257",
    "PU-RNR_RC-RNR-longms",
    "PU-RNR_UC-RNR",
    "PU-request_faa_forward",
    "PU-request_write_forward",
    "Cache-QPC_ib_write_bw",
    "Cache-access_mr_num_w",
    "Cache-ctrl_num_sender",
    "Cache-recvwqe_UD_recv",
];

/// Names less alike than this are not offered as what was meant (Jaro-Winkler similarity, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// What to take of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Globs of victims; all but applications, or the quick ones, if absent.
    pub victims: Option<String>,
    /// Globs of attackers; all, or the quick ones, if absent.
    pub attackers: Option<String>,
    /// Take the quick selection where no globs are given.
    pub quick: bool,
}

impl Selection {
    /// The chosen victims and attackers of `catalogue` as tenants on the device of `profile`, in the catalogue's
    /// order. What the device cannot run stays in the list with its reason.
    pub fn of(
        &self,
        catalogue: &Catalogue,
        profile: &Profile,
    ) -> Result<(Vec<VictimPlan>, Vec<AttackerPlan>), AuditError> {
        let limits = DeviceLimits::of(profile);
        let globs = |given: &Option<String>, quick: &[&str]| match (given, self.quick) {
            (Some(globs), _) => globs.clone(),
            (None, true) => quick.join(","),
            (None, false) => "*".to_owned(),
        };
        let victims: Vec<&CatalogueEntry> = catalogue.victims().collect();
        let attackers: Vec<&CatalogueEntry> = catalogue.attackers().collect();
        let mut chosen_victims = choose(
            "victim",
            &names(&victims),
            &globs(&self.victims, &QUICK_VICTIMS),
        )?;
        if self.victims.is_none() {
            // Their runs are long: they take part on request only.
            chosen_victims.retain(|&index| victims[index].category != Category::Application);
        }
        let chosen_attackers = choose(
            "attacker",
            &names(&attackers),
            &globs(&self.attackers, &QUICK_ATTACKERS),
        )?;
        let victims = chosen_victims.into_iter().map(|index| victims[index]);
        let attackers = chosen_attackers.into_iter().map(|index| attackers[index]);
        Ok((
            victims.map(|entry| victim(entry, &limits)).collect(),
            attackers.map(|entry| attacker(entry, &limits)).collect(),
        ))
    }
}

fn names<'a>(entries: &[&'a CatalogueEntry]) -> Vec<&'a str> {
    entries.iter().map(|entry| entry.name.as_str()).collect()
}

fn victim(entry: &CatalogueEntry, limits: &DeviceLimits) -> VictimPlan {
    let over_solo = entry.latency_bound.map(|bound| bound.over_solo);
    let kind = match over_solo {
        Some(_) => VictimKind::Latency,
        None if entry.category == Category::Application => VictimKind::Application,
        None => VictimKind::Rate,
    };
    VictimPlan {
        info: Victim {
            name: entry.name.clone(),
            kind,
            category: category(entry.category).to_owned(),
            measured_us: None,
        },
        tenant: tenant(entry, limits),
        over_solo,
        duration: entry.duration,
    }
}

fn attacker(entry: &CatalogueEntry, limits: &DeviceLimits) -> AttackerPlan {
    AttackerPlan {
        info: Attacker {
            name: entry.name.clone(),
            category: category(entry.category).to_owned(),
            resource: entry.resource.clone(),
            column: entry.column,
        },
        tenants: tenant(entry, limits).map(|tenant| vec![tenant]),
    }
}

fn tenant(entry: &CatalogueEntry, limits: &DeviceLimits) -> Result<Tenant, String> {
    let workloads = entry
        .workloads(limits)
        .map_err(|error| format!("{}: {error}", entry.name))?;
    Ok(Tenant {
        workloads,
        ..Tenant::named(&entry.name, entry.class)
    })
}

/// Husky's name of a group.
fn category(category: Category) -> &'static str {
    match category {
        Category::Bandwidth => "BW",
        Category::Pcie => "PCIe",
        Category::ProcessingUnits => "PU",
        Category::Cache => "Cache",
        Category::Latency => "Latency",
        Category::Application => "Application",
    }
}

/// Indices of the `names` that one of the comma-separated `globs` matches, in the names' order. Every glob must
/// match something: a misspelt name never shrinks an audit silently. Names may be given with their role
/// (`victim/...`).
pub fn choose(role: &'static str, names: &[&str], globs: &str) -> Result<Vec<usize>, AuditError> {
    let prefix = format!("{role}/");
    let mut chosen = vec![false; names.len()];
    for glob in globs.split(',').map(str::trim) {
        let glob = glob.strip_prefix(&prefix).unwrap_or(glob);
        let mut found = false;
        for (name, chosen) in names.iter().zip(&mut chosen) {
            let hit = matches(glob, name);
            *chosen |= hit;
            found |= hit;
        }
        if !found {
            return Err(AuditError::NoMatch {
                role,
                pattern: glob.to_owned(),
                nearest: nearest(names, glob),
                tenants: None,
            });
        }
    }
    Ok((0..names.len()).filter(|&index| chosen[index]).collect())
}

fn nearest(names: &[&str], glob: &str) -> Option<String> {
    names
        .iter()
        .map(|name| (strsim::jaro_winkler(name, glob), name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["large_bw", "small_read", "small_write"];

    #[test]
    fn selection_keeps_the_catalogues_order_and_counts_once() {
        assert_eq!(
            choose("victim", &NAMES, "*write,victim/small_*,large_bw").unwrap(),
            [0, 1, 2]
        );
    }

    #[test]
    fn the_quick_selection_is_in_the_catalogue() {
        let catalogue = Catalogue::embedded();
        let has = |path: String| catalogue.find(&path).is_some();
        for name in QUICK_VICTIMS {
            assert!(has(format!("victim/{name}")), "{name}");
        }
        for name in QUICK_ATTACKERS {
            assert!(has(format!("attacker/{name}")), "{name}");
        }
    }

    /// Every column of husky table 4.3 and bandwidth, and both kinds of victims.
    #[test]
    fn the_quick_selection_is_representative() {
        let profile = isolane_rdma_scenario::library::Library::embedded();
        let profile = profile.profile("cx5-100g-roce").unwrap().clone();
        let quick = Selection {
            quick: true,
            ..Selection::default()
        };
        let (victims, attackers) = quick.of(&Catalogue::embedded(), &profile).unwrap();
        for column in crate::figures::COLUMNS {
            let found = attackers.iter().any(|one| one.info.column == Some(column));
            assert!(found, "{column:?}");
        }
        for kind in [VictimKind::Rate, VictimKind::Latency] {
            assert!(victims.iter().any(|one| one.info.kind == kind), "{kind:?}");
        }
    }

    #[test]
    fn a_misspelt_name_is_an_error_that_names_the_nearest() {
        let error = choose("victim", &NAMES, "large_bw,smal_read").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no victim matches \"smal_read\" (nearest: small_read); `isolane catalog workloads` names them all, \
             and --scenario FILE adds tenants of your own"
        );
    }
}
