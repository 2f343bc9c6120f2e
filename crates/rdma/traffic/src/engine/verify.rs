//! Checks every byte: writes memory before a message, and compares it afterwards.
//!
//! WRITE is read back before its slot is reused; READ fetches a pattern that the peer wrote; SEND and WRITE with
//! immediate data are compared at the receiver; an atomic returns the number of earlier ones.

use super::data::reads_back;
use super::drive::{Drive, PAIR_SHIFT, READ_BACK};
use super::error::EndError;
use super::pattern::{self, Stamp};
use crate::worker::Operation;
use isolane_rdma_verbs_sys::safe::{Element, Request, Target};

impl Drive<'_> {
    /// Fills one element with the message's content, or with stale bytes if the content will arrive.
    pub(super) fn prepare(
        &self,
        pair: usize,
        sequence: u64,
        region: usize,
        offset: u64,
        before: u64,
        length: u64,
    ) {
        let region = &self.end.own[region];
        match self.end.work.operation {
            Operation::Write | Operation::WriteImm | Operation::Send => {
                let stamp = self.end.stamp(pair as u64, sequence);
                pattern::fill(region, offset, stamp, before, length);
            }
            Operation::Read => pattern::stale(region, offset, length),
            Operation::FetchAdd | Operation::CompareSwap => {}
        }
    }

    /// Reads back what was written, before its slot is reused.
    pub(super) fn read_back(&mut self, pair: usize, sequence: u64) -> Result<(), EndError> {
        let place = self.end.own_places.of(pair as u64, sequence);
        let memory = self.end.remote[place.region];
        let length = self.message(sequence).bytes().get();
        let offset = self.read_back_place(pair, sequence);
        if let Some(region) = &self.end.read_back {
            pattern::stale(region, offset, length);
        }
        let request = Request {
            id: READ_BACK | (pair as u64) << PAIR_SHIFT | sequence,
            target: Target::Read {
                address: memory.address + place.offset,
                key: memory.remote_key,
            },
            signaled: true,
            inline: false,
            wrong_key: false,
        };
        let element = Element {
            region: self.end.own.len(),
            offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        };
        self.list.push(&request, &[element])?;
        let posted = self.list.post(&self.end.queue_pairs[pair]);
        posted.map_err(|(error, _)| error.into())
    }

    fn read_back_place(&self, pair: usize, sequence: u64) -> u64 {
        let depth = u64::from(self.end.work.depth);
        (pair as u64 * depth + sequence % depth) * self.end.work.largest_message().max(1)
    }

    /// Compares the data that an own request returned.
    pub(super) fn verify_own(&mut self, pair: usize, sequence: u64, read_back: bool) {
        let length = self.message(sequence).bytes().get();
        let wrong = match self.end.work.operation {
            Operation::Write if read_back && reads_back(&self.end.work) => {
                let offset = self.read_back_place(pair, sequence);
                let stamp = self.end.stamp(pair as u64, sequence);
                self.end.read_back.as_ref().map_or(0, |region| {
                    pattern::wrong_bytes(region, offset, stamp, 0, length)
                })
            }
            Operation::Read => self.wrong_in_read(pair, sequence),
            Operation::FetchAdd | Operation::CompareSwap => {
                let place = self.end.own_places.of(pair as u64, sequence);
                let old = self.end.own[place.region].load_word(place.offset);
                if old == sequence { 0 } else { length }
            }
            Operation::Write | Operation::WriteImm | Operation::Send => return,
        };
        self.meter.checked(length, wrong);
    }

    fn wrong_in_read(&self, pair: usize, sequence: u64) -> u64 {
        let slots = self.end.own_places.per_queue_pair().max(1);
        let stamp = Stamp {
            direction: self.end.other_direction(),
            ..self.end.stamp(pair as u64, sequence % slots)
        };
        let place = self.end.own_places.of(pair as u64, sequence);
        let (mut before, mut wrong) = (0, 0);
        for (index, &element) in self.message(sequence).elements.iter().enumerate() {
            let region = &self.end.own[self.end.element_region(place, index)];
            let length = u64::from(element);
            wrong += pattern::wrong_bytes(region, place.offset + before, stamp, before, length);
            before += length;
        }
        wrong
    }

    pub(super) fn verify_received(
        &mut self,
        pair: usize,
        slot: u64,
        sequence: u64,
        header: u64,
        bytes: u64,
    ) {
        let expected = self.message(sequence).bytes().get();
        let stamp = Stamp {
            direction: self.end.other_direction(),
            ..self.end.stamp(pair as u64, sequence)
        };
        let (place, header) = match self.end.work.operation {
            Operation::WriteImm => (self.end.own_places.of(pair as u64, sequence), 0),
            _ => (self.end.receive_places.of(pair as u64, slot), header),
        };
        let region = &self.end.open[place.region];
        let compared = bytes.min(expected);
        let wrong = pattern::wrong_bytes(region, place.offset + header, stamp, 0, compared);
        self.meter
            .checked(expected, wrong + bytes.abs_diff(expected));
        pattern::stale(region, place.offset + header, compared);
    }
}
