//! Connections whose packets carry a class's mark, with a count of written bytes.
//!
//! Method: the mark is set before the socket connects, so the handshake carries it too. Marks are DSCP values; the
//! kernel sets the two congestion bits below them. Limits: TCP only; tonic adds TLS above.

use crate::meter::{Kernel, Wire};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::{Channel, Endpoint};

/// The newest connection of one destination and class, shared by the connector and the measurement.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<Mutex<Newest>>);

/// Data of the newest connection.
#[derive(Debug, Default)]
struct Newest {
    wire: Option<Arc<Wire<Kernel>>>,
    /// The backend's address; kept after the connection ends, until there is another one.
    peer: Option<Arc<[u8]>>,
    /// Number of connections so far.
    made: u64,
}

impl Connection {
    /// The connection, if it exists and the kernel reports acknowledgements.
    pub fn wire(&self) -> Option<Arc<Wire<Kernel>>> {
        self.newest().wire.clone()
    }

    /// Address and port of the newest connection's backend.
    pub fn peer(&self) -> Option<Arc<[u8]>> {
        self.newest().peer.clone()
    }

    /// Number of connections so far.
    pub(super) fn made(&self) -> u64 {
        self.newest().made
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects with a mark.
#[derive(Clone, Debug)]
pub struct MarkedConnector {
    dscp: u8,
    connection: Connection,
}

impl MarkedConnector {
    /// A connector for packets with this mark, 0 to 63.
    pub fn new(dscp: u8) -> Self {
        assert!(dscp < 64, "a DSCP has 6 bits");
        Self {
            dscp,
            connection: Connection::default(),
        }
    }

    /// The connection that it makes.
    pub fn connection(&self) -> Connection {
        self.connection.clone()
    }
}

/// A channel to `endpoint` whose packets carry `dscp`, connected when first used, and its connection.
pub fn connect(endpoint: &Endpoint, dscp: u8) -> (Channel, Connection) {
    let connector = MarkedConnector::new(dscp);
    let connection = connector.connection();
    (endpoint.connect_with_connector_lazy(connector), connection)
}

impl tower::Service<Uri> for MarkedConnector {
    type Response = Watched;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Watched>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (dscp, connection) = (self.dscp, self.connection.clone());
        Box::pin(async move {
            let stream = open(&uri, dscp).await?;
            let wire = Kernel::new(&stream)
                .ok()
                .map(|kernel| Arc::new(Wire::new(kernel)));
            let peer = stream.peer_addr().ok();
            let mut newest = connection.newest();
            newest.wire = wire.clone();
            newest.peer = peer.map(|peer| peer.to_string().into_bytes().into());
            newest.made += 1;
            drop(newest);
            Ok(Watched {
                stream: TokioIo::new(stream),
                wire,
                connection,
            })
        })
    }
}

async fn open(uri: &Uri, dscp: u8) -> io::Result<TcpStream> {
    let host = uri
        .host()
        .ok_or_else(|| io::Error::other("the address names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let default = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = uri.port_u16().unwrap_or(default);
    let mut failed = io::Error::other(format!("{host} has no address"));
    for address in tokio::net::lookup_host((host, port)).await? {
        match open_address(address, dscp).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn open_address(address: SocketAddr, dscp: u8) -> io::Result<TcpStream> {
    let mark = dscp << 2;
    let socket = match address {
        SocketAddr::V4(_) => {
            let socket = TcpSocket::new_v4()?;
            rustix::net::sockopt::set_ip_tos(&socket, mark)?;
            socket
        }
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            rustix::net::sockopt::set_ipv6_tclass(&socket, u32::from(mark))?;
            socket
        }
    };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// A connection that counts written bytes.
#[derive(Debug)]
pub struct Watched {
    stream: TokioIo<TcpStream>,
    wire: Option<Arc<Wire<Kernel>>>,
    connection: Connection,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(wire) = &self.wire {
            // The copied descriptor must not keep the connection open.
            let _ = rustix::net::shutdown(wire.kernel().socket(), rustix::net::Shutdown::Both);
            (self.connection.newest().wire).take_if(|newest| Arc::ptr_eq(newest, wire));
        }
    }
}

impl Watched {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Some(wire)) = (&written, &self.wire) {
            wire.on_written(*bytes);
        }
        written
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let (Poll::Ready(Ok(())), Some(wire)) = (&flushed, &self.wire) {
            wire.on_flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
