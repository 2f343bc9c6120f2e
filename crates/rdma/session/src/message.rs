//! Messages on the socket between shim and daemon.
//!
//! Problem: a process identifies itself and names the devices that it opens; the daemon answers with file descriptors
//! and numbers of meters. Both ends may be hostile or of another version. Method: one packet per message: kind (u16),
//! length of the whole (u16), version (u32), then fixed fields in little endian order and texts as a length byte and
//! UTF-8. Decoding checks everything, allocates only texts of at most [`TEXT_MAX`] bytes, and never panics.
//! [`ToShim::Welcome`] carries file descriptors as ancillary data: the region's memory file, then the event counter by
//! which the shim wakes the daemon. Order: `Hello` first, answered by `Welcome` or `Refused`; then any number of
//! `Open` and `OpenReads`, each answered by `Opened`. The session ends when the socket is closed. The enforcer sends `Enforce` first,
//! answered by `Heeded` or `Refused`; then any number of `Limit` and `Belongs`, which have no answer.

use crate::VERSION;

/// Longest text in a message, bytes; device and tenant names have at most 64.
pub const TEXT_MAX: usize = 192;
/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 512;
/// Largest weight, as in the pacing policies.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// How long a shim waits for an answer before the application goes on unpaced, in milliseconds.
pub const ANSWER_TIMEOUT_MS: u64 = 500;

const HEADER: usize = 8;

/// What a process needs of the RDMA NIC (justitia 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Class {
    /// The daemon measures the class; until then the process counts as bandwidth.
    Auto = 0,
    /// Few small messages: never paced, data path untouched.
    Latency = 1,
    /// Many small messages: paced in operations.
    Throughput = 2,
    /// Large messages: split and paced in bytes.
    Bandwidth = 3,
}

impl Class {
    /// The class with a number of the protocol.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Auto, Self::Latency, Self::Throughput, Self::Bandwidth]
            .into_iter()
            .find(|class| *class as u32 == number)
    }

    /// The class with a name of the environment or the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Auto, Self::Latency, Self::Throughput, Self::Bandwidth]
            .into_iter()
            .find(|class| class.name() == name)
    }

    /// The name in the environment and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Bandwidth => "bandwidth",
        }
    }
}

/// The address of a port in a network: a GID, or the LID of a connection without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortAddress(pub [u8; 16]);

impl PortAddress {
    /// A port without a GID. No port has a GID of this form.
    pub fn of_lid(lid: u16) -> Self {
        let mut bytes = [0; 16];
        bytes[12..14].copy_from_slice(&lid.to_be_bytes());
        Self(bytes)
    }
}

/// Messages of a shim or of the enforcer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDaemon {
    /// Requests a session. The kernel supplies process id, user and cgroup.
    Hello {
        /// The class that the process claims.
        class: Class,
        /// The weight that the process claims, from 1 to [`WEIGHT_MAX`].
        weight: u32,
        /// The tenant that the process claims; empty for none.
        tenant: String,
        /// Name of the program, for people.
        program: String,
    },
    /// Requests the meters of a device that the process opened.
    Open {
        /// Device name, such as `mlx5_0`.
        device: String,
    },
    /// Requests the meter of READs that an opened device does at one port of another device.
    OpenReads {
        /// Name of the process's device.
        device: String,
        /// The port that holds the data.
        source: PortAddress,
    },
    /// The first message of the enforcer, instead of [`Self::Hello`]. Only a process of the host that runs as the
    /// superuser or the daemon's own user may send it. Its limits end with the connection.
    Enforce,
    /// From the enforcer: the rate at which all processes of a tenant together may send by a device; the same for
    /// READs.
    Limit {
        /// The tenant's number at the enforcer, below [`LIMITS_MAX`].
        tenant: u32,
        /// Payload bytes per second; [`NO_LIMIT`] for no limit.
        bytes_per_s: u64,
    },
    /// From the enforcer: the tenant of a process.
    Belongs {
        /// Process id.
        process: u32,
        /// The tenant's number; [`NO_TENANT`] for no tenant.
        tenant: u32,
    },
}

/// Largest number of tenants with a limit.
pub const LIMITS_MAX: u32 = 4_096;
/// [`ToDaemon::Limit`] without a limit.
pub const NO_LIMIT: u64 = u64::MAX;
/// [`ToDaemon::Belongs`] of a process that has no tenant or has ended.
pub const NO_TENANT: u32 = u32::MAX;

