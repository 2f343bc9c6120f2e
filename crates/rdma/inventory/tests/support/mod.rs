//! Made-up trees from texts: `PATH = CONTENT` makes a file (`\n` is a new line), `PATH -> TARGET` a link; a line that
//! begins with `#` is a comment. `express HEX` makes a PCI configuration space with that Device Control register.

use isolane_common_linux::Root;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A tree of several texts; it lives as long as the directory.
pub(crate) fn tree(texts: &[&str]) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    for line in texts.iter().flat_map(|text| text.lines()) {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let link = line.split_once(" -> ");
        let file = line.split_once(" =");
        match (link, file) {
            (Some((path, target)), _) => {
                let path = place(directory.path(), path);
                symlink(target, path).unwrap();
            }
            (None, Some((path, content))) => {
                let content = content.trim_start();
                let bytes = match content.strip_prefix("express ") {
                    Some(register) => configuration(register),
                    None => content.replace("\\n", "\n").into_bytes(),
                };
                fs::write(place(directory.path(), path), bytes).unwrap();
            }
            (None, None) => panic!("neither a file nor a link: {line}"),
        }
    }
    let root = Root::at(directory.path());
    (directory, root)
}

fn place(root: &Path, path: &str) -> std::path::PathBuf {
    let path = root.join(path.trim_start_matches('/'));
    // A folder that a link names may not be there yet; sysfs links go up and down again.
    if let Err(error) = fs::create_dir_all(path.parent().unwrap()) {
        panic!("{}: {error}", path.display());
    }
    path
}

fn configuration(register: &str) -> Vec<u8> {
    let control = u16::from_str_radix(register, 16).unwrap();
    let mut config = vec![0; 256];
    config[0x34] = 0x60;
    config[0x60] = 0x10;
    config[0x68..0x6a].copy_from_slice(&control.to_le_bytes());
    config
}
