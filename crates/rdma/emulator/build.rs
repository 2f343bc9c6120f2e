//! Links the program `isolane-ibverbs` as the shared library `libibverbs.so.1` with symbol versions.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed={root}/ibverbs.map");
    for argument in [
        "-shared".to_owned(),
        "-Wl,-soname,libibverbs.so.1".to_owned(),
        format!("-Wl,--version-script={root}/ibverbs.map"),
    ] {
        println!("cargo:rustc-link-arg-bin=isolane-ibverbs={argument}");
    }
}
