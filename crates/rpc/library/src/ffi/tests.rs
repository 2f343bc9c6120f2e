//! The whole interface on memory of exactly the announced size, so that the address sanitizer sees an access beyond it.

use super::*;
use std::ffi::CStr;

/// Few destinations: tables of the default size take minutes under Miri.
const SETTINGS: &str = concat!(
    "destinations_max = 16\n",
    include_str!("../../tests/data/two-classes.toml")
);

fn opened() -> *mut Handle {
    let text = Box::<[u8]>::from(SETTINGS.as_bytes());
    // SAFETY: the text has this length.
    let handle = unsafe { isolane_rpc_open(text.as_ptr().cast(), text.len()) };
    assert!(!handle.is_null(), "{:?}", last_error());
    handle
}

fn last_error() -> String {
    // SAFETY: a terminated text until this thread's next call.
    let text = unsafe { CStr::from_ptr(isolane_rpc_last_error()) };
    text.to_string_lossy().into_owned()
}

/// What a function writes that takes a buffer, its size and the place of a length, with a buffer of every small size and
/// one that suffices.
fn handed_out(write: impl Fn(*mut c_char, usize, *mut usize) -> i32) -> String {
    let mut length = 0;
    assert_eq!(write(std::ptr::null_mut(), 0, &raw mut length), 0);
    let mut found = String::new();
    // A probability in the text may change meanwhile.
    for capacity in (1..10).chain([length + 100]) {
        let mut buffer = vec![0xffu8; capacity].into_boxed_slice();
        let mut again = 0;
        assert_eq!(
            write(buffer.as_mut_ptr().cast(), capacity, &raw mut again),
            0
        );
        let text = CStr::from_bytes_until_nul(&buffer).expect("it is terminated");
        found = text.to_str().expect("UTF-8").to_owned();
        assert_eq!(found.len(), again.min(capacity - 1));
    }
    found
}

fn decided(handle: *mut Handle, destination: &[u8]) -> Result<CDecision, i32> {
    let mut decision = Box::new(CDecision::default());
    // SAFETY: both point to what they say.
    let code = unsafe {
        isolane_rpc_decide(
            handle,
            destination.as_ptr(),
            destination.len(),
            0,
            64,
            &raw mut *decision,
        )
    };
    match code {
        0 => Ok(*decision),
        code => Err(code),
    }
}

#[test]
fn every_function_stays_in_the_memory_of_its_caller() {
    let handle = opened();
    let destination = Box::<[u8]>::from(&b"server:443"[..]);
    let decision = decided(handle, &destination).expect("an open handle");
    assert_eq!(isolane_rpc_complete(handle, decision.ticket, 1_000), 0);
    let decision = decided(handle, &destination).expect("an open handle");
    assert_eq!(
        isolane_rpc_complete_read(handle, decision.ticket, 9, 1_000),
        0
    );
    let decision = decided(handle, &destination).expect("an open handle");
    assert_eq!(isolane_rpc_give_up(handle, decision.ticket, 1_000), 0);
    let names: Vec<String> = (0..isolane_rpc_classes(handle))
        .map(|class| {
            // SAFETY: `handed_out` passes what it has.
            handed_out(|buffer, capacity, length| unsafe {
                isolane_rpc_class_name(handle, class, buffer, capacity, length)
            })
        })
        .collect();
    // SAFETY: each pointer has the length beside it.
    unsafe {
        for (index, name) in names.iter().enumerate() {
            let found = isolane_rpc_class_index(handle, name.as_ptr().cast(), name.len());
            assert_eq!(found, index as i32);
        }
        let mut probability = 0.0;
        let (start, length) = (destination.as_ptr(), destination.len());
        assert_eq!(
            isolane_rpc_probability(handle, start, length, 0, &raw mut probability),
            0
        );
        assert!(probability > 0.0);
        let metrics = handed_out(|buffer, capacity, length| {
            isolane_rpc_metrics(handle, buffer, capacity, length)
        });
        assert!(metrics.ends_with("# EOF\n"));
        handed_out(|buffer, capacity, length| isolane_rpc_said(handle, buffer, capacity, length));
        assert_eq!(isolane_rpc_forget(handle, start, length), 0);
        let text = SETTINGS.as_bytes();
        assert_eq!(
            isolane_rpc_reload(handle, text.as_ptr().cast(), text.len()),
            0
        );
    }
    isolane_rpc_close(handle);
    assert_eq!(isolane_rpc_class_dscp(handle, 0), Code::BadHandle as i32);
    assert!(last_error().contains("closed"), "{}", last_error());
}

#[test]
fn a_handle_that_another_thread_closes_is_used_up_to_its_end() {
    for _ in 0..if cfg!(miri) { 1 } else { 5 } {
        let handle = opened().addr();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let handle = std::ptr::without_provenance_mut(handle);
                    while let Ok(decision) = decided(handle, b"server:443") {
                        isolane_rpc_complete(handle, decision.ticket, 1_000);
                    }
                });
            }
            scope.spawn(move || {
                std::thread::yield_now();
                isolane_rpc_close(std::ptr::without_provenance_mut(handle));
            });
        });
    }
}
