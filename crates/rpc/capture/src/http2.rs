//! The frames of a gRPC connection in plain text: which call each byte belongs to.
//!
//! Method: the client's direction begins with the preface of HTTP/2. A frame has a header of 9 bytes with its length,
//! kind and stream. The header blocks of the client's direction are decoded (HPACK), because later blocks refer to
//! earlier ones; the block that opens a stream has the call's class.
//! Limits: a gap in the frames' headers or in the client's header blocks ends the reading of the direction. A gap in the
//! payload of other frames does not. A block has at most [`BLOCK_MAX`] bytes, and [`STREAMS_MAX`] streams are known at a time.

use loona_hpack::Decoder;
use std::collections::BTreeMap;

/// Longest header block, bytes.
pub(crate) const BLOCK_MAX: usize = 32 << 10;
/// Most streams of a connection that are known at a time; the oldest ones are forgotten.
pub(crate) const STREAMS_MAX: usize = 1_024;
/// Largest table of a decoder, bytes.
const TABLE_MAX: usize = 16 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Least bytes of the preface that distinguish it from HTTP/1.
const PREFACE_LEAST: usize = 4;
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What a direction consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// So many bytes belong to stream `stream`, 0 for the connection itself.
    Bytes { stream: u32, bytes: u64 },
    /// A call: its stream, and its class if its header names one.
    Call { stream: u32, class: Option<&'a str> },
    /// The stream is over.
    End { stream: u32 },
}

/// Where the reading is.
#[derive(Debug)]
enum State {
    /// Expects the rest of the preface.
    Preface(usize),
    /// Expects the rest of a frame's header.
    Head(usize),
    /// Within a frame.
    Payload,
    /// Not readable, or not any more.
    Lost,
}

/// Reads one direction.
#[derive(Debug)]
pub(crate) struct Frames {
    state: State,
    head: [u8; HEAD],
    left: usize,
    kind: u8,
    flags: u8,
    stream: u32,
    /// Of the client's direction only.
    blocks: Option<Blocks>,
}

struct Blocks {
    decoder: Decoder<'static>,
    block: Vec<u8>,
    /// The stream whose block continues in the next frame.
    open: Option<u32>,
    header: Vec<u8>,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Blocks({} bytes)", self.block.len())
    }
}

