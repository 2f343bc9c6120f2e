//! A program that promises libmlx5 a single thread. libmlx5 then takes no locks, and it ends the program when it sees two
//! threads in one object (`mlx5_spin_lock` in rdma-core's `providers/mlx5/mlx5.h`).
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;

use isolane_rdma_session::message::Class;
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::{Settings, Talk};
use std::sync::Mutex;

const PROMISE: &str = "MLX5_SINGLE_THREADED";
static SEEN: Mutex<Option<String>> = Mutex::new(None);

/// Opens a device as libmlx5 does, which reads the variable at each open.
unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    *SEEN.lock().unwrap() = std::env::var(PROMISE).ok();
    unsafe { null::open_device(device) }
}

#[test]
fn the_promise_of_a_single_thread_is_withdrawn_before_a_device_is_opened() {
    // This test is alone in its process.
    unsafe { std::env::set_var(PROMISE, "1") };
    let mut originals = null::originals();
    originals.open_device = open_device;
    let settings = |disabled| Settings {
        talk: Talk::Off,
        pump: false,
        disabled,
        // A claim alone: the daemon grants this class later, so the pump runs first.
        class: Class::Latency,
        ..Settings::default()
    };
    settings(true).allow_threads();
    assert_eq!(std::env::var(PROMISE).as_deref(), Ok("1"), "no pump");
    install(Process::new(originals, settings(false), || 1));
    unsafe {
        let context = exports::ibv_open_device(null::device("null0"));
        assert_eq!(exports::ibv_close_device(context), 0);
    }
    assert_eq!(SEEN.lock().unwrap().as_deref(), Some("0"));
}
