//! An application over a provider without hardware, with the real shim between: it writes, polls and checks bytes.
//!
//! It runs until its input ends and writes its progress to a file, which its parent reads.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use crate::null;
use isolane_rdma_session::message::Class;
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::{Settings, Talk};
use std::ffi::c_int;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const DEPTH: usize = 8;
const MESSAGE_BYTES: usize = 64 * 1024;

static OVER: AtomicBool = AtomicBool::new(false);

fn file_of(folder: &Path, role: &str) -> PathBuf {
    folder.join(role.replace(':', "-"))
}

/// Bytes that the application of this role has moved and checked so far.
pub(crate) fn bytes_moved(folder: &Path, role: &str) -> u64 {
    let mut bytes = [0; 8];
    let read = File::open(file_of(folder, role)).and_then(|file| file.read_exact_at(&mut bytes, 0));
    read.map_or(0, |()| u64::from_ne_bytes(bytes))
}

/// A queue pair, its completion queue, and the places of its messages.
struct Application {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    from: Vec<Vec<u8>>,
    to: Vec<Vec<u8>>,
    free: Vec<usize>,
    posted: u64,
    moved: u64,
}

/// Runs `NAME:WEIGHT:CLASS` until the input ends; panics on a wrong byte or completion.
pub(crate) fn run(role: &str, folder: &Path) {
    let words: Vec<&str> = role.split(':').collect();
    let settings = Settings {
        socket: folder.join("run/isolaned.sock"),
        class: Class::from_name(words[2]).expect("a class"),
        tenant: words[0].to_owned(),
        weight: words[1].parse().expect("a weight"),
        talk: Talk::Off,
        ..Settings::default()
    };
    install(Process::new(
        null::originals(),
        settings,
        isolaned::server::now_ns,
    ));
    let _ = std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
    });
    let progress = File::create(file_of(folder, role)).expect("a file");
    let mut application = Application::new();
    while !OVER.load(Ordering::Relaxed) || application.free.len() < DEPTH {
        if !OVER.load(Ordering::Relaxed) {
            application.post();
        }
        if !application.poll() {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        let moved = application.moved.to_ne_bytes();
        progress.write_all_at(&moved, 0).expect("a file");
    }
    unsafe { assert_eq!(exports::ibv_destroy_qp(application.qp), 0) };
}

impl Application {
    fn new() -> Self {
        let (qp, cq) = null::through::connected("rxe0", DEPTH as u32);
        Self {
            qp,
            cq,
            from: vec![vec![0; MESSAGE_BYTES]; DEPTH],
            to: vec![vec![0; MESSAGE_BYTES]; DEPTH],
            free: (0..DEPTH).collect(),
            posted: 0,
            moved: 0,
        }
    }

    /// Posts until no place is free: messages of 1 byte to 64 KiB, each with its own byte pattern.
    fn post(&mut self) {
        while let Some(place) = self.free.pop() {
            self.posted += 1;
            let length = 1 + (self.posted as usize).wrapping_mul(7919) % MESSAGE_BYTES;
            self.from[place].resize(length, 0);
            self.to[place].clear();
            self.to[place].resize(length, 0);
            self.from[place].fill(1 + (self.posted % 255) as u8);
            let to = self.to[place].as_mut_ptr();
            null::through::write(self.qp, place as u64, &self.from[place], to);
        }
    }

    /// Runs the provider and takes completions. Returns whether there were any.
    fn poll(&mut self) -> bool {
        while null::step(self.qp) {}
        let mut done = [ibv_wc::default(); DEPTH];
        let count = unsafe { ibv_poll_cq(self.cq, DEPTH as c_int, done.as_mut_ptr()) };
        assert!(count >= 0, "polling failed: {count}");
        for completion in &done[..count as usize] {
            let place = completion.wr_id as usize;
            assert_eq!(completion.status, IBV_WC_SUCCESS);
            assert!(!self.free.contains(&place), "a completion came twice");
            assert!(self.from[place] == self.to[place], "other bytes arrived");
            self.moved += self.from[place].len() as u64;
            self.free.push(place);
        }
        count > 0
    }
}
