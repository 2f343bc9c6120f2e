//! The safe layer on a machine that may or may not have devices: an unknown device is refused with a helpful line.

use isolane_common_linux::skip::skip;
use isolane_rdma_verbs_sys::safe::{Context, VerbsError};
use isolane_rdma_verbs_sys::{Library, Lookup};

#[test]
fn an_unknown_device_is_refused_with_what_there_is() {
    let library = match Library::open(Lookup::Program) {
        Ok(library) => library,
        Err(error) => {
            skip(error);
            return;
        }
    };
    match Context::open(&library, "no-such-device") {
        Err(error @ VerbsError::NoDevices { .. }) => {
            assert!(error.to_string().contains("rdma link add"), "{error}");
        }
        Err(VerbsError::UnknownDevice { name, available }) => {
            assert_eq!(name, "no-such-device");
            assert!(!available.is_empty());
        }
        other => panic!("{other:?}"),
    }
}
