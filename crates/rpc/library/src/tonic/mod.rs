//! Admission for clients (and a clock for servers) of the gRPC library tonic.
//!
//! Problem: a call must be decided on before its first byte, sent on a connection whose packets carry the mark of the
//! class it runs in, measured at the transport, and its downgrade told to both ends.
//! Method: [`Admitted`] is a tower service over one channel for each class ([`connect`] makes channels with marked
//! sockets). The application names the class with [`Class`] in the request's extensions. The request's metadata says
//! what was asked and given; the response's metadata says the same to the caller ([`Outcome`] reads it; it
//! also lies in the response's extensions). A call is never
//! held back or refused by us: it waits for nothing but its channel, as without us.
//! Units: sizes are the bytes of the encoded body, as far as it is ready when the call is made (a unary request always
//! is, a stream gives its size with [`Size`]).
//! Limits: requests only: a response runs on the connection of its request, so in its class if the server's kernel
//! reflects marks (`net.ipv4.tcp_reflect_tos`). A stream whose body was not ready at once is decided on and not learned
//! from, since its time is the application's.

mod body;
mod connector;
mod received;
#[cfg(feature = "tonic-server")]
mod server;
mod service;

pub use body::READY_MAX;
pub use connector::{Connection, MarkedConnector, connect};
pub use received::Received;
#[cfg(feature = "tonic-server")]
pub use server::{ServerTime, ServerTimeLayer};
pub use service::{Admitted, AdmittedLayer, Channels};

use http::{HeaderMap, HeaderValue};

/// Metadata: the name of the class that the application asked for.
pub const REQUESTED_CLASS: &str = "isolane-requested-class";
/// Metadata: the name of the class that the call runs in.
pub const CLASS: &str = "isolane-class";
/// Metadata, only where that is lower: the number of the class that was asked for. Clients in all languages say so.
pub const DOWNGRADED: &str = "isolane-downgraded";

/// The class that a request asks for; goes into its extensions. Without it the lowest class is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u8);

/// The same by its name; goes before [`Class`]. A name that the settings do not have means the lowest class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName(pub std::sync::Arc<str>);

/// The size of a request whose body is not ready at once, bytes; goes into its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// What became of a call, as metadata says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The class that was asked for.
    pub requested: String,
    /// The class it ran in.
    pub class: String,
    /// Whether that is lower.
    pub downgraded: bool,
    /// Whether it would be, were the mode not shadow: known to the caller only, in a response's extensions.
    pub would_downgrade: bool,
}

impl Outcome {
    /// What the metadata of a response (or, in a server, of a request) says; `None` without admission.
    pub fn of(metadata: &HeaderMap) -> Option<Self> {
        let text = |name| metadata.get(name)?.to_str().ok().map(str::to_owned);
        Some(Self {
            requested: text(REQUESTED_CLASS)?,
            class: text(CLASS)?,
            downgraded: metadata.contains_key(DOWNGRADED),
            would_downgrade: false,
        })
    }

    /// Says so in `metadata`; `asked` is the number of the class that was asked for.
    fn write(&self, asked: usize, metadata: &mut HeaderMap) {
        let value = |text: &str| {
            HeaderValue::from_str(text).expect("names of classes are letters, digits and -_.")
        };
        metadata.insert(REQUESTED_CLASS, value(&self.requested));
        metadata.insert(CLASS, value(&self.class));
        match self.downgraded {
            true => metadata.insert(DOWNGRADED, HeaderValue::from(asked)),
            false => metadata.remove(DOWNGRADED),
        };
    }
}
