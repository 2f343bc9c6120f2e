//! What connection management sends to the broker and receives as events, word by word.

use crate::wire::{Reader, Writer, pack};

/// "Every host" and "no host" in messages.
pub const NO_HOST: u32 = u32::MAX;
/// Longest private data of a message, bytes: that of an answer to a connection request.
pub const PRIVATE_MAX: usize = 196;

/// `rdma_cm_event_type`.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of rdma_cma.h")]
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ADDR_ERROR: u32 = 1;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const CONNECT_ERROR: u32 = 6;
    pub const REJECTED: u32 = 8;
    pub const ESTABLISHED: u32 = 9;
    pub const DISCONNECTED: u32 = 10;
}

/// `rdma_port_space` of connections and of datagrams.
pub const PORTS_TCP: u32 = 0x106;
/// See [`PORTS_TCP`].
pub const PORTS_UDP: u32 = 0x111;

/// What one end of a connection tells the other one: `rdma_conn_param` as the sender means it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Its queue pair.
    pub qp_num: u32,
    /// READs and atomics that it answers at once.
    pub responder_resources: u8,
    /// READs and atomics that it requests at once.
    pub initiator_depth: u8,
    /// Whether it controls the flow end to end.
    pub flow_control: u8,
    /// Retries without an answer.
    pub retry_count: u8,
    /// Retries of a receiver that is not ready.
    pub rnr_retry_count: u8,
    /// Whether it receives from a shared queue.
    pub srq: u8,
    /// The program's own words.
    pub private_data: Vec<u8>,
}

impl Parameters {
    /// Appends them.
    pub fn write(&self, writer: &mut Writer) {
        let small = [
            self.responder_resources,
            self.initiator_depth,
            self.flow_control,
            self.retry_count,
            self.rnr_retry_count,
            self.srq,
            0,
            0,
        ];
        writer
            .word(pack(self.qp_num, self.private_data.len() as u32))
            .word(u64::from_ne_bytes(small))
            .raw(&self.private_data);
    }

    /// Reads them; `None` if they are malformed or longer than [`PRIVATE_MAX`].
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (qp_num, length) = reader.halves()?;
        let small = reader.word()?.to_ne_bytes();
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= PRIVATE_MAX)?;
        Some(Self {
            qp_num,
            responder_resources: small[0],
            initiator_depth: small[1],
            flow_control: small[2],
            retry_count: small[3],
            rnr_retry_count: small[4],
            srq: small[5],
            private_data: reader.raw(length)?.to_vec(),
        })
    }
}

/// An event, as a channel's queue has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// One of [`kind`].
    pub kind: u32,
    /// 0, a negative `errno` value, or the reason of a rejection.
    pub status: i32,
    /// The identifier that it is about; of a connection request the new one.
    pub id: u32,
    /// Of a connection request: who listens.
    pub listener: u32,
    /// Own host and port.
    pub local: (u32, u16),
    /// The other end's host and port.
    pub remote: (u32, u16),
    /// What the other end sent.
    pub parameters: Parameters,
}

impl Event {
    /// Appends it.
    pub fn write(&self, writer: &mut Writer) {
        writer
            .word(pack(self.kind, self.status.cast_unsigned()))
            .word(pack(self.id, self.listener))
            .word(pack(self.local.0, u32::from(self.local.1)))
            .word(pack(self.remote.0, u32::from(self.remote.1)));
        self.parameters.write(writer);
    }

    /// Reads it.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (kind, status) = reader.halves()?;
        let (id, listener) = reader.halves()?;
        let mut end = || {
            let (host, port) = reader.halves()?;
            Some((host, u16::try_from(port).ok()?))
        };
        let (local, remote) = (end()?, end()?);
        Some(Self {
            kind,
            status: status.cast_signed(),
            id,
            listener,
            local,
            remote,
            parameters: Parameters::read(reader)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_as_written_and_too_long_data_does_not() {
        let mut event = Event {
            kind: kind::REJECTED,
            status: -111,
            id: 7,
            listener: 8,
            local: (0, 7471),
            remote: (1, 40_000),
            parameters: Parameters {
                qp_num: 0x123456,
                responder_resources: 1,
                initiator_depth: 2,
                flow_control: 3,
                retry_count: 4,
                rnr_retry_count: 5,
                srq: 6,
                private_data: vec![9; PRIVATE_MAX],
            },
        };
        let mut writer = Writer::default();
        event.write(&mut writer);
        assert_eq!(
            Event::read(&mut Reader::new(writer.bytes())),
            Some(event.clone())
        );
        event.parameters.private_data.push(9);
        let mut writer = Writer::default();
        event.write(&mut writer);
        assert_eq!(Event::read(&mut Reader::new(writer.bytes())), None);
    }
}
