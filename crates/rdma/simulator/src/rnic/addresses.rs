//! The physical addresses of a host's objects.
//!
//! Everything a NIC touches is pinned, so its physical address is fixed (harmonic 5.3). A monitor on the bus sees these
//! addresses, and the kernel driver reports the objects at them. The NIC model itself needs no addresses, so they exist
//! only where a monitor does.
//!
//! Units: bytes. Method: objects are laid out one after the other from the start of a host's memory, each on pages of
//! its own: pages of 4 KiB below 2 MiB, huge pages of 2 MiB from there on. Contexts of one tenant share pages, which
//! the firmware requests per tenant. Doorbells are registers of the NIC and are above all memory. Limits: an object is
//! contiguous; real ones consist of pieces. A device's own page tables are not modelled apart from translation entries:
//! 64 B per region and 8 B per 4 KiB page.

use super::access::{Access, End, Object, Owner};
use super::control::ControlLoop;
use super::device::Device;
use super::process::{Plan, Process};
use super::queue_pair::QueuePair;
use super::sizes::{CONTEXT_BYTES, CQE_BYTES, PAGE, PAGES_PER_REGION_MAX, RECEIVE_WQE_BYTES};
use isolane_rdma_policy::harmonic::statistics::ObjectKind;
use isolane_rdma_scenario::model::{ControlObject, Host, Verb};

/// A huge page, bytes.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
/// Where objects on 4 KiB pages begin: memory below belongs to the kernel.
const SMALL_BASE: u64 = 4 << 30;
/// Where objects on huge pages begin.
const HUGE_BASE: u64 = 1 << 46;
/// Where the NIC's registers are mapped.
const REGISTERS_BASE: u64 = 1 << 52;
/// Bytes of a region's protection entry.
const PROTECTION_BYTES: u64 = 64;
/// Bytes of a page's translation entry.
const TRANSLATION_BYTES: u64 = 8;

/// A piece of memory with one owner and one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Span {
    /// The address of `offset`, which wraps, with room for `bytes` before the end.
    fn at(self, offset: u64, bytes: u64) -> u64 {
        let offset = offset % self.bytes;
        self.start + offset.min(self.bytes.saturating_sub(bytes))
    }
}

/// A span that the driver reports to a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinnedObject {
    pub(crate) host: u8,
    pub(crate) tenant: u16,
    pub(crate) kind: ObjectKind,
    pub(crate) span: Span,
    /// It consists of objects of so many bytes, one after the other.
    pub(crate) each: u64,
}

#[derive(Clone, Copy, Debug)]
struct ProcessSpans {
    doorbell: Span,
    completions: Span,
    queue_context: Span,
    translations: Span,
    /// All regions, one after the other, each `region` bytes long.
    memory: Span,
    region: u64,
}

#[derive(Clone, Copy, Debug)]
struct PairSpans {
    sends: Span,
    receives: Span,
    contexts: [Span; 2],
}

/// What a control loop makes and destroys.
#[derive(Clone, Copy, Debug)]
struct LoopSpans {
    all: Span,
    each: u64,
    kind: ObjectKind,
}

/// The layout of all hosts.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    processes: Vec<[ProcessSpans; 2]>,
    pairs: Vec<PairSpans>,
    loops: Vec<LoopSpans>,
    /// In order of creation.
    objects: Vec<PinnedObject>,
    hosts: [Arena; Host::ALL.len()],
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            pairs: Vec::new(),
            loops: Vec::new(),
            objects: Vec::new(),
            hosts: std::array::from_fn(|_| Arena::default()),
        }
    }
}

/// The free memory of one host.
#[derive(Clone, Debug)]
struct Arena {
    small: u64,
    huge: u64,
    registers: u64,
    /// Per tenant: the page its next context goes to.
    contexts: Vec<Span>,
}

impl Default for Arena {
    fn default() -> Self {
        Self {
            small: SMALL_BASE,
            huge: HUGE_BASE,
            registers: REGISTERS_BASE,
            contexts: Vec::new(),
        }
    }
}

/// The requester of memory.
#[derive(Clone, Copy)]
struct Asker {
    host: u8,
    tenant: u16,
}

