//! What both ends say about devices and queue pairs, as words.

use crate::wire::{Reader, Writer, pack, unpack};

/// Entries of a port's GID table on RoCE.
pub const GIDS: usize = 4;

/// A device, as `ibv_query_device` and `ibv_query_port` show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Number of its host.
    pub host: u32,
    /// GUID in network order.
    pub guid: u64,
    /// `ibv_node_type`.
    pub node_type: u32,
    /// `ibv_transport_type`.
    pub transport: u32,
    /// Link layer of its port, as `ibv_port_attr` has it.
    pub link_layer: u32,
    /// Largest and active path MTU, as `ibv_mtu`.
    pub mtu: u32,
    /// `ibv_port_attr::active_width`.
    pub width: u32,
    /// `ibv_port_attr::active_speed`.
    pub speed: u32,
    /// LID of its port; 0 on Ethernet.
    pub lid: u32,
    /// Whether it has atomics.
    pub atomics: bool,
    /// Fastest rate of a single queue pair, kbit/s of real time; 0 where the device limits none.
    pub pacing_kbps_max: u32,
    /// Its GIDs; on InfiniBand only the first.
    pub gids: [[u64; 2]; GIDS],
}

/// The same for every connected or datagram queue pair: `ibv_qp_attr` without what no device of ours has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairAttributes {
    /// `ibv_qp_state`.
    pub state: u32,
    /// `ibv_mtu`.
    pub path_mtu: u32,
    /// Key of datagrams.
    pub qkey: u32,
    /// First packet number expected.
    pub rq_psn: u32,
    /// First packet number sent.
    pub sq_psn: u32,
    /// The other end.
    pub dest_qp_num: u32,
    /// `ibv_access_flags`.
    pub access: u32,
    /// Index of the partition key.
    pub pkey_index: u32,
    /// Port.
    pub port: u32,
    /// READs and atomics it may have under way.
    pub max_rd_atomic: u32,
    /// READs and atomics it answers at once.
    pub max_dest_rd_atomic: u32,
    /// Code of the RNR timer.
    pub min_rnr_timer: u32,
    /// Code of the time to an acknowledgement.
    pub timeout: u32,
    /// Retries.
    pub retry_count: u32,
    /// Retries after receiver-not-ready; 7 is for ever.
    pub rnr_retry: u32,
    /// Where it sends.
    pub route: Route,
}

/// An address: an address handle, or the path of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Whether the GID counts.
    pub is_global: bool,
    /// LID of the destination.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// GID of the destination, in memory order.
    pub dgid: [u64; 2],
}

impl Route {
    /// As three words.
    pub fn words(&self) -> [u64; 3] {
        let first = u64::from(self.is_global)
            | u64::from(self.dlid) << 8
            | u64::from(self.sl) << 24
            | u64::from(self.traffic_class) << 32
            | u64::from(self.sgid_index) << 40
            | u64::from(self.hop_limit) << 48;
        [first, self.dgid[0], self.dgid[1]]
    }

    /// From three words.
    pub const fn from_words(words: [u64; 3]) -> Self {
        let first = words[0];
        Self {
            is_global: first & 1 == 1,
            dlid: (first >> 8) as u16,
            sl: (first >> 24) as u8,
            traffic_class: (first >> 32) as u8,
            sgid_index: (first >> 40) as u8,
            hop_limit: (first >> 48) as u8,
            dgid: [words[1], words[2]],
        }
    }
}

impl PairAttributes {
    /// Appends itself.
    pub fn write(&self, writer: &mut Writer) {
        let words = [
            pack(self.state, self.path_mtu),
            pack(self.qkey, self.rq_psn),
            pack(self.sq_psn, self.dest_qp_num),
            pack(self.access, self.pkey_index),
            pack(self.port, self.max_rd_atomic),
            pack(self.max_dest_rd_atomic, self.min_rnr_timer),
            pack(self.timeout, self.retry_count),
            u64::from(self.rnr_retry),
        ];
        for word in words.into_iter().chain(self.route.words()) {
            writer.word(word);
        }
    }