/// Messages of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToShim {
    /// The session begins; two file descriptors come with the message.
    Welcome {
        /// Session number, unique while the daemon runs.
        session: u64,
        /// Size of the region, bytes.
        region_bytes: u64,
        /// The class after the operator's rules.
        class: Class,
    },
    /// The session is rejected; the application runs unpaced.
    Refused {
        /// Reason, one line for people.
        reason: String,
    },
    /// Answer to [`ToDaemon::Open`] and [`ToDaemon::OpenReads`].
    Opened {
        /// Number of the meter for outgoing messages; [`NO_METER`] if the daemon does not serve the device.
        outgoing: u16,
        /// Number of the meter for READs; for `OpenReads` [`NO_METER`] if the session has
        /// [`crate::region::SOURCES`] already.
        remote_read: u16,
    },
    /// A class or a release in the region changed; the shim should read it soon.
    Look,
    /// Answer to [`ToDaemon::Enforce`]: limits are accepted.
    Heeded,
}

/// The device is not served and must not be paced.
pub const NO_METER: u16 = u16::MAX;

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum MessageError {
    #[error(
        "a message of {bytes} bytes is cut short or too long; install the same release of shim and daemon"
    )]
    Length { bytes: usize },
    #[error(
        "the peer has version {theirs} of the protocol, this program {VERSION}; install the same release of shim and daemon"
    )]
    Version { theirs: u32 },
    #[error("message kind {kind} is not known; install the same release of shim and daemon")]
    Kind { kind: u16 },
    #[error("{field} of a message is {value}, which is out of range")]
    Field { field: &'static str, value: u64 },
    #[error("{field} of a message is not plain text")]
    Text { field: &'static str },
}

const HELLO: u16 = 1;
const OPEN: u16 = 2;
const ENFORCE: u16 = 3;
const LIMIT: u16 = 4;
const BELONGS: u16 = 5;
const OPEN_READS: u16 = 6;
const WELCOME: u16 = 101;
const REFUSED: u16 = 102;
const OPENED: u16 = 103;
const LOOK: u16 = 104;
const HEEDED: u16 = 105;

impl ToDaemon {
    /// Encodes the packet. Texts that are too long are cut at a character.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello {
                class,
                weight,
                tenant,
                program,
            } => Writer::new(HELLO)
                .u32(*class as u32)
                .u32(*weight)
                .text(tenant)
                .text(program)
                .end(),
            Self::Open { device } => Writer::new(OPEN).text(device).end(),
            Self::OpenReads { device, source } => {
                Writer::new(OPEN_READS).text(device).bytes(source.0).end()
            }
            Self::Enforce => Writer::new(ENFORCE).end(),
            Self::Limit {
                tenant,
                bytes_per_s,
            } => Writer::new(LIMIT).u32(*tenant).u64(*bytes_per_s).end(),
            Self::Belongs { process, tenant } => {
                Writer::new(BELONGS).u32(*process).u32(*tenant).end()
            }
        }
    }

    /// Decodes arbitrary bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (kind, mut reader) = Reader::open(bytes)?;
        let message = match kind {
            HELLO => Self::Hello {
                class: reader.class()?,
                weight: reader.weight()?,
                tenant: reader.text("tenant")?,
                program: reader.text("program")?,
            },
            OPEN => Self::Open {
                device: reader.text("device")?,
            },
            OPEN_READS => Self::OpenReads {
                device: reader.text("device")?,
                source: PortAddress(reader.take()?),
            },
            ENFORCE => Self::Enforce,
            LIMIT => Self::Limit {
                tenant: reader.below("tenant", LIMITS_MAX)?,
                bytes_per_s: reader.u64()?,
            },
            BELONGS => Self::Belongs {
                process: reader.u32()?,
                tenant: match reader.u32()? {
                    NO_TENANT => NO_TENANT,
                    number => in_range("tenant", number, LIMITS_MAX)?,
                },
            },
            kind => return Err(MessageError::Kind { kind }),
        };
        reader.end(message)
    }
}

