//! Patterns of cgroups' paths.
//!
//! Problem: a tenant may be able to create cgroups below its own, with names that it chooses. No such name may make its
//! processes those of another tenant. Method: a pattern begins at the root, and each of its parts matches one part of the
//! path. `*` matches any characters of a part, and `**` as the last part matches the cgroup and all cgroups below it. In a
//! pod's cgroup, everything below that cgroup is left out before a pattern is tried: the outermost pod decides. Outside of
//! pods, a cgroup that a `*` matches may be a tenant's, so no name may follow ([`mistake`]).
//!
//! Limits: a tenant that may create cgroups outside its own cgroup can take any name.

use isolane_common_linux::cgroup::pod;

/// The part of `path` that the host chose: in a pod, the path of the pod's cgroup.
pub(crate) fn chosen_by_host(path: &str) -> &str {
    pod(path).map_or(path, |pod| pod.path)
}

/// Whether the cgroup at `path` is of the pod `uid`.
pub(crate) fn is_of_pod(uid: &str, path: &str) -> bool {
    pod(path).is_some_and(|pod| pod.uid == uid)
}

/// Whether the cgroup at `path` matches `pattern`; below a pod's cgroup, the pod's cgroup must match.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = chosen_by_host(path).split('/');
    for wanted in pattern.split('/') {
        if wanted == BELOW {
            return true;
        }
        if !parts.next().is_some_and(|part| text_matches(wanted, part)) {
            return false;
        }
    }
    parts.next().is_none()
}

/// Why `pattern` is no pattern of a cgroup's path; `None` if it is one.
pub(crate) fn mistake(pattern: &str) -> Option<&'static str> {
    let Some(parts) = pattern.strip_prefix('/') else {
        return Some("must begin with /, as the cgroup's path does");
    };
    let (before, last) = parts.rsplit_once('/').unwrap_or(("", parts));
    let empty = |part: &str| part.is_empty() || part == "." || part == "..";
    if pattern != "/" && parts.split('/').any(empty) {
        return Some("must have a name or * between two /, and no / at its end");
    }
    if before.contains(BELOW) || last.contains(BELOW) && last != BELOW {
        return Some("may have ** only behind the last /, for all cgroups below");
    }
    let named = |part: &str| part.contains(|c| c != '*');
    if !is_below_kubelet(pattern) && behind_tenants(parts).any(named) {
        return Some(
            "may have no name behind a part with * or user@, because the owner of that cgroup chooses the names below",
        );
    }
    None
}

/// Whether only cgroups of the kubelet, and of pods below them, match: `/kubepods`, or `/kubepods.slice` with systemd.
fn is_below_kubelet(pattern: &str) -> bool {
    let first = pattern.split('/').nth(1).unwrap_or_default();
    ["kubepods", "kubepods.slice", "kubepods*"].contains(&first)
}

/// The parts of a pattern whose names a tenant may choose: those behind a part with `*`, which may match a tenant's cgroup, and
/// behind a user's manager. systemd lets no one create cgroups in a slice of its own.
fn behind_tenants(parts: &str) -> impl Iterator<Item = &str> {
    let is_tenants =
        |part: &&str| part.starts_with("user@") || part.contains('*') && !part.ends_with(".slice");
    parts
        .split('/')
        .skip_while(move |part| !is_tenants(part))
        .skip(1)
}

/// Whether the host chose the last name of each path that matches `pattern`, or the name of its pod, provided that root alone
/// creates cgroups below the parts without `*`.
pub(crate) fn last_name_is_the_hosts(pattern: &str) -> bool {
    let parts = pattern.strip_prefix('/').unwrap_or(pattern);
    is_below_kubelet(pattern) || !parts.ends_with(BELOW) && behind_tenants(parts).next().is_none()
}

