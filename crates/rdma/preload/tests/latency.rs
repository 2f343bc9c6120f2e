//! A process of the latency class keeps the pointers of its provider.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;

use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::Region;
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports::HOOKS;
use isolane_shim::process::{Process, install};
use isolane_shim::session::Session;
use isolane_shim::settings::{Settings, Talk};

#[test]
fn a_latency_process_keeps_every_pointer() {
    let settings = Settings {
        talk: Talk::Off,
        pump: false,
        ..Settings::default()
    };
    let process = install(Process::new(null::originals(), settings, || 1));
    let (_region, file) = Region::create(1).unwrap();
    let session = Session::local(Region::map(&file).unwrap(), Class::Latency);
    process.serve_locally("null0", session, [0, 1]);
    unsafe {
        let context = null::open_device(null::device("null0"));
        let bytes = size_of::<verbs_context>();
        let whole = verbs_get_ctx(context).cast::<u8>();
        let before = std::slice::from_raw_parts(whole, bytes).to_vec();
        process.adopt(context, &HOOKS);
        assert_eq!(std::slice::from_raw_parts(whole, bytes), before);
        let post: *const () = (*context).ops.post_send.unwrap() as *const ();
        assert_eq!(post, null::post_send as *const ());
        let poll: *const () = (*context).ops.poll_cq.unwrap() as *const ();
        assert_eq!(poll, null::poll_cq as *const ());
    }
}
