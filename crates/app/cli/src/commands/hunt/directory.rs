//! The default directory of a hunt: out/hunt, or the first of out/hunt-2, out/hunt-3, … that is empty or absent. So no
//! hunt replaces another.

use super::bench;
use isolane_study_hunt::state::{Header, JOURNAL_NAME};
use std::path::{Path, PathBuf};

const BASE: &str = "out/hunt";

/// The directory of the hunt that `header` describes: `asked`, or one of ours. For a resume: the newest directory with
/// this hunt, or else the newest one, so the error names the hunt in that directory.
pub(super) fn choose(asked: Option<&Path>, header: &Header, resume: bool) -> PathBuf {
    match asked {
        Some(path) => path.to_owned(),
        None => among(Path::new(""), header, resume),
    }
}

fn among(root: &Path, header: &Header, resume: bool) -> PathBuf {
    let first = root.join(BASE);
    let all = (2..).map(|number| root.join(format!("{BASE}-{number}")));
    let mut all = std::iter::once(first.clone()).chain(all);
    if !resume {
        return all.find(|path| !taken(path)).unwrap_or(first);
    }
    let held: Vec<PathBuf> = all.take_while(|path| taken(path)).collect();
    let ours = held.iter().rev().find(|path| header.describes(path));
    ours.or(held.last()).unwrap_or(&first).to_owned()
}

fn taken(directory: &Path) -> bool {
    [JOURNAL_NAME, bench::JOURNAL]
        .iter()
        .any(|name| directory.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_study_hunt::state::Journal;

    #[test]
    fn hunts_go_beside_each_other_and_each_is_found_again() {
        let root = tempfile::tempdir().unwrap();
        let place = |number: &str| root.path().join(format!("{BASE}{number}"));
        let hunts = ["one", "two", "one"].map(|settings| Header::new("build", settings));
        for (header, number) in hunts.iter().zip(["", "-2", "-3"]) {
            let chosen = among(root.path(), header, false);
            assert_eq!(chosen, place(number));
            std::fs::create_dir_all(&chosen).unwrap();
            Journal::create(&chosen, header).unwrap();
        }
        let again = |settings| among(root.path(), &Header::new("another", settings), true);
        assert_eq!(again("one"), place("-3"));
        assert_eq!(again("two"), place("-2"));
        assert_eq!(again("three"), place("-3"));
    }

    #[test]
    fn a_first_hunt_and_an_empty_one_have_the_plain_name() {
        let root = tempfile::tempdir().unwrap();
        for resume in [false, true] {
            let chosen = among(root.path(), &Header::new("build", "one"), resume);
            assert_eq!(chosen, root.path().join(BASE));
        }
    }

    #[test]
    fn a_directory_that_is_named_is_taken_as_it_is() {
        let header = Header::new("build", "one");
        assert_eq!(choose(Some(Path::new("x")), &header, false), Path::new("x"));
    }
}
