//! The parts of an ELF file that say how its program reaches libibverbs: loader, needed libraries, undefined symbols.
//!
//! Method: the section table names the dynamic symbols and their texts; nothing else of the file is read. The file may be
//! anything, so each offset is checked and each size is bounded. Limits: 64 bit, little endian; a file without a section
//! table has no symbols here. Source: elf(5).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Largest table that is read, bytes: the dynamic symbols of the largest libraries have a few megabytes.
const TABLE_MAX: u64 = 32 << 20;
/// Largest number of headers of a kind.
const HEADERS_MAX: u64 = 4_096;
/// Largest number of files that are kept.
const FILES_MAX: usize = 4_096;
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const DYNAMIC: usize = 16;

const PROGRAM_INTERPRETER: u64 = 3;
const SECTION_DYNAMIC: u64 = 6;
const SECTION_SYMBOLS: u64 = 11;
const TAG_NEEDED: u64 = 1;

/// What an ELF file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Whether the program starts by a dynamic loader. Libraries have none.
    pub has_loader: bool,
    /// Names of the libraries that it needs.
    pub needed: BTreeSet<String>,
    /// Names of the symbols that other objects must define.
    pub undefined: BTreeSet<String>,
}

/// Files that were read before, by device, inode, and time of the last change. Most processes map the same ones.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<(u64, u64, i64, i64), Option<Arc<Elf>>>);

impl Files {
    /// Reads a file; `None` if it cannot be read or is no ELF file that this module understands.
    pub fn read(&mut self, path: &Path) -> Option<Arc<Elf>> {
        let about = std::fs::metadata(path).ok()?;
        // A mapped device file would block or act when it is read.
        if !about.is_file() {
            return None;
        }
        let key = (about.dev(), about.ino(), about.ctime(), about.ctime_nsec());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let file = File::open(path).ok()?;
        let elf = Elf::parse(|offset, length| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).ok()?;
            Some(bytes)
        });
        if self.0.len() >= FILES_MAX {
            self.0.clear();
        }
        let elf = elf.map(Arc::new);
        self.0.insert(key, elf.clone());
        elf
    }
}

