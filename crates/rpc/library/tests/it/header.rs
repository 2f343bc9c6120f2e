//! The C header and the functions behind it agree, name by name and argument by argument.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../../include/isolane_rpc.h");
const SOURCE: &str = include_str!("../../src/ffi.rs");

/// Return type and arguments (name, type), as Rust has them.
type Signature = (String, Vec<(String, String)>);

fn rust_type(c: &str) -> &'static str {
    match c {
        "void" => "()",
        "int32_t" => "i32",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "size_t" => "usize",
        "size_t *" => "*mut usize",
        "double *" => "*mut f64",
        "char *" => "*mut c_char",
        "const char *" => "*const c_char",
        "const uint8_t *" => "*const u8",
        "isolane_rpc *" => "*mut Handle",
        "isolane_rpc_decision *" => "*mut CDecision",
        other => panic!("a type that the table does not know: {other}"),
    }
}

/// `text` without comments, with single spaces.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("/*") {
        plain.push_str(&rest[..begin]);
        rest = &rest[begin..][rest[begin..].find("*/").unwrap() + 2..];
    }
    plain.push_str(rest);
    plain
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join(" ")
}

/// `const char *name` to its type and name.
fn declared(text: &str) -> (String, String) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let begin = text.rfind([' ', '*']).map_or(0, |at| at + 1);
    (text[..begin].trim().to_owned(), text[begin..].to_owned())
}

fn header() -> BTreeMap<String, Signature> {
    let text = plain(HEADER);
    let prototypes = text.split(';').filter(|part| part.contains('('));
    prototypes
        .map(|prototype| {
            let prototype = prototype.rsplit(['{', '}']).next().unwrap();
            let (front, back) = prototype.split_once('(').unwrap();
            let (result, name) = declared(front);
            let inner = back.trim_end().strip_suffix(')').unwrap();
            let arguments = inner
                .split(',')
                .filter(|argument| argument.trim() != "void");
            let arguments = arguments
                .map(|argument| {
                    let (kind, name) = declared(argument);
                    (name, rust_type(&kind).to_owned())
                })
                .collect();
            (name, (rust_type(&result).to_owned(), arguments))
        })
        .collect()
}

fn source() -> BTreeMap<String, Signature> {
    let text = SOURCE.split_whitespace().collect::<Vec<_>>().join(" ");
    let functions = text.split("#[unsafe(no_mangle)] pub ").skip(1);
    functions
        .map(|function| {
            let function = function.trim_start_matches("unsafe ");
            let function = function.strip_prefix("extern \"C\" fn ").unwrap();
            let (name, rest) = function.split_once('(').unwrap();
            let (inner, rest) = rest.split_once(')').unwrap();
            let front = rest.split_once('{').unwrap().0.trim();
            let result = front.strip_prefix("-> ").unwrap_or("()").to_owned();
            let arguments = inner.split(", ").filter(|argument| !argument.is_empty());
            let arguments = arguments
                .map(|argument| {
                    let (name, kind) = argument.trim_end_matches(',').split_once(": ").unwrap();
                    (name.trim().to_owned(), kind.to_owned())
                })
                .collect();
            (name.to_owned(), (result, arguments))
        })
        .collect()
}

#[test]
fn every_function_is_in_both_with_the_same_arguments() {
    let (header, mut source) = (header(), source());
    assert!(header.len() >= 14, "{header:#?}");
    // `*const c_char` is what C calls it.
    let last = "isolane_rpc_last_error";
    assert_eq!(source.remove(last), header.get(last).cloned());
    for (name, signature) in &source {
        assert_eq!(header.get(name), Some(signature), "{name}");
    }
    assert_eq!(header.len(), source.len() + 1);
}

#[test]
fn every_number_is_in_both() {
    use isolane_rpc::ffi::{ABI_VERSION, Code, LENGTH_MAX};
    let numbers: BTreeMap<&str, i64> = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define ISOLANE_RPC_")?.split_once(' '))
        .map(|(name, value)| (name, value.trim().parse().unwrap()))
        .collect();
    let ours = BTreeMap::from([
        ("ABI_VERSION", i64::from(ABI_VERSION)),
        ("LENGTH_MAX", LENGTH_MAX as i64),
        ("OK", Code::Ok as i64),
        ("NULL_POINTER", Code::NullPointer as i64),
        ("BAD_LENGTH", Code::BadLength as i64),
        ("BAD_TEXT", Code::BadText as i64),
        ("BAD_SETTINGS", Code::BadSettings as i64),
        ("BAD_CLASS", Code::BadClass as i64),
        ("BAD_TICKET", Code::BadTicket as i64),
        ("DEPARTED", Code::Departed as i64),
        ("BAD_HANDLE", Code::BadHandle as i64),
        ("INTERNAL", Code::Internal as i64),
    ]);
    assert_eq!(numbers, ours);
}
