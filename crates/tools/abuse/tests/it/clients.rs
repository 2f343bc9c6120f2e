//! Honest clients of services whose protocol is more than one line.

use crate::{PATIENCE, over_tcp};
use isolane_common_linux::key::Key;
use isolane_rdma_emulated_verbs::wire::{PROBE, Reader, VERSION as VERSION_OF_VERBS, Writer, op};
use isolane_rdma_session::message::{Class, MESSAGE_MAX, ToDaemon, ToShim};
use isolane_rdma_traffic::worker::{Job, ToWorker, VERSION, Warmup, write_line};
use isolaned::peers::handshake::{Endpoint, HandshakeError, call};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// The first message of a process to the daemon.
pub(crate) fn hello() -> Vec<u8> {
    let hello = ToDaemon::Hello {
        class: Class::Bandwidth,
        weight: 1,
        tenant: "honest".to_owned(),
        program: "test".to_owned(),
    };
    hello.encode()
}

/// The answer to one message over a new connection.
fn over_messages(path: &Path, message: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(PATIENCE)).unwrap();
    }
    let text = |error: Errno| error.to_string();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).map_err(text)?;
    send(&socket, message, SendFlags::NOSIGNAL).map_err(text)?;
    let mut buffer = vec![0; most];
    let (_, length) = recv(&socket, &mut buffer, RecvFlags::empty()).map_err(text)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Begins a session with the daemon and ends it.
pub(crate) fn session_begins(path: &Path) -> Result<(), String> {
    let answer = over_messages(path, &hello(), MESSAGE_MAX)?;
    match ToShim::decode(&answer) {
        Ok(ToShim::Welcome { .. }) => Ok(()),
        other => Err(format!("{other:?} to a greeting")),
    }
}

static PROBE_WORD: u64 = PROBE;

/// The first message of a program to the broker of emulated devices.
pub(crate) fn open() -> Vec<u8> {
    let probe = (&raw const PROBE_WORD).expose_provenance() as u64;
    Writer::of(&[op::OPEN, VERSION_OF_VERBS, 0, probe])
        .bytes()
        .to_vec()
}

/// Opens an emulated device. The broker reads this process's memory to check it, which the kernel may forbid between a
/// child and its parent: that refusal is an answer.
pub(crate) fn device_opens(path: &Path) -> Result<(), String> {
    let answer = over_messages(path, &open(), 1 << 16)?;
    let errno = Reader::new(&answer).word().ok_or("an empty answer")?;
    match errno == 0 || errno == u64::from(Errno::PERM.raw_os_error().unsigned_abs()) {
        true => Ok(()),
        false => Err(format!("error {errno}")),
    }
}

/// A session with the agent as a controller, whose program returns what it reads.
pub(crate) fn agent_echoes(address: SocketAddr, identity: &Path) -> Result<(), String> {
    let pem = |name: &str| identity.join(name);
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(pem("authority.pem")).unwrap();
    roots.add(authority).unwrap();
    let chain = CertificateDer::pem_file_iter(pem("certificate.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(pem("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let name = ServerName::from(address.ip());
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let tcp = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| error.to_string())?;
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(tls, tcp);
    let mut read = [0; 6];
    let exchange = stream
        .write_all(b"hello\n")
        .and_then(|()| stream.read_exact(&mut read));
    exchange.map_err(|error| error.to_string())?;
    match &read {
        b"hello\n" => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// A job for the server of `isolane rdma traffic` on a device that no machine has.
pub(crate) fn job() -> Vec<u8> {
    let job = Job {
        version: VERSION,
        tenant: "t".to_owned(),
        device: "no-such-device".to_owned(),
        port: 1,
        gid_index: None,
        warmup: Warmup::Fixed { ns: 0 },
        duration_ns: 1,
        sample_interval_ns: 1,
        seed: 1,
        check: false,
        events: false,
        ends: Vec::new(),
    };
    let mut line = Vec::new();
    write_line(&mut line, &ToWorker::Job(Box::new(job))).unwrap();
    line
}

/// The server's first answer to that job.
pub(crate) fn shown(address: SocketAddr) -> Result<String, String> {
    over_tcp(address, &job())
}

/// The first message of a daemon that calls another one: length, magic word, version, nonce.
pub(crate) fn peer_greeting() -> Vec<u8> {
    let body = [&b"ISLP"[..], &1_u32.to_le_bytes(), &[7; 32]].concat();
    [&(body.len() as u16).to_le_bytes()[..], &body].concat()
}

/// A call of a daemon with the key. Its queue pair reaches no device, so the answer is an authenticated rejection.
pub(crate) fn peer_is_answered(address: SocketAddr, key: &Key) -> Result<(), String> {
    let ours = Endpoint {
        daemon: [1; 16],
        device: "here".to_owned(),
        wanted: "there".to_owned(),
        queue_pair: 1,
        packet_sequence: 1,
        mtu: 1_024,
        ..Endpoint::default()
    };
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match call(&mut stream, key, &ours) {
        Err(HandshakeError::Refused { reason }) if reason.contains("no device there") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}
