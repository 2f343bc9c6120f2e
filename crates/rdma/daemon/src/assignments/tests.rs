//! Assignments come, change and end; a scheduler that was killed, a damaged file and too many files do no harm.

use super::*;
use crate::identity::{Who, assign};
use isolane_common_linux::account::Account;
use isolane_rdma_session::message::Class;
use proptest::prelude::*;

fn job(number: u32) -> Assignment {
    Assignment {
        members: Members::Cgroup(format!("/slurm/job_{number}/**")),
        tenant: Some(format!("job-{number}")),
        class: Some(Class::Throughput),
        weight: Some(number),
        lasts_while: None,
    }
}

fn folder() -> (tempfile::TempDir, Folder) {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::new(directory.path().join("assignments"));
    (directory, folder)
}

fn now() -> SystemTime {
    SystemTime::now()
}

#[test]
fn an_assignment_reads_back_as_written() {
    let (_directory, mut folder) = folder();
    let assignment = Assignment {
        lasts_while: Some("/sys/fs/cgroup/a \"b\"\\".into()),
        ..job(7)
    };
    assignment.write(&folder.path, "slurm-7").unwrap();
    assert!(folder.look(now()).changed);
    assert_eq!(folder.read["slurm-7"], assignment);
    assert_eq!(
        folder.look(now()),
        Change::default(),
        "nothing has changed since"
    );
}

#[test]
fn the_text_has_a_key_on_each_line() {
    let text = job(7).text();
    let want =
        "cgroup = \"/slurm/job_7/**\"\ntenant = \"job-7\"\nclass = \"throughput\"\nweight = 7\n";
    assert_eq!(text, want);
}

#[test]
fn a_second_writing_replaces_the_first_and_removal_ends_it() {
    let (_directory, mut folder) = folder();
    job(7).write(&folder.path, "a").unwrap();
    folder.look(now());
    job(8).write(&folder.path, "a").unwrap();
    assert!(folder.look(now()).changed);
    assert_eq!(folder.read["a"], job(8));
    end(&folder.path, "a").unwrap();
    end(&folder.path, "a").unwrap();
    assert!(folder.look(now()).changed);
    assert!(folder.read.is_empty());
}

#[test]
fn assignments_come_before_the_operators_rules_and_not_before_the_operators_weights() {
    let (_directory, mut folder) = folder();
    job(7).write(&folder.path, "a").unwrap();
    let larger = Assignment {
        weight: Some(9),
        ..job(7)
    };
    larger.write(&folder.path, "b").unwrap();
    job(8).write(&folder.path, "c").unwrap();
    folder.look(now());
    let all = Rule {
        tenant: Some("all".to_owned()),
        ..Rule::default()
    };
    let own = TenantConfig {
        name: "job-8".to_owned(),
        weight: 2,
    };
    let config = Config {
        rules: vec![all.clone()],
        tenants: vec![own.clone()],
        ..Config::default()
    };
    let applied = folder.applied(&config);
    assert_eq!((applied.rules.len(), &applied.rules[3]), (4, &all));
    let seven = TenantConfig {
        name: "job-7".to_owned(),
        weight: 9,
    };
    assert_eq!(applied.tenants, [own, seven]);
}

#[test]
fn a_process_has_the_class_and_the_weight_of_its_cgroup_and_not_of_its_claim() {
    let (_directory, mut folder) = folder();
    job(7).write(&folder.path, "a").unwrap();
    folder.look(now());
    let config = folder.applied(&Config::default());
    let assigned = |cgroup: &str| {
        let who = Who {
            pid: 7,
            user: 1000,
            account: Account::of_user(1000),
            cgroup: cgroup.to_owned(),
            claim: "job-7".to_owned(),
            program: "ib_write_bw".to_owned(),
            class: Class::Latency,
            weight: 100,
        };
        assign(&config, &who)
    };
    let inside = assigned("/slurm/job_7/step_0");
    assert_eq!(
        (inside.tenant.as_str(), inside.tenant_weight),
        ("job-7", Some(7))
    );
    assert_eq!(
        (inside.class, inside.begins_fast),
        (Class::Throughput, false)
    );
    for outside in [
        "/slurm/job_77/step_0",
        "/user.slice/slurm/job_7/step_0",
        "/user.slice/user-1000.slice/slurm/job_7",
        "/slurm",
    ] {
        assert_eq!(assigned(outside).tenant, "user-1000", "{outside}");
    }
}

/// A writer that was killed between the creation of its file and the file's name leaves the part.
#[test]
fn the_part_of_a_killed_writer_is_removed_and_that_of_a_running_one_stays() {
    let (_directory, mut folder) = folder();
    job(7).write(&folder.path, "a").unwrap();
    let part = folder.path.join(".a.4711");
    fs::write(&part, "cgroup").unwrap();
    folder.look(now());
    assert!(part.exists());
    let other = folder.path.join(".keep.txt");
    fs::write(&other, "").unwrap();
    let change = folder.look(now() + PART_MAX + PART_MAX);
    assert!(!part.exists() && other.exists());
    assert_eq!(change.notes.len(), 1, "{change:?}");
    assert_eq!(names(&folder.path), ["a"]);
}

/// After kill -9 of the scheduler no process removes the file.
#[test]
fn an_assignment_ends_when_the_path_of_its_workload_is_gone() {
    let (directory, mut folder) = folder();
    let cgroup = directory.path().join("job_7");
    let assignment = Assignment {
        lasts_while: Some(cgroup.clone()),
        ..job(7)
    };
    assignment.write(&folder.path, "a").unwrap();
    folder.look(now());
    assert_eq!(folder.read.len(), 1, "the workload has not started yet");
    fs::create_dir(&cgroup).unwrap();
    assert_eq!(folder.look(now()), Change::default());
    fs::remove_dir(&cgroup).unwrap();
    let change = folder.look(now());
    assert_eq!(change.notes, ["assignment a has ended with its workload"]);
    assert!(change.changed && folder.read.is_empty() && names(&folder.path).is_empty());
}