/// Whether `text` matches `pattern`, in which `*` matches any characters or none. Time: the product of the lengths.
pub(crate) fn text_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Position of the last star, and how many characters it covers.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        if at < pattern.len() && pattern[at] == b'*' {
            star = Some((at, from));
            at += 1;
        } else if at < pattern.len() && pattern[at] == text[from] {
            at += 1;
            from += 1;
        } else if let Some((place, swallowed)) = star {
            star = Some((place, swallowed + 1));
            at = place + 1;
            from = swallowed + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// The last part of a pattern that matches the cgroup and all cgroups below it.
const BELOW: &str = "**";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "3f2a1c9e-0000-4000-8000-00000000000a";
    const OTHER: &str = "3f2a1c9e-0000-4000-8000-00000000000b";

    #[test]
    fn a_star_stays_in_its_part_and_two_at_the_end_match_all_below() {
        for (pattern, path, want) in [
            ("/slurm/job_7", "/slurm/job_7", true),
            ("/slurm/job_7", "/slurm/job_7/step_0", false),
            ("/slurm/job_*", "/slurm/job_7", true),
            ("/slurm/job_*", "/slurm/job_7/step_0", false),
            ("/slurm/*/step_0", "/slurm/job_7/step_0", true),
            ("/slurm/*/step_0", "/slurm/a/b/step_0", false),
            ("/slurm/job_7/**", "/slurm/job_7", true),
            ("/slurm/job_7/**", "/slurm/job_7/step_0/task_1", true),
            ("/slurm/job_7/**", "/slurm/job_77", false),
            ("/slurm/job_7/**", "/slurm", false),
            ("/**", "/", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "", false),
        ] {
            assert_eq!(matches(pattern, path), want, "{pattern} {path}");
        }
    }

    #[test]
    fn below_a_pods_cgroup_no_name_counts() {
        let pod = format!("/kubepods/pod{UID}");
        for made in [
            "",
            "/c",
            &format!("/pod{OTHER}"),
            &format!("/c/kubepods/burstable/pod{OTHER}/c"),
        ] {
            let path = format!("{pod}{made}");
            assert!(matches(&pod, &path), "{path}");
            assert!(matches("/kubepods*/**", &path), "{path}");
            assert!(
                !matches(&format!("/kubepods/*/pod{OTHER}"), &path),
                "{path}"
            );
            assert!(!matches("/kubepods/*/*/**", &path), "{path}");
        }
    }

    #[test]
    fn a_pod_has_one_identifier_under_both_cgroup_drivers() {
        let underscores = UID.replace('-', "_");
        for path in [
            format!("/kubepods/pod{UID}/0123abcd"),
            format!("/kubepods/burstable/pod{UID}/0123abcd"),
            format!("/kubepods.slice/kubepods-pod{underscores}.slice"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscores}.slice/cri-containerd-01.scope"
            ),
        ] {
            assert!(is_of_pod(UID, &path), "{path}");
            assert!(!is_of_pod(&UID[..35], &path), "{path}");
            assert!(!is_of_pod(UID, &path.replace("00a", "00b")), "{path}");
        }
        for path in ["", "/", "/kubepods", "/kubepods/pod", "/user.slice/pod0e"] {
            assert_eq!(pod(path), None, "{path}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        for pattern in [
            "/",
            "/a",
            "/a*",
            "/a/*/*",
            "/a/*/**",
            "/a/**",
            "/**",
            "/kubepods*/*b/c",
            "/user.slice/user-*.slice/user@*.service/**",
        ] {
            assert_eq!(mistake(pattern), None, "{pattern}");
        }
        for (pattern, said) in [
            ("", "begin with /"),
            ("a/b", "begin with /"),
            ("**", "begin with /"),
            ("/a/", "no / at its end"),
            ("//a", "between two /"),
            ("/a/../b", "a name or *"),
            ("/a/**/b", "only behind the last /"),
            ("/a**", "only behind the last /"),
            ("/a/***", "only behind the last /"),
            ("/a/*/b", "no name behind a part with * or user@"),
            ("/a*/*b", "no name behind a part with * or user@"),
            ("/a/*/b/**", "no name behind a part with * or user@"),
            (
                "/user.slice/*/user@*.service",
                "no name behind a part with * or user@",
            ),
        ] {
            let found = mistake(pattern).unwrap_or_default();
            assert!(found.contains(said), "{pattern}: {found}");
        }
    }

    #[test]
    fn the_last_name_is_the_hosts_unless_a_tenant_may_create_it() {
        for (pattern, want) in [
            ("/batch/job-*", true),
            ("/batch/job-7", true),
            ("/kubepods*/**", true),
            ("/user.slice/user-*.slice/session-*.scope", true),
            ("/batch/job-*/**", false),
            ("/batch/**", false),
            ("/batch/*/*", false),
            ("/kubepods-batch/*/*", false),
            ("/user.slice/user-7.slice/user@7.service/*", false),
            (
                "/user.slice/user-7.slice/user@7.service/app.slice/a*",
                false,
            ),
        ] {
            assert_eq!(last_name_is_the_hosts(pattern), want, "{pattern}");
        }
    }

    /// Goal: patterns match by their definition. Method: compare with a recursive definition over characters.
    fn by_definition(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => path.is_empty(),
            b"/**" => path.is_empty() || path[0] == b'/',
            [b'*', rest @ ..] => {
                by_definition(rest, path)
                    || path.first().is_some_and(|&byte| byte != b'/')
                        && by_definition(pattern, &path[1..])
            }
            [first, rest @ ..] => path.first() == Some(first) && by_definition(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_match_like_their_definition(
            pattern in "(/(\\*|\\*?[ab]{1,2}\\*?|[ab]\\*[ab])){1,3}(/\\*\\*)?",
            path in "(/[ab]{1,3}){1,4}",
        ) {
            prop_assert_eq!(matches(&pattern, &path), by_definition(pattern.as_bytes(), path.as_bytes()));
        }

        /// Whatever a pod makes below its cgroup, each pattern and each identifier gives the answer for the pod itself.
        #[test]
        fn what_a_pod_makes_changes_no_answer(
            pattern in "/(kubepods|\\*)(/(pod[ab]|\\*|burstable)){1,3}(/\\*\\*)?",
            class in "(/burstable|/besteffort)?",
            made in "(/(pod[ab]|kubepods|burstable|kubepods-podb.slice)){0,3}",
        ) {
            let named = |text: &str| text.replace("poda", &format!("pod{UID}")).replace("podb", &format!("pod{OTHER}"));
            let pod = named(&format!("/kubepods{class}/poda"));
            let inside = named(&format!("{pod}{made}"));
            let pattern = named(&pattern);
            prop_assert_eq!(matches(&pattern, &inside), matches(&pattern, &pod));
            prop_assert!(is_of_pod(UID, &inside) && !is_of_pod(OTHER, &inside));
        }
    }
}