impl Addresses {
    /// Lays out what these pairs and loops use.
    pub(crate) fn lay_out(
        device: &Device,
        plans: &[Plan],
        processes: &[Process],
        pairs: &[QueuePair],
        loops: &[ControlLoop],
    ) -> Self {
        let mut addresses = Self::default();
        let mut first = 0;
        for (number, process) in processes.iter().enumerate() {
            let count = pairs[first..]
                .iter()
                .take_while(|pair| pair.process as usize == number)
                .count();
            let plan = &plans[process.plan as usize];
            addresses.add_process(device, plan, process, &pairs[first..first + count]);
            first += count;
        }
        for each in loops {
            addresses.add_loop(each);
        }
        addresses
    }

    /// What `tenant` pins on `host` before it sends.
    pub(crate) fn objects_of(
        &self,
        tenant: u16,
        host: usize,
    ) -> impl Iterator<Item = &PinnedObject> {
        self.objects
            .iter()
            .filter(move |object| object.tenant == tenant && usize::from(object.host) == host)
    }

    /// Object `number` of a control loop.
    pub(crate) fn loop_object(
        &self,
        loops: &[ControlLoop],
        index: u32,
        number: u64,
    ) -> PinnedObject {
        let (spans, owner) = (self.loops[index as usize], &loops[index as usize]);
        PinnedObject {
            host: owner.host,
            tenant: owner.tenant,
            kind: spans.kind,
            span: Span {
                start: spans.all.start + number * spans.each,
                bytes: spans.each,
            },
            each: spans.each,
        }
    }

    /// The physical address of the first byte of an access; none for the host's own traffic.
    pub(crate) fn of(&self, access: Access, pairs: &[QueuePair]) -> Option<u64> {
        let Owner::Pair(number) = access.owner else {
            return None;
        };
        let pair = &self.pairs[number as usize];
        let end = access.end as usize;
        let process = &self.processes[pairs[number as usize].process as usize][end];
        let (offset, bytes) = (access.offset, access.bytes);
        Some(match access.object {
            Object::Doorbell => process.doorbell.at(offset, bytes),
            Object::SendQueue => pair.sends.at(offset, bytes),
            Object::ReceiveQueue => pair.receives.at(offset, bytes),
            Object::CompletionQueue => process.completions.at(offset, bytes),
            Object::PairContext => pair.contexts[end].at(offset, bytes),
            Object::QueueContext => process.queue_context.at(offset, bytes),
            Object::Translation => {
                let offset = pairs[number as usize].memory_offset(access.end, offset);
                let entry = offset / PAGE * TRANSLATION_BYTES;
                process.translations.at(entry, bytes)
            }
            Object::Memory => {
                let offset = pairs[number as usize].memory_offset(access.end, offset);
                let region = offset / (PAGES_PER_REGION_MAX * PAGE);
                let within = Span {
                    start: 0,
                    bytes: process.region,
                }
                .at(offset % (PAGES_PER_REGION_MAX * PAGE), bytes);
                process.memory.at(region * process.region + within, bytes)
            }
            Object::Monitor => return None,
        })
    }

    fn add_process(
        &mut self,
        device: &Device,
        plan: &Plan,
        process: &Process,
        pairs: &[QueuePair],
    ) {
        let Some(first) = pairs.first() else { return };
        let verb = first.verb;
        let ends = [(first.host, End::Requester), (first.peer, End::Responder)];
        let spans = ends.map(|(host, end)| {
            let asker = Asker {
                host,
                tenant: first.tenant,
            };
            let kind = match (end, verb) {
                (End::Requester, _) | (_, Verb::Send) => ObjectKind::PrivateMemory,
                (_, Verb::Write) => ObjectKind::of_region(true, false, false),
                (_, Verb::Read) => ObjectKind::of_region(false, true, false),
                (_, Verb::FetchAdd | Verb::CompareSwap) => {
                    ObjectKind::of_region(false, false, true)
                }
            };
            let entries = u64::from(plan.depth) * pairs.len() as u64;
            let region = whole_pages(process.pages_per_region * PAGE);
            let table =
                process.regions * (PROTECTION_BYTES + TRANSLATION_BYTES * process.pages_per_region);
            ProcessSpans {
                doorbell: self.register_page(asker),
                completions: self.pin(asker, ObjectKind::CompletionQueue, entries * CQE_BYTES),
                queue_context: self.context(asker),
                translations: self.pin(asker, ObjectKind::Translation, table),
                memory: self.pin_regions(asker, kind, process.regions, region),
                region,
            }
        });
        self.processes.push(spans);
        for pair in pairs {
            let (asks, answers) = (
                Asker {
                    host: pair.host,
                    tenant: pair.tenant,
                },
                Asker {
                    host: pair.peer,
                    tenant: pair.tenant,
                },
            );
            let elements = plan.pattern.iter().map(|entry| entry.elements).max();
            let request = device.wqe_bytes(pair.transport, u64::from(elements.unwrap_or(1)));
            let receives = if verb == Verb::Send {
                let ring = pair.receives.max(1) * RECEIVE_WQE_BYTES;
                self.pin(answers, ObjectKind::ReceiveQueue, ring)
            } else {
                Span {
                    start: 0,
                    bytes: PAGE,
                }
            };
            let spans = PairSpans {
                sends: self.pin(asks, ObjectKind::SendQueue, u64::from(pair.slots) * request),
                receives,
                contexts: [self.context(asks), self.context(answers)],
            };
            self.pairs.push(spans);
        }
    }

