//! Admission for clients of the gRPC library tonic, and a clock for its servers.
//!
//! Problem: a call must be decided on before its first byte and sent on a connection with the mark of its class. It
//! must be measured at the transport, and both ends must learn of a downgrade. Method: [`Admitted`] is a tower service
//! over one channel per class ([`connect`] makes channels with marked sockets). The application names the class with
//! [`Class`] in the request's extensions. The request's metadata contains the requested and the actual class; so does
//! the response's metadata ([`Outcome`] reads it; it is also in the response's extensions). Admission never delays or
//! rejects a call; a call waits only for its channel. Units: sizes are the bytes of the encoded body, as far as it is
//! available when the call is made (a unary request always is; a stream gives its size with [`Size`]). Limits: requests
//! only. A response uses the connection of its request, so it has the request's class if the server's kernel reflects
//! marks (`net.ipv4.tcp_reflect_tos`). A stream whose body was not available at once is decided on but not learned
//! from, because its time is the application's.

mod body;
mod connector;
mod raw;
mod received;
#[cfg(feature = "tonic-server")]
mod server;
mod service;

pub use body::READY_MAX;
pub use connector::{Connection, MarkedConnector, connect};
pub use raw::Raw;
pub use received::Received;
#[cfg(feature = "tonic-server")]
pub use server::{ServerTime, ServerTimeLayer};
pub use service::{Admitted, AdmittedLayer, Channels};

use http::{HeaderMap, HeaderValue};

/// Metadata: name of the requested class.
pub const REQUESTED_CLASS: &str = "isolane-requested-class";
/// Metadata: name of the class that the call runs in.
pub const CLASS: &str = "isolane-class";
/// Metadata, only for a downgraded call: number of the requested class. Clients in all languages use it.
pub const DOWNGRADED: &str = "isolane-downgraded";

/// The requested class, in a request's extensions. Without it the lowest class is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u8);

/// The requested class by its name; takes precedence over [`Class`]. An unknown name means the lowest class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName(pub std::sync::Arc<str>);

/// The size of a request whose body is not available at once, bytes; in its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// The admission of a call, as in its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the requested class.
    pub requested: String,
    /// Name of the class it ran in.
    pub class: String,
    /// Whether that is lower.
    pub downgraded: bool,
    /// Whether it would be lower outside shadow mode; only in a response's extensions.
    pub would_downgrade: bool,
}

impl Outcome {
    /// Reads the metadata of a response (or, in a server, of a request); `None` without admission.
    pub fn of(metadata: &HeaderMap) -> Option<Self> {
        let text = |name| metadata.get(name)?.to_str().ok().map(str::to_owned);
        Some(Self {
            requested: text(REQUESTED_CLASS)?,
            class: text(CLASS)?,
            downgraded: metadata.contains_key(DOWNGRADED),
            would_downgrade: false,
        })
    }

    /// Writes the metadata; `asked` is the number of the requested class.
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