    /// Reads what [`Self::write`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (state, path_mtu) = reader.halves()?;
        let (qkey, rq_psn) = reader.halves()?;
        let (sq_psn, dest_qp_num) = reader.halves()?;
        let (access, pkey_index) = reader.halves()?;
        let (port, max_rd_atomic) = reader.halves()?;
        let (max_dest_rd_atomic, min_rnr_timer) = reader.halves()?;
        let (timeout, retry_count) = reader.halves()?;
        let rnr_retry = reader.number()?;
        let route = Route::from_words([reader.word()?, reader.word()?, reader.word()?]);
        Some(Self {
            state,
            path_mtu,
            qkey,
            rq_psn,
            sq_psn,
            dest_qp_num,
            access,
            pkey_index,
            port,
            max_rd_atomic,
            max_dest_rd_atomic,
            min_rnr_timer,
            timeout,
            retry_count,
            rnr_retry,
            route,
        })
    }
}

impl DeviceFacts {
    /// Appends itself.
    pub fn write(&self, writer: &mut Writer) {
        writer
            .word(pack(self.host, self.node_type))
            .word(self.guid)
            .word(pack(self.transport, self.link_layer))
            .word(pack(self.mtu, self.width))
            .word(pack(self.speed, self.lid))
            .word(pack(u32::from(self.atomics), self.pacing_kbps_max));
        for word in self.gids.as_flattened() {
            writer.word(*word);
        }
    }

    /// Reads what [`Self::write`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (host, node_type) = reader.halves()?;
        let guid = reader.word()?;
        let (transport, link_layer) = reader.halves()?;
        let (mtu, width) = reader.halves()?;
        let (speed, lid) = reader.halves()?;
        let (atomics, pacing_kbps_max) = reader.halves()?;
        let mut gids = [[0; 2]; GIDS];
        for word in gids.as_flattened_mut() {
            *word = reader.word()?;
        }
        Some(Self {
            host,
            guid,
            node_type,
            transport,
            link_layer,
            mtu,
            width,
            speed,
            lid,
            atomics: atomics == 1,
            pacing_kbps_max,
            gids,
        })
    }
}

/// One work request of a send queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendRequest {
    /// As posted.
    pub wr_id: u64,
    /// `ibv_wr_opcode`.
    pub opcode: u32,
    /// `ibv_send_flags`.
    pub flags: u32,
    /// Immediate data in network order, or the key to invalidate.
    pub immediate: u32,
    /// Key at the other end; for a window to bind, its new key.
    pub rkey: u32,
    /// Address at the other end; for a window to bind, its first byte.
    pub remote_addr: u64,
    /// Operand of an atomic; for a window to bind, its length.
    pub compare_add: u64,
    /// Second operand of an atomic; for a window to bind, its access.
    pub swap: u64,
    /// Destination of a datagram; for a window to bind, the handles of window and region.
    pub remote_qpn: u32,
    /// Key of a datagram; see `remote_qpn`.
    pub qkey: u32,
    /// Route of a datagram.
    pub route: Route,
    /// Address, length and key of each element.
    pub elements: Vec<Element>,
    /// Payload that rides in the request.
    pub inline: Option<Vec<u8>>,
}

/// A piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

impl SendRequest {
    /// Bytes of its message.
    pub fn length(&self) -> u64 {
        match &self.inline {
            Some(bytes) => bytes.len() as u64,
            None => self.elements.iter().map(|e| u64::from(e.length)).sum(),
        }
    }

    /// Appends itself.
    pub fn write(&self, writer: &mut Writer) {
        let inline = self.inline.as_ref().map_or(0, |bytes| 1 + bytes.len());
        let route = self.route.words();
        writer
            .word(self.wr_id)
            .word(pack(self.opcode, self.flags))
            .word(pack(self.immediate, self.rkey))
            .word(self.remote_addr)
            .word(self.compare_add)
            .word(self.swap)
            .word(pack(self.remote_qpn, self.qkey))
            .word(route[0])
            .word(route[1])
            .word(route[2])
            .word(self.elements.len() as u64)
            .word(inline as u64);
        write_elements(&self.elements, writer);
        if let Some(bytes) = &self.inline {
            writer.raw(bytes);
        }
    }

