//! The compiled programs, committed beside their sources so that building needs no BPF compiler.
//!
//! `make bpf` compiles them; a test compares the recorded hash of the sources and, where the same compiler is present,
//! the instructions.

pub(crate) static DQA: &[u8] = aya::include_bytes_aligned!("../bpf/dqa.bpf.o");
