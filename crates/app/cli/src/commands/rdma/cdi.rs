//! `isolane rdma cdi`: the specification by which a container runtime gives a container the preload library and the
//! daemon's socket (Container Device Interface, version 0.5.0).

use super::run::shim;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Vendor and class of the device; its full name is `isolane.dev/rdma=paced`.
const KIND: &str = "isolane.dev/rdma";
const DEVICE: &str = "paced";
/// The library's directory in a container.
const INSIDE: &str = "/opt/isolane";
/// Name of the library's file.
const LIBRARY: &str = "libisolane_shim.so";
/// Name of the specification's file: the runtime reads each `.json` file of its directories.
const FILE: &str = "isolane.dev-rdma.json";

/// What the help of the command ends with.
const AFTER: &str = "\
A container with the CDI device isolane.dev/rdma=paced has LD_PRELOAD set, and the library and the daemon's socket mounted \
read-only.

Exit codes:
  0  done
  3  the library is not there, or a file cannot be written";

/// Arguments of `isolane rdma cdi`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Write the specification into this directory, like /etc/cdi or /var/run/cdi, instead of printing it
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<PathBuf>,
    /// Directory of the library on the machine; the directory of the installed library unless given
    #[arg(long, value_name = "DIRECTORY")]
    library_folder: Option<PathBuf>,
    /// First copy the installed library into --library-folder
    #[arg(long, requires = "library_folder")]
    copy_library: bool,
    /// Directory of the daemon's socket on the machine
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/isolane/clients")]
    clients: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let installed = || shim().map_err(|reason| anyhow!("{reason}"));
    let library = match &arguments.library_folder {
        Some(folder) => {
            let library = folder.join(LIBRARY);
            if arguments.copy_library {
                copy(&installed()?, &library)?;
            }
            library
        }
        None => installed()?,
    };
    let specification = specification(&library, &arguments.clients);
    match &arguments.write {
        Some(folder) => {
            output::make_directory(folder)?;
            output::write_file(&folder.join(FILE), &output::json(&specification)?)?;
        }
        None => output::print_json(&specification)?,
    }
    Ok(Status::Done)
}

/// Copies a library so that a program that loads it sees all of it or the old one.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = to
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::File::open(from))
        .and_then(|mut from| {
            output::replace(to, |copy| {
                copy.set_permissions(from.metadata()?.permissions())?;
                io::copy(&mut from, copy).map(|_| ())
            })
        });
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn specification(library: &Path, clients: &Path) -> Value {
    let mount = |host: &Path, inside: String| {
        json!({
            "hostPath": host,
            "containerPath": inside,
            "options": ["ro", "rbind", "nosuid", "nodev"],
        })
    };
    let inside = format!("{INSIDE}/{LIBRARY}");
    json!({
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [{
            "name": DEVICE,
            "containerEdits": {
                "env": [format!("LD_PRELOAD={inside}")],
                "mounts": [
                    mount(library, inside.clone()),
                    // The folder, because a daemon that starts again makes a new socket.
                    mount(clients, "/run/isolane/clients".to_owned()),
                ],
            },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_library_and_socket_read_only() {
        let value = specification(
            Path::new("/usr/lib/isolane/libisolane_shim.so"),
            Path::new("/run/isolane/clients"),
        );
        assert_eq!(
            (&value["kind"], &value["devices"][0]["name"]),
            (&"isolane.dev/rdma".into(), &"paced".into())
        );
        let edits = &value["devices"][0]["containerEdits"];
        assert_eq!(
            edits["env"],
            json!(["LD_PRELOAD=/opt/isolane/libisolane_shim.so"])
        );
        for mount in edits["mounts"].as_array().unwrap() {
            assert_eq!(mount["options"][0], "ro");
        }
        assert_eq!(edits["mounts"][1]["hostPath"], "/run/isolane/clients");
    }

    #[test]
    fn a_copied_library_replaces_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (
            directory.path().join("new"),
            directory.path().join("a/old.so"),
        );
        fs::write(&from, "1").unwrap();
        copy(&from, &to).unwrap();
        fs::write(&from, "2").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "2");
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}
