//! The deterministic driver: changes seeds at random and runs a target on each result.
//!
//! Method: an input is one of the seeds, or a shuffle of two of them, with one to eight changes: bits, bytes, numbers at
//! their limits, parts left out, repeated, inserted from a list of words that parsers treat in a special way, or taken
//! from another seed. The same seed gives the same inputs on every machine. Limits: no feedback, so it reaches less code
//! than libFuzzer in the same time.

use crate::Target;
use isolane_common_quantities::rng::Stream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest input, bytes.
const INPUT_MAX: usize = 8 << 10;
/// Longest part that is left out, repeated or moved, bytes.
const PART_MAX: u64 = 64;

/// Words that parsers treat in a special way.
const WORDS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"inf",
    b"0.1",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"\r\n\r\n",
    b"\n",
    b"\0",
    b"../",
    b"=",
    b":",
    b",",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\xe2\x80\xa8",
];

/// An input on which a target panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The target.
    pub target: &'static str,
    /// Number of the input, from 0.
    pub number: u64,
    /// The bytes.
    pub input: Vec<u8>,
}

/// Runs a target on all its seeds and on `count` changed inputs. Returns the number of inputs. The error is the first
/// input on which the target panicked.
pub fn fuzz(target: &Target, seed: u64, count: u64) -> Result<u64, Crash> {
    let seeds = target.inputs();
    let mut stream = Stream::named(seed, target.name);
    let changed = (0..count).map(|_| input(&seeds, &mut stream));
    let mut ran = 0;
    for input in seeds.iter().cloned().chain(changed) {
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return Err(Crash {
                target: target.name,
                number: ran,
                input,
            });
        }
        ran += 1;
    }
    Ok(ran)
}

fn input(seeds: &[Vec<u8>], stream: &mut Stream) -> Vec<u8> {
    let pick = |stream: &mut Stream| match seeds.is_empty() {
        true => Vec::new(),
        false => seeds[stream.below(seeds.len() as u64) as usize].clone(),
    };
    let mut bytes = pick(stream);
    let changes = 1 + stream.below(8);
    for _ in 0..changes {
        let other = match stream.chance(1, 8) {
            true => pick(stream),
            false => Vec::new(),
        };
        change(&mut bytes, &other, stream);
    }
    bytes.truncate(INPUT_MAX);
    bytes
}

/// One change; `other` is a second seed to take a part from, or empty.
fn change(bytes: &mut Vec<u8>, other: &[u8], stream: &mut Stream) {
    let (from, to) = part(bytes.len(), stream);
    if !other.is_empty() {
        let (first, last) = part(other.len(), stream);
        bytes.splice(from..to, other[first..last].iter().copied());
        return;
    }
    match stream.below(7) {
        0 if from < to => bytes[from] ^= 1 << stream.below(8),
        1 if from < to => bytes[from] = stream.below(256) as u8,
        2 => drop(bytes.drain(from..to)),
        3 => {
            let again = bytes[from..to].to_vec();
            bytes.splice(from..from, again);
        }
        4 => {
            let word = WORDS[stream.below(WORDS.len() as u64) as usize];
            bytes.splice(from..from, word.iter().copied());
        }
        5 => number(&mut bytes[from..to], stream),
        _ => {
            let noise: Vec<u8> = (0..1 + stream.below(9))
                .map(|_| stream.below(256) as u8)
                .collect();
            bytes.splice(from..to.min(from + noise.len()), noise);
        }
    }
}

/// A random part of `length` bytes: often short.
fn part(length: usize, stream: &mut Stream) -> (usize, usize) {
    let from = stream.below(length as u64 + 1) as usize;
    let most = 1 + stream.below(PART_MAX);
    let to = (from as u64 + stream.below(most + 1)).min(length as u64) as usize;
    (from, to)
}

/// Writes a number at a limit of its type over the first bytes.
fn number(bytes: &mut [u8], stream: &mut Stream) {
    let value = match stream.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << stream.below(64),
        3 => (1 << stream.below(64)) - 1,
        4 => i64::MIN.cast_unsigned(),
        _ => stream.below(1 << 16),
    };
    let width = [1, 2, 4, 8][stream.below(4) as usize];
    for (byte, new) in bytes.iter_mut().zip(&value.to_le_bytes()[..width]) {
        *byte = *new;
    }
}