    fn add_loop(&mut self, each: &ControlLoop) {
        let (kind, bytes) = match each.object {
            ControlObject::MemoryRegion => {
                (ObjectKind::of_region(true, false, false), each.pages * PAGE)
            }
            ControlObject::QueuePair => (ObjectKind::SendQueue, PAGE),
            ControlObject::CompletionQueue => (ObjectKind::CompletionQueue, PAGE),
        };
        let size = whole_pages(bytes.max(1));
        // Two more than are alive at once: an object number counts from zero up to the loop's length.
        let all = self.reserve(each.host, size * (each.objects + 2), size >= HUGE_PAGE);
        self.loops.push(LoopSpans {
            all,
            each: size,
            kind,
        });
    }

    /// Memory for an object, on pages of its own.
    fn pin(&mut self, asker: Asker, kind: ObjectKind, bytes: u64) -> Span {
        let bytes = whole_pages(bytes.max(1));
        let span = self.reserve(asker.host, bytes, bytes >= HUGE_PAGE);
        self.record(asker, kind, span, bytes);
        span
    }

    /// Regions of whole pages, one after the other.
    fn pin_regions(&mut self, asker: Asker, kind: ObjectKind, count: u64, each: u64) -> Span {
        let span = self.reserve(asker.host, count * each, each >= HUGE_PAGE);
        self.record(asker, kind, span, each);
        span
    }

    fn reserve(&mut self, host: u8, bytes: u64, huge: bool) -> Span {
        let arena = &mut self.hosts[usize::from(host)];
        let free = if huge {
            &mut arena.huge
        } else {
            &mut arena.small
        };
        let start = *free;
        *free += bytes;
        Span { start, bytes }
    }

    fn register_page(&mut self, asker: Asker) -> Span {
        let arena = &mut self.hosts[usize::from(asker.host)];
        let span = Span {
            start: arena.registers,
            bytes: PAGE,
        };
        arena.registers += PAGE;
        self.record(asker, ObjectKind::Doorbell, span, PAGE);
        span
    }

    /// Memory for one context, on a page of the tenant's.
    fn context(&mut self, asker: Asker) -> Span {
        let (host, tenant) = (usize::from(asker.host), usize::from(asker.tenant));
        let none = Span { start: 0, bytes: 0 };
        if self.hosts[host].contexts.len() <= tenant {
            self.hosts[host].contexts.resize(tenant + 1, none);
        }
        if self.hosts[host].contexts[tenant].bytes < CONTEXT_BYTES {
            self.hosts[host].contexts[tenant] = self.pin(asker, ObjectKind::Context, PAGE);
        }
        let page = &mut self.hosts[host].contexts[tenant];
        let span = Span {
            start: page.start,
            bytes: CONTEXT_BYTES,
        };
        page.start += CONTEXT_BYTES;
        page.bytes -= CONTEXT_BYTES;
        span
    }

    fn record(&mut self, asker: Asker, kind: ObjectKind, span: Span, each: u64) {
        self.objects.push(PinnedObject {
            host: asker.host,
            tenant: asker.tenant,
            kind,
            span,
            each,
        });
    }
}

/// Rounded up to pages: huge ones from one huge page on.
fn whole_pages(bytes: u64) -> u64 {
    let page = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
    bytes.next_multiple_of(page)
}