impl Elf {
    /// Parses a file of which `read` returns `length` bytes from `offset`.
    fn parse(read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Self> {
        let header = read(0, HEADER)?;
        let (class_64, little_endian) = (header[4] == 2, header[5] == 1);
        if !header.starts_with(b"\x7fELF") || !class_64 || !little_endian {
            return None;
        }
        let table = |at: usize, size: usize, count: usize, entry: usize| -> Option<Vec<u8>> {
            let (size, count) = (number(&header, size, 2)?, number(&header, count, 2)?);
            let fits = size == entry as u64 && count <= HEADERS_MAX;
            read(
                number(&header, at, 8)?,
                fits.then_some(entry * count as usize)?,
            )
        };
        let segments = table(32, 54, 56, SEGMENT).unwrap_or_default();
        let mut elf = Self {
            has_loader: segments
                .chunks_exact(SEGMENT)
                .any(|segment| number(segment, 0, 4) == Some(PROGRAM_INTERPRETER)),
            ..Self::default()
        };
        let sections = table(40, 58, 60, SECTION).unwrap_or_default();
        let content = |section: &[u8]| -> Option<Vec<u8>> {
            let length = number(section, 32, 8)?;
            (length <= TABLE_MAX).then(|| read(number(section, 24, 8)?, length as usize))?
        };
        for section in sections.chunks_exact(SECTION) {
            let kind = number(section, 4, 4)?;
            if kind != SECTION_SYMBOLS && kind != SECTION_DYNAMIC {
                continue;
            }
            let texts = number(section, 40, 4)? as usize;
            let texts = sections.chunks_exact(SECTION).nth(texts).and_then(content);
            let (Some(table), Some(texts)) = (content(section), texts) else {
                continue;
            };
            match kind {
                SECTION_SYMBOLS => elf.undefined.extend(undefined(&table, &texts)),
                _ => elf.needed.extend(needed(&table, &texts)),
            }
        }
        Some(elf)
    }
}

fn undefined<'a>(table: &'a [u8], texts: &'a [u8]) -> impl Iterator<Item = String> + 'a {
    let symbols = table.chunks_exact(SYMBOL);
    let without_section = symbols.filter(|symbol| number(symbol, 6, 2) == Some(0));
    without_section.filter_map(|symbol| text(texts, number(symbol, 0, 4)?))
}

fn needed<'a>(table: &'a [u8], texts: &'a [u8]) -> impl Iterator<Item = String> + 'a {
    let entries = table.chunks_exact(DYNAMIC);
    let needed = entries.filter(|entry| number(entry, 0, 8) == Some(TAG_NEEDED));
    needed.filter_map(|entry| text(texts, number(entry, 8, 8)?))
}

/// The text that begins at `at`; `None` if it is empty or does not end.
fn text(texts: &[u8], at: u64) -> Option<String> {
    let rest = texts.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// The little-endian number of `length` bytes at `at`.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    let most_significant_first = bytes.iter().rev();
    Some(most_significant_first.fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF file with these properties.
    pub(crate) fn elf(has_loader: bool, needed: &[&str], undefined: &[&str]) -> Vec<u8> {
        let mut texts = vec![0];
        let mut place = |name: &str| {
            let at = texts.len() as u64;
            texts.extend(name.as_bytes());
            texts.push(0);
            at
        };
        let mut symbols = vec![0; SYMBOL];
        for name in undefined {
            let mut symbol = [0; SYMBOL];
            symbol[..4].copy_from_slice(&(place(name) as u32).to_le_bytes());
            symbols.extend(symbol);
        }
        // A symbol that the file defines.
        let mut defined = [0; SYMBOL];
        defined[..4].copy_from_slice(&(place("ibv_defined_here") as u32).to_le_bytes());
        defined[6] = 1;
        symbols.extend(defined);
        let mut dynamic = Vec::new();
        for name in needed {
            dynamic.extend(TAG_NEEDED.to_le_bytes());
            dynamic.extend(place(name).to_le_bytes());
        }
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(b"\x7fELF");
        (bytes[4], bytes[5]) = (2, 1);
        (bytes[32], bytes[54], bytes[56]) = (HEADER as u8, SEGMENT as u8, 1);
        let mut segment = [0; SEGMENT];
        segment[0] = if has_loader { 3 } else { 1 };
        bytes.extend(segment);
        let mut sections = Vec::new();
        for (kind, texts_at, content) in [
            (SECTION_SYMBOLS, 1u32, &symbols),
            (3, 0, &texts),
            (SECTION_DYNAMIC, 1, &dynamic),
        ] {
            let mut section = [0; SECTION];
            section[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
            section[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            section[40..44].copy_from_slice(&texts_at.to_le_bytes());
            bytes.extend(content);
            sections.extend(section);
        }
        let at = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&at.to_le_bytes());
        (bytes[58], bytes[60]) = (SECTION as u8, 3);
        bytes.extend(sections);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Elf> {
        Elf::parse(|offset, length| {
            let start = usize::try_from(offset).ok()?;
            Some(bytes.get(start..start.checked_add(length)?)?.to_vec())
        })
    }

    #[test]
    fn a_file_names_what_it_needs() {
        let found = parse(&elf(true, &["libibverbs.so.1"], &["ibv_open_device"])).unwrap();
        assert!(found.has_loader);
        assert_eq!(found.needed, BTreeSet::from(["libibverbs.so.1".to_owned()]));
        let undefined = BTreeSet::from(["ibv_open_device".to_owned()]);
        assert_eq!(found.undefined, undefined);
        assert_eq!(parse(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn this_program_is_read() {
        let program = std::env::current_exe().unwrap();
        let mut files = Files::default();
        let found = files.read(&program).expect("a program is an ELF file");
        assert!(Arc::ptr_eq(&found, &files.read(&program).unwrap()));
        assert!(found.has_loader);
        assert!(
            found.needed.iter().any(|name| name.starts_with("libc.so")),
            "{found:?}"
        );
    }

    /// Goal: no file causes a panic. Method: every prefix of a good file, and a change of each of its bytes.
    #[test]
    fn damaged_files_are_answered() {
        let good = elf(true, &["libibverbs.so.1"], &["mlx5dv_init_obj"]);
        for at in 0..good.len() {
            let _ = parse(&good[..at]);
            for value in [0, 0x7f, 0xff] {
                let mut changed = good.clone();
                changed[at] = value;
                let _ = parse(&changed);
            }
        }
    }
}