impl Frames {
    /// The client's direction; `header` is the header of the class.
    pub(crate) fn client(header: &str) -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE_MAX);
        Self::new(
            State::Preface(0),
            Some(Blocks {
                decoder,
                block: Vec::new(),
                open: None,
                header: header.as_bytes().to_vec(),
            }),
        )
    }

    /// The server's direction.
    pub(crate) fn server() -> Self {
        Self::new(State::Head(0), None)
    }

    fn new(state: State, blocks: Option<Blocks>) -> Self {
        Self {
            state,
            head: [0; HEAD],
            left: 0,
            kind: DATA,
            flags: 0,
            stream: 0,
            blocks,
        }
    }

    /// Whether `bytes`, the first ones of a direction, open a connection of HTTP/2.
    pub(crate) fn opens(bytes: &[u8]) -> bool {
        let known = bytes.len().min(PREFACE.len());
        known >= PREFACE_LEAST && bytes[..known] == PREFACE[..known]
    }

    /// Whether nothing can be read any more.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Ends the reading, and frees its memory.
    pub(crate) fn lose(&mut self) {
        *self = Self::new(State::Lost, None);
    }

    /// Reads the next bytes, and `missing` bytes after them that were not captured. Returns how many bytes it left
    /// unread because the reading ended there.
    pub(crate) fn read(
        &mut self,
        mut bytes: &[u8],
        missing: usize,
        out: &mut impl FnMut(Event<'_>),
    ) -> u64 {
        let mut blank = missing;
        while !bytes.is_empty() || blank > 0 {
            let took = match self.state {
                State::Lost => return (bytes.len() + blank) as u64,
                State::Preface(at) => self.preface(at, bytes),
                State::Head(at) => self.head(at, bytes, out),
                State::Payload => self.payload(bytes, blank, out),
            };
            match took {
                None => self.lose(),
                Some(took) if took <= bytes.len() => bytes = &bytes[took..],
                Some(took) => {
                    blank -= took - bytes.len();
                    bytes = &[];
                }
            }
        }
        0
    }

    fn preface(&mut self, at: usize, bytes: &[u8]) -> Option<usize> {
        let took = bytes.len().min(PREFACE.len() - at);
        if took == 0 || bytes[..took] != PREFACE[at..at + took] {
            return None;
        }
        self.state = match at + took == PREFACE.len() {
            true => State::Head(0),
            false => State::Preface(at + took),
        };
        Some(took)
    }

    fn head(&mut self, at: usize, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) -> Option<usize> {
        let took = bytes.len().min(HEAD - at);
        if took == 0 {
            return None;
        }
        self.head[at..at + took].copy_from_slice(&bytes[..took]);
        if at + took < HEAD {
            self.state = State::Head(at + took);
            return Some(took);
        }
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        (self.kind, self.flags) = (kind, flags);
        self.stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        self.state = State::Payload;
        self.begin_block()?;
        out(Event::Bytes {
            stream: self.stream,
            bytes: HEAD as u64,
        });
        // These bytes are counted already, also where the frame is invalid.
        if self.left == 0 && self.end(out).is_none() {
            self.lose();
        }
        Some(took)
    }

    fn begin_block(&mut self) -> Option<()> {
        let Some(blocks) = &mut self.blocks else {
            return Some(());
        };
        match (self.kind, blocks.open) {
            (HEADERS, None) => {
                blocks.block.clear();
                blocks.open = Some(self.stream);
            }
            (CONTINUATION, Some(open)) if open == self.stream => {}
            // A block is not interrupted, and a continuation continues one.
            (CONTINUATION, _) | (_, Some(_)) => return None,
            _ => {}
        }
        Some(())
    }

    fn payload(
        &mut self,
        bytes: &[u8],
        blank: usize,
        out: &mut impl FnMut(Event<'_>),
    ) -> Option<usize> {
        let took = (bytes.len() + blank).min(self.left);
        let read = took.min(bytes.len());
        if let Some(blocks) = &mut self.blocks
            && blocks.open.is_some()
        {
            if read < took || blocks.block.len() + read > BLOCK_MAX {
                return None;
            }
            blocks.block.extend_from_slice(&bytes[..read]);
            // Padding and priority are part of the frame and not of the block.
            if self.left == took && self.kind == HEADERS {
                trim(&mut blocks.block, self.flags)?;
            }
        }
        self.left -= took;
        out(Event::Bytes {
            stream: self.stream,
            bytes: took as u64,
        });
        // These bytes are counted already, also where the frame is invalid.
        if self.left == 0 && self.end(out).is_none() {
            self.lose();
        }
        Some(took)
    }

    /// The frame is over.
    fn end(&mut self, out: &mut impl FnMut(Event<'_>)) -> Option<()> {
        self.state = State::Head(0);
        let stream = self.stream;
        let ends = matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0;
        match &mut self.blocks {
            Some(blocks) if blocks.open.is_some() && self.flags & END_HEADERS != 0 => {
                let class = blocks.decode()?;
                let class = class.as_deref();
                out(Event::Call { stream, class });
            }
            None if ends => out(Event::End { stream }),
            _ => {}
        }
        if self.kind == RST_STREAM {
            out(Event::End { stream });
        }
        Some(())
    }
}

/// Removes padding and priority of a HEADERS frame from its block.
fn trim(block: &mut Vec<u8>, flags: u8) -> Option<()> {
    let mut front = 0;
    let mut back = 0;
    if flags & PADDED != 0 {
        back = usize::from(*block.first()?);
        front += 1;
    }
    if flags & PRIORITY != 0 {
        front += 5;
    }
    let end = block.len().checked_sub(back)?;
    if front > end {
        return None;
    }
    block.truncate(end);
    block.drain(..front);
    Some(())
}

impl Blocks {
    fn decode(&mut self) -> Option<Option<String>> {
        self.open = None;
        let mut class = None;
        let header = &self.header;
        let decoded = self.decoder.decode_with_cb(&self.block, |name, value| {
            if *name == header[..] && class.is_none() {
                class = String::from_utf8(value.into_owned()).ok();
            }
        });
        self.block = Vec::new();
        decoded.ok().map(|()| class)
    }
}

/// Classes of a connection's streams: the newest [`STREAMS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Streams(BTreeMap<u32, Option<u8>>);

impl Streams {
    /// The class of a stream; `None` for an unknown stream.
    pub(crate) fn class(&self, stream: u32) -> Option<Option<u8>> {
        self.0.get(&stream).copied()
    }

    /// Returns whether the stream is new; trailers of a known stream do not change its class.
    pub(crate) fn begin(&mut self, stream: u32, class: Option<u8>) -> bool {
        if self.0.contains_key(&stream) {
            return false;
        }
        if self.0.len() >= STREAMS_MAX {
            self.0.pop_first();
        }
        self.0.insert(stream, class);
        true
    }

    pub(crate) fn end(&mut self, stream: u32) {
        self.0.remove(&stream);
    }
}
