//! The memory and the work of one request to the scheduler extender, from its first byte to its answer.
//!
//! Goal: a request of 32 MiB takes at most four times its size, and work in proportion to its size, with any content. Method:
//! every allocation of this program is counted; each request has one shape, repeated until it is long enough, and comes from
//! a reader that makes it piece by piece, so only the extender's own memory counts. Work is what is allocated in all, in
//! bytes and in blocks: the former parser made a value of each part, 4.7 GB in 36 s. Limits: work without memory does not count.

use isolane_memory_service::fleet::server::respond;
use std::io::{self, Read};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Least length of a body, bytes; a little more than a power of two, where a buffer that doubles is worst.
const BODY: usize = (32 << 20) + 1;
/// The same for the shapes whose answer is short, to save time.
const SHORT: usize = (4 << 20) + 1;
/// Largest multiple of the body that may be allocated at a time.
const TIMES_MAX: usize = 4;
/// The same for all allocations together: the body while its buffer doubles, the answer, and lists of numbers, in which two
/// bytes of text become eight and the list doubles.
const WORK_TIMES_MAX: u64 = 20;
/// Most allocations: those of a fixed number of nodes and annotations, each with a few names.
const BLOCKS_MAX: u64 = 200_000;

/// A request as it comes: the head, the beginning of the body, one part again and again, and the end.
struct Shape {
    first: String,
    part: String,
    last: &'static str,
    least: usize,
}

impl Shape {
    /// The body's length and how often the part comes.
    fn size(&self) -> (usize, usize) {
        let count = (self.least - self.first.len()).div_ceil(self.part.len());
        let length = self.first.len() + count * self.part.len() + self.last.len();
        (length, count)
    }

    fn reader(&self, path: &str) -> impl Read {
        let (length, count) = self.size();
        let head = format!("POST {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        let begin = io::Cursor::new(head + &self.first);
        let parts = Repeated {
            part: self.part.clone(),
            left: count * self.part.len(),
        };
        begin.chain(parts).chain(self.last.as_bytes())
    }
}

struct Repeated {
    part: String,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.part.len();
        // Whole parts are left after each one, so the rest gives the place of the next byte.
        let from = (length - self.left % length) % length;
        let count = into.len().min(length - from).min(self.left);
        into[..count].copy_from_slice(&self.part.as_bytes()[from..from + count]);
        self.left -= count;
        Ok(count)
    }
}

const POD: &str = r#"{"Pod":{"metadata":{"name":"p","annotations":{"isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"7","isolane.dev/memory":"1GB"}}},"Nodes":{"items":["#;

fn shapes() -> Vec<(&'static str, Shape)> {
    let list = |before: &str, part: String| Shape {
        first: before.to_owned() + "0",
        part,
        last: "]}}",
        least: BODY,
    };
    let plain = r#"{"Pod":{},"Nodes":{"items":["#;
    let filler = "x".repeat(2_000);
    // Names of control characters take six bytes each in the request and one in memory.
    let name = "\\u0001".repeat(300);
    let annotation = format!(r#","isolane.dev/{}":"0""#, "a");
    let numbers = "0,".repeat(100_000);
    let app = format!(
        r#"{{\"name\":\"a\",\"priority\":1,\"held_bytes\":[{numbers}0],\"cpu_per_mille\":1}}"#
    );
    let summary = format!(
        r#",{{"metadata":{{"name":"n","annotations":{{"isolane.dev/machine":"{{\"format\":1,\"at_unix_s\":1000,\"tiers\":[],\"applications\":[{app}]}}"}}}}}}"#
    );
    vec![
        ("more nodes than allowed", list(plain, ",0".to_owned())),
        (
            "nodes that fit",
            list(plain, format!(r#",{{"status":"{filler}"}}"#)),
        ),
        (
            "nodes that do not fit",
            list(POD, format!(r#",{{"metadata":{{"name":"{name}"}}}}"#)),
        ),
        (
            "nodes with long summaries",
            Shape {
                least: SHORT,
                ..list(POD, summary)
            },
        ),
        (
            "fields of the list beside its nodes",
            Shape {
                first: r#"{"Pod":{},"Nodes":{"items":[]"#.to_owned(),
                part: r#","a":{}"#.to_owned(),
                last: "}}",
                least: SHORT,
            },
        ),
        (
            "annotations with the product's prefix",
            Shape {
                first: r#"{"Pod":{"metadata":{"annotations":{"a":"b""#.to_owned(),
                part: annotation,
                last: r#"}}},"Nodes":{}}"#,
                least: SHORT,
            },
        ),
        (
            "brackets within brackets",
            Shape {
                first: r#"{"Pod":"#.to_owned(),
                part: "[".to_owned(),
                last: "",
                least: SHORT,
            },
        ),
    ]
}

#[test]
fn a_request_of_32_mib_takes_at_most_four_times_its_size() {
    for (name, shape) in shapes() {
        // The answers of both take memory only where nodes do not fit; there the longer one is `filter`'s.
        let paths: &[&str] = match name {
            "nodes that do not fit" => &["/filter", "/prioritize"],
            _ => &["/filter"],
        };
        for path in paths {
            let mut held = 0;
            let hold = |bytes| {
                held += bytes;
                Ok(())
            };
            let request = shape.reader(path);
            let profiler = dhat::Profiler::builder().testing().build();
            let answer = respond(request, hold, 1_000).unwrap();
            let stats = dhat::HeapStats::get();
            let most = stats.max_bytes;
            drop(profiler);
            let (length, _) = shape.size();
            println!(
                "{name} {path}: {} blocks of {} bytes in all ({:.2}x)",
                stats.total_blocks,
                stats.total_bytes,
                stats.total_bytes as f64 / length as f64
            );
            assert!(
                stats.total_bytes <= WORK_TIMES_MAX * length as u64,
                "{name} {path}"
            );
            assert!(stats.total_blocks <= BLOCKS_MAX, "{name} {path}");
            println!(
                "{name} {path}: {length} bytes, {most} bytes of memory at most ({:.2}x), status {}, answer {} bytes",
                most as f64 / length as f64,
                answer.status,
                answer.body.len()
            );
            assert!(
                most <= TIMES_MAX * length,
                "{name} {path}: {most} bytes for {length}"
            );
            assert!(held <= length as u64, "{name}: {held} bytes were counted");
        }
    }
}
