//! The repository as a map from path to text, read once.
//!
//! Paths are relative to the root and use `/`. Build outputs, version control and caches are left out. A file
//! that is not UTF-8 is present with an empty text, so that links to it resolve.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Directories that hold no sources of ours.
const SKIPPED_FOLDERS: [&str; 6] = [
    ".git",
    "target",
    "out",
    "node_modules",
    "__pycache__",
    ".venv",
];

/// Cargo and other tools mark their caches with this file.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// Every file of the repository.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads every file below `root`. Fails if a directory or a file cannot be read.
    pub fn load(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.load_folder(root, "")?;
        Ok(tree)
    }

    /// A tree of these paths and texts, for tests of the checks.
    pub fn from_files(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Self { files }
    }

    /// Paths and texts, in order of path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of `path`, if there is such a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// True when `path` is a file, or a directory that holds one.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&below))
    }

    fn load_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        if folder.join(CACHE_TAG).exists() {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            // `.git` is a file in a second worktree.
            if SKIPPED_FOLDERS.contains(&name.as_str()) {
                continue;
            }
            if kind.is_dir() {
                self.load_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                self.files.insert(path, text);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_when_a_file_is_below_it() {
        let tree = Tree::from_files(&[("docs/guides/one.md", "")]);
        assert!(tree.has("docs/guides/one.md"));
        assert!(tree.has("docs/guides/"));
        assert!(tree.has("docs"));
        assert!(!tree.has("doc"));
        assert!(!tree.has("docs/guides/one"));
    }
}
