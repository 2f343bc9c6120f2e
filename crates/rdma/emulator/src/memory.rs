//! Memory of other processes, piece by piece.
//!
//! SAFETY of the whole module: `process_vm_readv` and `process_vm_writev` touch, in this process, only the buffers given
//! here; addresses of the other process are the kernel's to check.

use std::ffi::c_void;

/// Bytes copied at once between two processes.
const CHUNK: usize = 256 << 10;

/// A piece of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The process.
    pub pid: i32,
    /// Its first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

/// Memory that could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Source,
    Target,
}

/// The two vectors of a call.
fn vectors(buffer: *mut u8, span: Span, length: usize) -> (libc::iovec, libc::iovec) {
    let ours = libc::iovec {
        iov_base: buffer.cast::<c_void>(),
        iov_len: length,
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(span.addr as usize),
        iov_len: length,
    };
    (ours, theirs)
}

/// Fills `buffer` from the beginning of `span`; whether all of it could be read.
pub(crate) fn read(span: Span, buffer: &mut [u8]) -> bool {
    let length = buffer.len();
    let (ours, theirs) = vectors(buffer.as_mut_ptr(), span, length);
    // SAFETY: see the module; `buffer` is writable for its length.
    let done =
        unsafe { libc::process_vm_readv(span.pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    done == length as isize
}

/// Writes `bytes` to the beginning of `span`; whether all of it could be written.
pub(crate) fn write(span: Span, bytes: &[u8]) -> bool {
    let length = bytes.len();
    let (ours, theirs) = vectors(bytes.as_ptr().cast_mut(), span, length);
    // SAFETY: see the module; `bytes` is only read.
    let done =
        unsafe { libc::process_vm_writev(span.pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    done == length as isize
}

/// The part of `span` from `offset` on, at most `length` bytes.
const fn part(span: Span, offset: u64, length: u64) -> Span {
    Span {
        pid: span.pid,
        addr: span.addr.wrapping_add(offset),
        length,
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// It is here.
    Bytes(Vec<u8>),
    /// The payload is in memory of a process.
    Spans(Vec<Span>),
}

impl Payload {
    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Spans(spans) => spans.iter().map(|span| span.length).sum(),
        }
    }

    /// The same payload, read now. Fails with [`Fault::Source`] when it cannot be read.
    pub(crate) fn read(self) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Spans(spans) => {
                let mut all = Vec::new();
                for span in spans {
                    let from = all.len();
                    all.resize(from + span.length as usize, 0);
                    if span.length > 0 && !read(span, &mut all[from..]) {
                        return Err(Fault::Source);
                    }
                }
                Ok(all)
            }
        }
    }

    /// Copies all of it to the beginning of `to`, which is long enough. The error says which side failed; what came
    /// before is copied.
    pub(crate) fn copy(&self, to: &[Span]) -> Result<(), Fault> {
        match self {
            Self::Bytes(bytes) => spread(bytes, to, 0),
            Self::Spans(spans) => {
                let mut buffer = Vec::new();
                let mut done = 0;
                for span in spans {
                    let mut offset = 0;
                    while offset < span.length {
                        let length = (span.length - offset).min(CHUNK as u64);
                        buffer.resize(length as usize, 0);
                        if !read(part(*span, offset, length), &mut buffer) {
                            return Err(Fault::Source);
                        }
                        spread(&buffer, to, done)?;
                        (offset, done) = (offset + length, done + length);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Writes `bytes` from byte `skip` of `to` on.
fn spread(bytes: &[u8], to: &[Span], mut skip: u64) -> Result<(), Fault> {
    let mut rest = bytes;
    for span in to {
        if rest.is_empty() {
            break;
        }
        if skip >= span.length {
            skip -= span.length;
            continue;
        }
        let length = (span.length - skip).min(rest.len() as u64);
        let (now, later) = rest.split_at(length as usize);
        if !write(part(*span, skip, length), now) {
            return Err(Fault::Target);
        }
        (rest, skip) = (later, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &[u8]) -> Span {
        Span {
            pid: std::process::id() as i32,
            addr: bytes.as_ptr().expose_provenance() as u64,
            length: bytes.len() as u64,
        }
    }

    #[test]
    fn payload_is_spread_over_the_pieces_of_the_target() {
        let from: Vec<u8> = (0..200).collect();
        let target = [[0_u8; 50]; 5];
        let to: Vec<Span> = target.iter().map(|piece| span(piece)).collect();
        let payload = Payload::Spans(vec![span(&from[..7]), span(&from[7..])]);
        assert_eq!((payload.length(), payload.copy(&to)), (200, Ok(())));
        let target = std::hint::black_box(target);
        assert_eq!(target.as_flattened()[..200], from);
        assert_eq!(target[4], [0; 50]);
        assert_eq!(payload.read(), Ok(from));
    }

    #[test]
    fn memory_that_is_not_there_is_a_fault_of_its_side() {
        let bytes = [1_u8; 8];
        let nowhere = Span {
            addr: 8,
            ..span(&bytes)
        };
        let there = [span(&bytes)];
        assert_eq!(
            Payload::Spans(vec![nowhere]).copy(&there),
            Err(Fault::Source)
        );
        assert_eq!(
            Payload::Bytes(vec![2; 8]).copy(&[nowhere]),
            Err(Fault::Target)
        );
    }
}