#[test]
fn a_workload_that_never_started_ends_after_ten_minutes_also_for_a_new_daemon() {
    let (directory, mut folder) = folder();
    let assignment = Assignment {
        lasts_while: Some(directory.path().join("job_7")),
        ..job(7)
    };
    assignment.write(&folder.path, "a").unwrap();
    folder.look(now() + START_MAX - Duration::from_secs(60));
    assert_eq!(folder.read.len(), 1);
    let mut restarted = Folder::new(folder.path.clone());
    let change = restarted.look(now() + START_MAX + Duration::from_secs(1));
    assert_eq!(change.notes.len(), 1);
    assert!(names(&folder.path).is_empty());
}

#[test]
fn a_damaged_file_is_named_and_the_others_count() {
    let (_directory, mut folder) = folder();
    job(7).write(&folder.path, "good").unwrap();
    let damaged = [
        (
            "a",
            "cgroup = \"/**\"\nclass = \"latency\"\n",
            "must name a part",
        ),
        ("b", "cgroup = \"/x\"\n", "must give tenant or class"),
        (
            "c",
            "cgroup = \"/x\"\nweight = 3\n",
            "a weight is that of a tenant",
        ),
        ("d", "cgroup = \"/x\"\nclass = \"fast\"\n", "latency"),
        ("e", "class = \"latency\"\n", "cgroup"),
        ("f", "cgroup = \"/x\"\ntenant = \"a b\"\n", "without spaces"),
        (
            "g",
            "cgroup = \"/x/**/y\"\ntenant = \"a\"\n",
            "only behind the last /",
        ),
        ("h", "pod = \"*\"\ntenant = \"a\"\n", "hexadecimal digits"),
        (
            "i",
            "cgroup = \"/x\"\npod = \"3f2a1c9e-0000-4000-8000-00000000000a\"\ntenant = \"a\"\n",
            "beside cgroup",
        ),
        ("j", "pod = \"1f\"\ntenant = \"a\"\n", "the pod's UID"),
        // What the version wrote in which `*` also matched `/`.
        (
            "k",
            "cgroup = \"/kubepods*pod3f2a1c9e*0000*4000*8000*00000000000a*\"\ntenant = \"a\"\n",
            "matches no pod; give pod",
        ),
        (
            "l",
            "cgroup = \"/slurm/job_7/*\"\ntenant = \"a\"\n",
            "write ** for the cgroup and all below",
        ),
        (
            "m",
            "cgroup = \"/slurm/job_7/**\"\ntenant = \"{cgroup}\"\n",
            "use {owner}",
        ),
    ];
    for (name, text, _) in damaged {
        fs::write(folder.path.join(format!("{name}.toml")), text).unwrap();
    }
    fs::write(
        folder.path.join("z.toml"),
        "#".repeat(FILE_MAX as usize + 1),
    )
    .unwrap();
    fs::write(folder.path.join(".hidden.toml"), "?").unwrap();
    let change = folder.look(now());
    assert_eq!(change.notes.len(), damaged.len() + 1, "{:?}", change.notes);
    for (note, (_, _, said)) in change.notes.iter().zip(damaged) {
        assert!(note.contains(said), "{note}");
    }
    assert_eq!(folder.read.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(folder.look(now()), Change::default(), "each is named once");
}

#[test]
fn too_many_files_are_named_once() {
    let (_directory, mut folder) = folder();
    fs::create_dir(&folder.path).unwrap();
    for number in 0..=ASSIGNMENTS_MAX {
        let text = "cgroup = \"/x\"\nclass = \"latency\"\n";
        fs::write(folder.path.join(format!("{number:05}.toml")), text).unwrap();
    }
    assert_eq!(folder.look(now()).notes.len(), 1);
    assert_eq!(folder.read.len(), ASSIGNMENTS_MAX);
    assert_eq!(folder.look(now()), Change::default());
}

#[test]
fn a_name_that_leaves_the_folder_is_rejected() {
    let (_directory, folder) = folder();
    for name in ["", ".", "..", "a/b", "a b", ".a", &"x".repeat(NAME_MAX + 1)] {
        assert!(job(7).write(&folder.path, name).is_err(), "{name}");
        assert!(end(&folder.path, name).is_err(), "{name}");
    }
}

#[test]
fn an_invalid_assignment_is_not_written() {
    let (_directory, folder) = folder();
    let mut assignment = job(7);
    assignment.weight = Some(0);
    assert!(assignment.write(&folder.path, "a").is_err());
    assert!(names(&folder.path).is_empty());
}

#[test]
fn without_the_daemons_folder_the_error_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("control/assignments");
    let said = job(7).write(&folder, "a").unwrap_err().to_string();
    assert!(said.contains("start isolaned, and run as root"), "{said}");
}

proptest! {
    #[test]
    fn any_bytes_in_a_file_leave_the_daemon_running(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_directory, mut folder) = folder();
        fs::create_dir(&folder.path).unwrap();
        fs::write(folder.path.join("a.toml"), bytes).unwrap();
        folder.look(now());
    }

    #[test]
    fn any_path_reads_back(path in "/[ -~]{1,60}") {
        let assignment = Assignment { lasts_while: Some(path.into()), ..job(7) };
        prop_assert_eq!(parse("a", &assignment.text()).unwrap(), assignment);
    }
}
