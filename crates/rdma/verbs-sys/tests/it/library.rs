//! What the dynamic loader finds: both lookups work where libibverbs is installed, and say what to install elsewhere.

#![allow(unsafe_code, reason = "calls a function of the library")]
use isolane_common_linux::skip::skip;
use isolane_rdma_verbs_sys::{Library, LibraryError, Lookup};

fn open(lookup: Lookup) -> Option<Library> {
    match Library::open(lookup) {
        Ok(library) => Some(library),
        Err(error @ LibraryError::Missing { .. }) => {
            assert!(error.to_string().contains("apt install libibverbs1"));
            skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn without_a_preload_library_both_lookups_find_the_same_functions() {
    let (Some(program), Some(library)) = (open(Lookup::Program), open(Lookup::Library)) else {
        return;
    };
    assert_eq!(program.create_qp as usize, library.create_qp as usize);
    assert_eq!(program.reg_mr as usize, library.reg_mr as usize);
    assert_eq!(
        program.create_comp_channel as usize,
        library.create_comp_channel as usize
    );
    assert_eq!(
        program.qp_to_qp_ex.map(|function| function as usize),
        library.qp_to_qp_ex.map(|function| function as usize)
    );
}

#[test]
fn the_library_names_its_own_statuses() {
    let Some(library) = open(Lookup::Library) else {
        return;
    };
    // SAFETY: any integer is a valid argument; the answer is a constant text of the library.
    let text = unsafe {
        std::ffi::CStr::from_ptr((library.wc_status_str)(
            isolane_rdma_verbs_sys::IBV_WC_RNR_RETRY_EXC_ERR,
        ))
    };
    assert_eq!(text.to_str(), Ok("RNR retry counter exceeded"));
}