    /// Reads what [`Self::write`] wrote; `None` for more than a device takes.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let wr_id = reader.word()?;
        let (opcode, flags) = reader.halves()?;
        let (immediate, rkey) = reader.halves()?;
        let remote_addr = reader.word()?;
        let compare_add = reader.word()?;
        let swap = reader.word()?;
        let (remote_qpn, qkey) = reader.halves()?;
        let route = Route::from_words([reader.word()?, reader.word()?, reader.word()?]);
        let count = reader.number()? as usize;
        let inline = reader.number()? as usize;
        if inline > 1 + crate::wire::INLINE_MAX {
            return None;
        }
        let elements = read_elements(count, reader)?;
        let inline = match inline {
            0 => None,
            bytes => Some(reader.raw(bytes - 1)?.to_vec()),
        };
        Some(Self {
            wr_id,
            opcode,
            flags,
            immediate,
            rkey,
            remote_addr,
            compare_add,
            swap,
            remote_qpn,
            qkey,
            route,
            elements,
            inline,
        })
    }
}

/// Appends elements.
pub fn write_elements(elements: &[Element], writer: &mut Writer) {
    for element in elements {
        writer
            .word(element.addr)
            .word(pack(element.length, element.lkey));
    }
}

/// Reads what [`write_elements`] wrote; `None` for more than a device takes.
pub fn read_elements(count: usize, reader: &mut Reader<'_>) -> Option<Vec<Element>> {
    if count > crate::wire::ELEMENTS_MAX {
        return None;
    }
    let element = |_| {
        let addr = reader.word()?;
        let (length, lkey) = unpack(reader.word()?);
        Some(Element { addr, length, lkey })
    };
    (0..count).map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_as_it_was_written() {
        let request = SendRequest {
            wr_id: 1,
            opcode: 2,
            flags: 3,
            immediate: 4,
            rkey: 5,
            remote_addr: 6,
            compare_add: 7,
            swap: 8,
            remote_qpn: 9,
            qkey: 10,
            route: Route {
                is_global: true,
                dlid: 11,
                sl: 12,
                traffic_class: 13,
                sgid_index: 14,
                hop_limit: 15,
                dgid: [16, 17],
            },
            elements: vec![Element {
                addr: 18,
                length: 19,
                lkey: 20,
            }],
            inline: Some(vec![21, 22, 23]),
        };
        let mut writer = Writer::default();
        request.write(&mut writer);
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(SendRequest::read(&mut reader), Some(request));
        let cut = &writer.bytes()[..writer.bytes().len() - 1];
        assert_eq!(SendRequest::read(&mut Reader::new(cut)), None);
    }

    #[test]
    fn facts_come_back_as_they_were_written() {
        let facts = DeviceFacts {
            host: 1,
            guid: 2,
            node_type: 3,
            transport: 4,
            link_layer: 5,
            mtu: 6,
            width: 7,
            speed: 8,
            lid: 9,
            atomics: true,
            pacing_kbps_max: 10,
            gids: [[1, 2], [3, 4], [5, 6], [7, 8]],
        };
        let mut writer = Writer::default();
        facts.write(&mut writer);
        assert_eq!(
            DeviceFacts::read(&mut Reader::new(writer.bytes())),
            Some(facts)
        );
        let attributes = PairAttributes {
            state: 3,
            rnr_retry: 7,
            ..PairAttributes::default()
        };
        let mut writer = Writer::default();
        attributes.write(&mut writer);
        assert_eq!(
            PairAttributes::read(&mut Reader::new(writer.bytes())),
            Some(attributes)
        );
    }
}
