//! The kernel's data about a TCP connection.
//!
//! Source: `struct tcp_info` of Linux's linux/tcp.h. Fields are only added at its end, so an older kernel fills less.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// Offsets of fields in the kernel's structure, bytes.
const UNACKED: usize = 24;
const RTT: usize = 68;
const BYTES_ACKED: usize = 120;
const NOTSENT: usize = 144;
/// Bytes of the structure that are read.
const LENGTH: usize = 160;

/// The used fields; `None` for fields that an older kernel does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Segments in flight.
    pub unacked: u32,
    /// Smoothed round trip, microseconds.
    pub rtt_us: u32,
    /// Bytes that the peer has acknowledged, including one for the SYN (Linux 4.1).
    pub bytes_acked: Option<u64>,
    /// Bytes that were written and not sent yet (Linux 4.6).
    pub notsent_bytes: Option<u32>,
}

/// Reads the data; `None` for a socket that is not TCP, or a system without TCP_INFO.
pub(crate) fn tcp_info(socket: impl AsFd) -> Option<TcpInfo> {
    let mut answer = [0u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    // SAFETY: the descriptor is open as long as the borrow; the kernel writes at most `length` bytes to `answer`.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            answer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (code == 0).then(|| read(&answer[..(length as usize).min(LENGTH)]))?
}

fn read(answer: &[u8]) -> Option<TcpInfo> {
    Some(TcpInfo {
        unacked: u32::from_ne_bytes(field(answer, UNACKED)?),
        rtt_us: u32::from_ne_bytes(field(answer, RTT)?),
        bytes_acked: field(answer, BYTES_ACKED).map(u64::from_ne_bytes),
        notsent_bytes: field(answer, NOTSENT).map(u32::from_ne_bytes),
    })
}

fn field<const N: usize>(answer: &[u8], at: usize) -> Option<[u8; N]> {
    answer.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_short_answer_has_what_it_has() {
        assert_eq!(read(&[0; 100]).map(|info| info.bytes_acked), Some(None));
        assert_eq!(read(&[0; 20]), None);
        let mut answer = [0; LENGTH];
        answer[BYTES_ACKED] = 7;
        assert_eq!(read(&answer).and_then(|info| info.bytes_acked), Some(7));
    }

    /// The count grows by the written bytes once the peer has read them.
    #[test]
    fn the_kernel_counts_what_arrived() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let count = |client: &TcpStream| tcp_info(client).and_then(|info| info.bytes_acked);
        let Some(before) = count(&client) else {
            isolane_common_linux::skip::does_not_apply(
                "this kernel's TCP_INFO has no count of acknowledged bytes",
            );
            return;
        };
        client.write_all(&[1; 1000]).unwrap();
        let mut buffer = [0; 1000];
        server.read_exact(&mut buffer).unwrap();
        // The answer carries the acknowledgement.
        server.write_all(b"x").unwrap();
        client.read_exact(&mut buffer[..1]).unwrap();
        assert_eq!(count(&client), Some(before + 1000));
        assert_eq!(tcp_info(std::io::stdin()), None, "no TCP connection");
    }
}