impl ToShim {
    /// Encodes the packet. Texts that are too long are cut at a character.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome {
                session,
                region_bytes,
                class,
            } => Writer::new(WELCOME)
                .u64(*session)
                .u64(*region_bytes)
                .u32(*class as u32)
                .end(),
            Self::Refused { reason } => Writer::new(REFUSED).text(reason).end(),
            Self::Opened {
                outgoing,
                remote_read,
            } => Writer::new(OPENED)
                .u32(u32::from(*outgoing))
                .u32(u32::from(*remote_read))
                .end(),
            Self::Look => Writer::new(LOOK).end(),
            Self::Heeded => Writer::new(HEEDED).end(),
        }
    }

    /// Decodes arbitrary bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (kind, mut reader) = Reader::open(bytes)?;
        let message = match kind {
            WELCOME => Self::Welcome {
                session: reader.u64()?,
                region_bytes: reader.u64()?,
                class: reader.class()?,
            },
            REFUSED => Self::Refused {
                reason: reader.text("reason")?,
            },
            OPENED => Self::Opened {
                outgoing: reader.u16("outgoing")?,
                remote_read: reader.u16("remote_read")?,
            },
            LOOK => Self::Look,
            HEEDED => Self::Heeded,
            kind => return Err(MessageError::Kind { kind }),
        };
        reader.end(message)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u16) -> Self {
        let mut bytes = Vec::with_capacity(MESSAGE_MAX);
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(VERSION.to_le_bytes());
        Self(bytes)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: [u8; 16]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(mut self, text: &str) -> Self {
        let end = (0..=text.len().min(TEXT_MAX))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        self.0.push(end as u8);
        self.0.extend(&text.as_bytes()[..end]);
        self
    }

    fn end(mut self) -> Vec<u8> {
        assert!(self.0.len() <= MESSAGE_MAX, "two texts and a few numbers");
        let length = self.0.len() as u16;
        self.0[2..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<(u16, Self), MessageError> {
        let whole = bytes.len();
        let mut reader = Self { rest: bytes, whole };
        if !(HEADER..=MESSAGE_MAX).contains(&whole) {
            return Err(MessageError::Length { bytes: whole });
        }
        let kind = u16::from_le_bytes(reader.take()?);
        let length = u16::from_le_bytes(reader.take()?);
        let theirs = reader.u32()?;
        if theirs != VERSION {
            return Err(MessageError::Version { theirs });
        }
        if usize::from(length) != whole {
            return Err(MessageError::Length { bytes: whole });
        }
        Ok((kind, reader))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(MessageError::Length { bytes: self.whole })?;
        self.rest = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, MessageError> {
        let value = self.u32()?;
        u16::try_from(value).map_err(|_| MessageError::Field {
            field,
            value: u64::from(value),
        })
    }

    fn below(&mut self, field: &'static str, end: u32) -> Result<u32, MessageError> {
        in_range(field, self.u32()?, end)
    }

    fn class(&mut self) -> Result<Class, MessageError> {
        let value = self.u32()?;
        Class::from_number(value).ok_or(MessageError::Field {
            field: "class",
            value: u64::from(value),
        })
    }

    fn weight(&mut self) -> Result<u32, MessageError> {
        let value = self.u32()?;
        if !(1..=WEIGHT_MAX).contains(&value) {
            return Err(MessageError::Field {
                field: "weight",
                value: u64::from(value),
            });
        }
        Ok(value)
    }

    fn text(&mut self, field: &'static str) -> Result<String, MessageError> {
        let [length] = self.take()?;
        let length = usize::from(length);
        if length > TEXT_MAX || length > self.rest.len() {
            return Err(MessageError::Length { bytes: self.whole });
        }
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        let text = std::str::from_utf8(text).map_err(|_| MessageError::Text { field })?;
        if text.chars().any(char::is_control) {
            return Err(MessageError::Text { field });
        }
        Ok(text.to_owned())
    }

    fn end<T>(self, message: T) -> Result<T, MessageError> {
        match self.rest.is_empty() {
            true => Ok(message),
            false => Err(MessageError::Length { bytes: self.whole }),
        }
    }
}

/// Checks that `value` is below `end`.
fn in_range(field: &'static str, value: u32, end: u32) -> Result<u32, MessageError> {
    match value < end {
        true => Ok(value),
        false => Err(MessageError::Field {
            field,
            value: u64::from(value),
        }),
    }
}

#[cfg(test)]
mod tests;
