//! The built library beside unmodified user libraries: look-ups at run time, and the symbols that vendors' libraries take.
//!
//! Method: Python's `ctypes` opens libraries as NCCL does, and the dynamic loader prints what it binds. Nothing needs a
//! device. What is not installed is skipped with a reason, and in CI it is an error.
#![allow(missing_docs, clippy::unwrap_used)]
#![forbid(unsafe_code)]

use isolane_common_linux::skip::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The built library; cargo builds it with this test.
fn shim() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let candidates = [folder, folder.parent().unwrap()].map(|at| at.join("libisolane_shim.so"));
    let found = candidates.iter().find(|path| path.exists());
    found.expect("cargo builds the library").clone()
}

/// Directories of libibverbs and of its providers: installed, or unpacked from Debian's packages.
struct Libraries {
    folder: PathBuf,
    _unpacked: Option<tempfile::TempDir>,
}

impl Libraries {
    fn find() -> Result<Self, String> {
        let installed = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        if installed.join("libibverbs.so.1").exists() && !providers(&installed).is_empty() {
            return Ok(Self {
                folder: installed,
                _unpacked: None,
            });
        }
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let done =
            |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let packages = [
            "libibverbs1",
            "ibverbs-providers",
            "libnl-3-200",
            "libnl-route-3-200",
        ];
        let mut download = Command::new("apt-get");
        download
            .args(["-qq", "download"])
            .args(packages)
            .current_dir(place);
        if !done(&mut download) {
            return Err(format!("apt-get cannot download {}", packages.join(", ")));
        }
        for entry in std::fs::read_dir(place).unwrap() {
            let archive = entry.unwrap().path();
            if archive.extension().is_some_and(|end| end == "deb")
                && !done(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(place))
            {
                return Err(format!("dpkg-deb cannot unpack {}", archive.display()));
            }
        }
        let folder = place.join(installed.strip_prefix("/").unwrap());
        Ok(Self {
            folder,
            _unpacked: Some(directory),
        })
    }

    /// Runs Python with the preload library, and with `LD_DEBUG` if given.
    fn python(&self, script: &str, arguments: &[&Path], debug: Option<&str>) -> Option<Output> {
        let mut command = Command::new("python3");
        command
            .arg("-c")
            .arg(script)
            .args(arguments)
            .env("LD_PRELOAD", shim())
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("ISOLANE_LOG", "off");
        if let Some(debug) = debug {
            command.env("LD_DEBUG", debug);
        }
        command.output().ok()
    }
}

/// Provider libraries for a version of libibverbs, such as `libbnxt_re-rdmav34.so`.
fn providers(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("libibverbs"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => return skip(reason),
        }
    };
}

/// NCCL's way: `dlopen` without `RTLD_GLOBAL`, then `dlvsym` with libibverbs' version, or `dlsym`.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn look_ups_by_the_librarys_handle_find_ours() {
    let libraries = or_skip!(Libraries::find());
    let script = r#"
import ctypes, sys
def pointer(value):
    return ctypes.cast(value, ctypes.c_void_p).value
program = ctypes.CDLL(None)
ours = ctypes.CDLL(sys.argv[1])
verbs = ctypes.CDLL("libibverbs.so.1")
for find in program.dlsym, program.dlvsym:
    find.restype = ctypes.c_void_p
for name in sys.argv[2].split():
    text = name.encode()
    handle = ctypes.c_void_p(verbs._handle)
    by_version = program.dlvsym(handle, text, b"IBVERBS_1.1")
    print(name, pointer(ours[name]) == program.dlsym(handle, text) == by_version)
old = program.dlvsym(ctypes.c_void_p(verbs._handle), b"ibv_open_device", b"IBVERBS_1.0")
print("old", old is not None and old != pointer(ours["ibv_open_device"]))
other = program.dlsym(ctypes.c_void_p(verbs._handle), b"ibv_alloc_pd")
print("other", other is not None)
print("none", program.dlsym(ctypes.c_void_p(verbs._handle), b"ibv_no_such_function"))
"#;
    let names = "ibv_open_device ibv_close_device ibv_create_cq ibv_resize_cq ibv_destroy_cq ibv_get_cq_event \
                 ibv_create_qp ibv_modify_qp ibv_query_qp ibv_destroy_qp ibv_destroy_ah";
    let output = libraries.python(script, &[&shim(), Path::new(names)], None);
    let output = or_skip!(output.ok_or("python3 is not installed"));
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let mut expected: Vec<String> = names
        .split(' ')
        .filter(|name| !name.is_empty())
        .map(|name| format!("{name} True"))
        .collect();
    expected.extend(["old True", "other True", "none None"].map(str::to_owned));
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{errors}");
}

/// Goal: the vendors' user libraries load beside ours with all symbols resolved, and open devices by our function.
#[test]
fn vendors_libraries_load_and_resolve_every_symbol() {
    let libraries = or_skip!(Libraries::find());
    let all = providers(&libraries.folder);
    let script = "import ctypes, os, sys\nctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)";
    for vendor in ["mlx5", "bnxt_re", "irdma"] {
        let file = |path: &&PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("lib{vendor}-rdmav"))
        };
        let Some(provider) = all.iter().find(file) else {
            let folder = libraries.folder.display();
            skip(format_args!("{vendor}'s user library is not in {folder}"));
            continue;
        };
        let output = libraries.python(script, &[provider], Some("bindings"));
        let output = or_skip!(output.ok_or("python3 is not installed"));
        let bindings = String::from_utf8_lossy(&output.stderr);
        let last = bindings.lines().last().unwrap_or_default();
        assert!(output.status.success(), "{vendor}: {last}");
        let binds = |symbol: &str, library: &str| {
            let line = |line: &&str| {
                line.contains(&format!("lib{vendor}")) && line.contains(&format!("`{symbol}'"))
            };
            let found = bindings.lines().find(line);
            found.is_some_and(|line| {
                let target = line.split(" to ").nth(1).unwrap_or_default();
                target.contains(library)
            })
        };
        assert!(binds("verbs_set_ops", "libibverbs.so"), "{vendor}: {last}");
        if vendor == "mlx5" {
            assert!(binds("verbs_open_device", "libisolane_shim.so"), "{vendor}");
        }
    }
}

/// `ibv_open_device` inside libibverbs opens by `verbs_open_device`, which is ours: so does a program that has found the
/// original of the first one.
#[test]
fn libibverbs_itself_opens_devices_by_our_function() {
    let libraries = or_skip!(Libraries::find());
    let script = "import ctypes, os\nctypes.CDLL('libibverbs.so.1', mode=os.RTLD_NOW)";
    let output = libraries.python(script, &[], Some("bindings"));
    let output = or_skip!(output.ok_or("python3 is not installed"));
    let bindings = String::from_utf8_lossy(&output.stderr);
    let binding = bindings.lines().find(|line| {
        let from_verbs = line.split(" to ").next().unwrap_or_default();
        from_verbs.contains("libibverbs.so") && line.contains("`verbs_open_device'")
    });
    let binding = binding.expect("libibverbs calls it");
    assert!(binding.contains("libisolane_shim.so"), "{binding}");
}
