//! The backend `move_pages`: the system call of that name on the processes of the control group.
//!
//! Method: each process's mappings are walked from where the last step stopped; `/proc/PID/pagemap` lists the present
//! pages, `move_pages` returns their nodes, and pages on the wrong tier are moved, `PIECE` per step. It works on every
//! kernel with nodes, also without tiers of the kernel's own, and promotes pages again when a limit is raised.
//!
//! Limits: nothing says which pages are hot, so it goes by address, and what it moves may be what the application uses
//! most; pages that several processes map stay; a huge page counts as the small ones that it holds.
//! Needs CAP_SYS_NICE and CAP_SYS_PTRACE. Source: move_pages(2); the kernel's documentation of pagemap.

use super::BackendKind;
use super::engine::{Context, Move, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::sys;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes moved per step at most.
const PIECE: Bytes = Bytes::from_mib(16);

/// Pages looked at per step at most: 1 GiB of address space.
const LOOK_PAGES: u64 = 1 << 18;

/// Pages per system call.
const BATCH: usize = 1024;

const PAGE_BYTES: u64 = 4096;

/// The page is in memory (bit of a pagemap entry).
const PRESENT: u64 = 1 << 63;

/// No such process.
const ESRCH: i32 = 3;

/// Queries the nodes of pages and moves pages: the kernel, or a test.
pub trait Pages: Send {
    /// See `sys::move_pages`.
    fn move_pages(
        &mut self,
        process: u32,
        addresses: &[u64],
        to: Option<u32>,
    ) -> io::Result<Vec<i32>>;
}

/// The kernel's pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelPages;

impl Pages for KernelPages {
    fn move_pages(
        &mut self,
        process: u32,
        addresses: &[u64],
        to: Option<u32>,
    ) -> io::Result<Vec<i32>> {
        sys::move_pages(process, addresses, to)
    }
}

/// Where a walk stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    process: u32,
    address: u64,
}

/// The mover.
#[derive(Debug, Default)]
pub struct MovePages<P> {
    pages: P,
    cursors: BTreeMap<AppId, Cursor>,
}

impl<P: Pages> MovePages<P> {
    /// A mover over `pages`.
    pub fn new(pages: P) -> Self {
        Self {
            pages,
            cursors: BTreeMap::new(),
        }
    }
}

impl<P: Pages> Mover for MovePages<P> {
    fn kind(&self) -> BackendKind {
        BackendKind::MovePages
    }

    fn begin(&mut self, _context: &Context, app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        self.cursors.insert(app, Cursor::default());
        Ok(())
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        work.iter().map(|work| self.one(context, work)).collect()
    }

    fn end(&mut self, _context: &Context, app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        self.cursors.remove(&app);
        Ok(())
    }
}

impl<P: Pages> MovePages<P> {
    fn one(&mut self, context: &Context, work: &Work) -> Result<bool, MemError> {
        let Some(wanted) = work.demote.or(work.promote) else {
            return Ok(false);
        };
        let processes = context.host.processes(&work.cgroup)?;
        let start = self.cursors.get(&work.app).copied().unwrap_or_default();
        let mut walk = Walk {
            context,
            wanted,
            to: context
                .tiers
                .roomiest_node(&context.host, wanted.to)
                .unwrap_or(0),
            left: wanted.bytes.min(PIECE).get(),
            look: LOOK_PAGES,
        };
        // From the cursor to the end, then from the beginning to the cursor: everything once at most.
        for half in [false, true] {
            for process in &processes {
                let from = match (half, process.cmp(&start.process)) {
                    (false, std::cmp::Ordering::Less) | (true, std::cmp::Ordering::Greater) => {
                        continue;
                    }
                    (false, std::cmp::Ordering::Equal) => start.address,
                    _ => 0,
                };
                let end = match half && *process == start.process {
                    true => start.address,
                    false => u64::MAX,
                };
                let stopped = walk.process(&mut self.pages, *process, from, end)?;
                if let Some(address) = stopped {
                    let process = *process;
                    self.cursors.insert(work.app, Cursor { process, address });
                    return Ok(true);
                }
            }
        }
        self.cursors.insert(work.app, Cursor::default());
        Ok(work.demote.is_some())
    }
}

