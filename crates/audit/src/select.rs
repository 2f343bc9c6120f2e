//! Which victims and attackers take part: globs over the catalogue's names, or the quick selection.

use crate::AuditError;
use crate::glob::matches;

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
    fn a_misspelt_name_is_an_error_that_names_the_nearest() {
        let error = choose("victim", &NAMES, "large_bw,smal_read").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no victim matches \"smal_read\" (nearest: small_read); `isolane workloads list` names them all"
        );
    }
}
