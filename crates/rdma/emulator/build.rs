//! Links the programs `isolane-ibverbs` and `isolane-device-files` as shared libraries: the first one as `libibverbs.so.1` with
//! symbol versions.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for (program, map) in [
        ("isolane-ibverbs", "ibverbs.map"),
        ("isolane-device-files", "device-files.map"),
    ] {
        println!("cargo:rerun-if-changed={root}/{map}");
        // rustc requests a position-independent program (-pie), and Zig's linker takes that for a contradiction.
        println!("cargo:rustc-link-arg-bin={program}=-no-pie");
        println!("cargo:rustc-link-arg-bin={program}=-shared");
        println!("cargo:rustc-link-arg-bin={program}=-Wl,--version-script={root}/{map}");
    }
    println!("cargo:rustc-link-arg-bin=isolane-ibverbs=-Wl,-soname,libibverbs.so.1");
}
