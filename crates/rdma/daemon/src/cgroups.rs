//! Paths of cgroups: the pod that a path belongs to, and patterns.
//!
//! Problem: a tenant may be able to create cgroups below its own, with names that it chooses. No such name may make its
//! processes those of another tenant. Method: a pattern begins at the root, and each of its parts matches one part of the
//! path. `*` matches any characters of a part, and `**` as the last part matches the cgroup and all cgroups below it. In a
//! pod's cgroup, everything below that cgroup is left out before a pattern is tried: the outermost pod decides.
//!
//! Limits: the kubelet's cgroups are those of a kubelet without `--cgroup-root`. A tenant that may create cgroups outside
//! its own cgroup can take any name. Outside of pods, the operator's pattern decides how much of what a tenant creates counts.

/// The pod of the cgroup at `path`, if there is one: the path of the pod's own cgroup, and the pod's identifier as the path
/// has it. Of several pods in one path the outermost counts.
pub(crate) fn pod(path: &str) -> Option<(&str, &str)> {
    let mut end = 0;
    for (number, part) in path.split('/').skip(1).enumerate() {
        end += 1 + part.len();
        if number == 0 {
            if !part.starts_with("kubepods") {
                return None;
            }
            continue;
        }
        // kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a.slice, or kubepods/burstable/pod1a.
        let name = part.strip_suffix(".slice").unwrap_or(part);
        let identifier = name
            .rsplit_once("pod")
            .filter(|(before, _)| before.is_empty() || before.ends_with('-'))
            .map(|(_, identifier)| identifier);
        if let Some(identifier) = identifier.filter(|identifier| !identifier.is_empty()) {
            return Some((&path[..end], identifier));
        }
    }
    None
}

/// The part of `path` that the host chose: in a pod, the path of the pod's cgroup.
pub(crate) fn chosen_by_host(path: &str) -> &str {
    pod(path).map_or(path, |(own, _)| own)
}

/// Whether the cgroup at `path` is of the pod `identifier`. The kubelet writes dashes as underscores where systemd manages
/// the cgroups.
pub(crate) fn is_of_pod(identifier: &str, path: &str) -> bool {
    pod(path).is_some_and(|(_, found)| found.replace('_', "-") == identifier)
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
    None
}

/// Whether `text` can be the identifier of a pod.
pub(crate) fn is_identifier(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_hexdigit() || c == '-';
    !text.is_empty() && text.len() <= IDENTIFIER_MAX && text.chars().all(plain)
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
/// Longest identifier of a pod: a UUID has 36 characters, the hash of a static pod 32.
const IDENTIFIER_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let pod = "/kubepods/pod0e";
        for made in ["", "/c", "/pod1f", "/c/kubepods/burstable/pod1f/c"] {
            let path = format!("{pod}{made}");
            assert!(matches("/kubepods/pod0e", &path), "{path}");
            assert!(matches("/kubepods*/**", &path), "{path}");
            assert!(!matches("/kubepods/*/pod1f", &path), "{path}");
            assert!(!matches("/kubepods/*/*/**", &path), "{path}");
        }
    }

    #[test]
    fn a_pod_has_one_identifier_under_both_cgroup_drivers() {
        const UID: &str = "3f2a1c9e-0000-4000-8000-00000000000a";
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
        for pattern in ["/", "/a", "/a*/*b/c", "/a/**", "/**"] {
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
        ] {
            let found = mistake(pattern).unwrap_or_default();
            assert!(found.contains(said), "{pattern}: {found}");
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
            pattern in "(/[ab*]{1,3}){1,3}(/\\*\\*)?",
            path in "(/[ab]{1,3}){1,4}",
        ) {
            prop_assume!(mistake(&pattern).is_none());
            prop_assert_eq!(matches(&pattern, &path), by_definition(pattern.as_bytes(), path.as_bytes()));
        }

        /// Whatever a pod makes below its cgroup, each pattern and each identifier gives the answer for the pod itself.
        #[test]
        fn what_a_pod_makes_changes_no_answer(
            pattern in "/(kubepods|\\*)(/(pod[ab]|\\*|burstable)){1,3}(/\\*\\*)?",
            class in "(/burstable|/besteffort)?",
            made in "(/(pod[ab]|kubepods|burstable|kubepods-podb.slice)){0,3}",
        ) {
            let pod = format!("/kubepods{class}/poda");
            let inside = format!("{pod}{made}");
            prop_assert_eq!(matches(&pattern, &inside), matches(&pattern, &pod));
            prop_assert!(is_of_pod("a", &inside) && !is_of_pod("b", &inside));
        }
    }
}
