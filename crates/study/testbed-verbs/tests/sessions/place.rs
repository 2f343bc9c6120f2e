//! Where a test has its made-up devices, its programs, and the list of its processes.

use crate::run;
use isolane_study_testbed::TestbedError;
use isolane_study_testbed_verbs::{Reach, VerbsTestbed};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// Directories of one test.
pub(crate) struct Place {
    pub(crate) directory: Option<tempfile::TempDir>,
    pub(crate) root: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        fs::create_dir_all(root.join("processes")).unwrap();
        for device in ["fake0", "fake1"] {
            let counters = root.join(format!(
                "tree/sys/class/infiniband/{device}/ports/1/counters"
            ));
            fs::create_dir_all(counters).unwrap();
        }
        Self {
            directory: Some(directory),
            root,
        }
    }

    /// A script in place of a program, with this test's environment.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.root.join(name);
        let ours = std::env::current_exe().unwrap();
        let text = format!(
            "#!/bin/sh\nexport FAKE_ROOT='{root}/tree' FAKE_PROCESSES='{root}/processes'\nPROGRAM='{}'\n{body}\n",
            ours.display(),
            root = self.root.display(),
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.script("isolane", "exec \"$PROGRAM\" \"$@\"")
    }

    pub(crate) fn testbed(
        &self,
        target: &str,
        reach: impl FnOnce(&mut Reach),
    ) -> (VerbsTestbed, Arc<AtomicBool>) {
        let mut ours = Reach::of(self.program());
        reach(&mut ours);
        let cancel = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancel);
        let testbed = VerbsTestbed::new(target.parse().unwrap(), ours, flag, Box::new(|_| {}));
        (testbed, cancel)
    }

    pub(crate) fn run(
        &self,
        target: &str,
        tenant: &str,
        policy: &str,
    ) -> Result<isolane_study_results::rdma::RunResult, TestbedError> {
        let (testbed, _) = self.testbed(target, |_| {});
        run(&testbed, tenant, policy)
    }

    /// The processes that were there, by role, with those that still are.
    pub(crate) fn processes(&self, role: &str) -> (usize, usize) {
        let mut all = (0, 0);
        for entry in fs::read_dir(self.root.join("processes")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(number) = name.strip_prefix(&format!("{role}-")) {
                all.0 += 1;
                let state = fs::read_to_string(format!("/proc/{number}/stat"));
                // A zombie counts as ended: its parent has ended or will reap it soon.
                all.1 += usize::from(state.is_ok_and(|state| !state.contains(") Z ")));
            }
        }
        all
    }

    /// Waits until every process that ever was has gone.
    pub(crate) fn all_gone(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let (agents, workers) = (self.processes("agent"), self.processes("worker"));
            assert!(agents.0 > 0, "no agent was ever started");
            if agents.1 + workers.1 == 0 {
                return;
            }
            assert!(
                Instant::now() < until,
                "left behind: {agents:?} {workers:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `count` workers run.
    pub(crate) fn workers_run(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.processes("worker").1 < count {
            assert!(Instant::now() < until, "workers do not start");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
