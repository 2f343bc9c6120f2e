//! Goal: every size, offset and constant written by hand is the C compiler's. Method: a C program made from our tables
//! prints what the installed header says, and all of it must be equal.

use isolane_common_linux::skip::skip;
use isolane_rdma_verbs_sys::{constants, structures};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Fields that the C compiler prints as `name offset size`, structures as `name size align`, constants as `name value`.
fn ours() -> Vec<String> {
    let mut lines = Vec::new();
    for structure in structures() {
        let name = structure.name;
        lines.push(format!("{name} {} {}", structure.size, structure.align));
        for field in structure.fields {
            let field_name = c_name(field.name);
            lines.push(format!(
                "{name}.{field_name} {} {}",
                field.offset, field.size
            ));
        }
    }
    for constant in constants() {
        lines.push(format!("{} {}", constant.name, constant.value));
    }
    lines
}

fn program() -> String {
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for structure in structures() {
        let name = structure.name;
        let _ = writeln!(
            text,
            "printf(\"{name} %zu %zu\\n\", sizeof(struct {name}), _Alignof(struct {name}));"
        );
        for field in structure.fields {
            let field = c_name(field.name);
            let size = match unnamed_union_size(name, field) {
                Some(size) => size,
                None => format!("sizeof(((struct {name} *)0)->{field})"),
            };
            let _ = writeln!(
                text,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), {size});"
            );
        }
    }
    for constant in constants() {
        let name = constant.name;
        let _ = writeln!(text, "printf(\"{name} %lld\\n\", (long long){name});");
    }
    text.push_str("return 0; }\n");
    text
}

/// Rust writes a field whose name is a keyword with a prefix.
fn c_name(field: &str) -> &str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// `bind_mw` represents the unnamed union with `tso`; the union is as large as its larger member.
fn unnamed_union_size(structure: &str, field: &str) -> Option<String> {
    ((structure, field) == ("ibv_send_wr", "bind_mw"))
        .then(|| "sizeof(((struct ibv_send_wr *)0)->bind_mw)".to_owned())
}

#[test]
fn layouts_and_constants_are_those_of_the_installed_header() {
    if !Path::new(HEADER).exists() {
        return skip(format_args!(
            "{HEADER} is not there (package libibverbs-dev)"
        ));
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let source = folder.path().join("layout.c");
    let binary = folder.path().join("layout");
    std::fs::write(&source, program()).expect("a writable temporary directory");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => {
            return skip(format_args!("no C compiler `{compiler}`: {error}"));
        }
    };
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().expect("the program runs");
    let theirs = String::from_utf8_lossy(&printed.stdout).into_owned();
    let theirs: Vec<&str> = theirs.lines().collect();
    let ours = ours();
    let wrong: Vec<String> = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| ours != *theirs)
        .map(|(ours, theirs)| format!("ours {ours}, header {theirs}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 500, "the tables are not empty: {}", ours.len());
    println!("{} figures agree with {HEADER}", ours.len());
}