struct Walk<'a> {
    context: &'a Context,
    wanted: Move,
    to: u32,
    left: u64,
    look: u64,
}

impl Walk<'_> {
    /// Walks one process from `from` to `end`; where it stopped when the step's share was used up.
    fn process(
        &mut self,
        pages: &mut impl Pages,
        process: u32,
        from: u64,
        end: u64,
    ) -> Result<Option<u64>, MemError> {
        let root = &self.context.host.root;
        // A process that has ended meanwhile has nothing to move.
        let Some(maps) = root.text(&format!("/proc/{process}/maps")) else {
            return Ok(None);
        };
        let Ok(pagemap) = File::open(root.path(&format!("/proc/{process}/pagemap"))) else {
            return Ok(None);
        };
        for (first, last) in mappings(&maps) {
            let mut address = first.max(from);
            while address < last.min(end) {
                if self.left == 0 || self.look == 0 {
                    return Ok(Some(address));
                }
                let count = ((last.min(end) - address) / PAGE_BYTES)
                    .min(BATCH as u64)
                    .min(self.look);
                let present = present_pages(&pagemap, address, count);
                self.look -= count;
                self.batch(pages, process, &present)?;
                address += count * PAGE_BYTES;
            }
        }
        Ok(None)
    }

    /// Moves those of a batch that are in the wrong tier.
    fn batch(
        &mut self,
        pages: &mut impl Pages,
        process: u32,
        present: &[u64],
    ) -> Result<(), MemError> {
        if present.is_empty() {
            return Ok(());
        }
        let Some(nodes) = answer(process, pages.move_pages(process, present, None))? else {
            return Ok(());
        };
        let tiers = &self.context.tiers;
        let lies = |node: i32| {
            u32::try_from(node)
                .ok()
                .and_then(|node| tiers.tier_of(node))
        };
        let wrong: Vec<u64> = present
            .iter()
            .zip(nodes)
            .filter(|(_, node)| lies(*node) == Some(self.wanted.from))
            .map(|(address, _)| *address)
            .take(usize::try_from(self.left.div_ceil(PAGE_BYTES)).unwrap_or(BATCH))
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let Some(moved) = answer(process, pages.move_pages(process, &wrong, Some(self.to)))? else {
            return Ok(());
        };
        let there = moved
            .into_iter()
            .filter(|node| lies(*node) == Some(self.wanted.to));
        self.left = self.left.saturating_sub(there.count() as u64 * PAGE_BYTES);
        Ok(())
    }
}

/// None for a process that has ended.
fn answer(process: u32, result: io::Result<Vec<i32>>) -> Result<Option<Vec<i32>>, MemError> {
    match result {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(MemError::NotPermitted {
                action: format!("move pages of process {process}"),
            })
        }
        Err(source) => Err(MemError::Kernel {
            action: format!("move pages of process {process}"),
            source,
        }),
    }
}

/// Mappings whose pages can move: those of programs, files and anonymous memory; not the kernel's own and no devices.
pub(crate) fn mappings(maps: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, last) = words.next()?.split_once('-')?;
        let name = words.nth(4).unwrap_or_default();
        let skip =
            name.starts_with("[v") || (name.starts_with("/dev/") && !name.starts_with("/dev/shm/"));
        let first = u64::from_str_radix(first, 16).ok()?;
        let last = u64::from_str_radix(last, 16).ok()?;
        (!skip && first < last && first % PAGE_BYTES == 0).then_some((first, last))
    };
    maps.lines().filter_map(range).collect()
}

/// The addresses of `count` pages from `address` on that are in memory.
fn present_pages(pagemap: &File, address: u64, count: u64) -> Vec<u64> {
    let mut bytes = vec![0_u8; usize::try_from(count * 8).unwrap_or(0)];
    let read = pagemap
        .read_at(&mut bytes, address / PAGE_BYTES * 8)
        .unwrap_or(0);
    let entries = bytes[..read].chunks_exact(8).enumerate();
    entries
        .filter(|(_, entry)| {
            u64::from_ne_bytes((*entry).try_into().expect("eight bytes")) & PRESENT != 0
        })
        .map(|(index, _)| address + index as u64 * PAGE_BYTES)
        .collect()
}
