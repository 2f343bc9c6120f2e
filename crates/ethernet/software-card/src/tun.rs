//! A TUN device with several queues, as a card's driver would appear to the kernel.
//!
//! Method: each queue is one open file of `/dev/net/tun` attached to the same device. Packets have a note on
//! segmentation and checksum before them ([`crate::frame`]), the device announces TCP segmentation and checksums to the
//! kernel, and a BPF program may choose the queue. A device belongs to the network namespace of the thread that opened
//! it, and is removed with its last file: a process that is killed leaves none behind. Units: bytes. Limits: Linux;
//! needs CAP_NET_ADMIN in the namespace. Source: the kernel's `Documentation/networking/tuntap.rst` and
//! `include/uapi/linux/if_tun.h`.

use crate::error::SoftNicError;
use crate::frame::NOTE_BYTES;
use crate::lane::Port;
use isolane_ethernet_bpf::Dqa;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const SET_INTERFACE: Opcode = 0x4004_54ca;
const SET_OFFLOAD: Opcode = 0x4004_54d0;
const SET_NOTE_SIZE: Opcode = 0x4004_54d8;
const SET_STEERING: Opcode = 0x8004_54e0;

const IFF_TUN: u16 = 0x0001;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

const OFFLOAD_CHECKSUM: usize = 1;
const OFFLOAD_TCP4: usize = 2;
const OFFLOAD_TCP6: usize = 4;
const OFFLOAD_TCP_ECN: usize = 8;

/// Longest name of an interface, without its end.
const NAME_BYTES_MAX: usize = 15;

/// `struct ifreq`, as far as TUN reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// An open device.
#[derive(Debug)]
pub struct Tun {
    name: String,
    queues: Vec<OwnedFd>,
    dqa: Option<Arc<Dqa>>,
}

/// What to open.
#[derive(Clone, Debug)]
pub struct TunOptions<'a> {
    /// Name of the interface.
    pub name: &'a str,
    /// Queues.
    pub queues: u16,
    /// The card cuts segments into packets.
    pub segmentation: bool,
}

impl Tun {
    /// Opens a new device in the network namespace of the calling thread. Fails if the kernel has no TUN, or refuses.
    pub fn open(options: &TunOptions<'_>) -> Result<Self, SoftNicError> {
        let name = options.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SoftNicError::Input(format!(
                "interface name `{name}` has {} bytes; 1 to {NAME_BYTES_MAX} are possible",
                name.len()
            )));
        }
        let mut tun = Self {
            name: name.to_owned(),
            queues: Vec::new(),
            dqa: None,
        };
        for _ in 0..options.queues {
            tun.queues.push(open_queue(name, options.segmentation)?);
        }
        Ok(tun)
    }

    /// Opens a device in the namespace of this file, from any namespace of the caller. Fails as [`open`](Self::open)
    /// does, and if the namespace cannot be entered.
    pub fn open_in(space: &File, options: &TunOptions<'_>) -> Result<Self, SoftNicError> {
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(space.as_fd(), kind)
                    .map_err(|error| refusal("entering the network namespace", error))?;
                Self::open(options)
            });
            opened.join().expect("opening does not panic")
        })
    }

    /// Lets the BPF programs choose the queue of each packet, and reports departures to them. Fails if the kernel
    /// refuses the program.
    pub fn set_steering(&mut self, dqa: Arc<Dqa>) -> Result<(), SoftNicError> {
        let program = dqa.steering_program();
        // SAFETY: TUNSETSTEERINGEBPF reads one int, the number of a program's file, from the pointer; `program` is open
        // for the time of the call, and the kernel takes its own reference.
        unsafe {
            let set = Setter::<SET_STEERING, i32>::new(program.as_raw_fd());
            ioctl(self.queues[0].as_fd(), set)
        }
        .map_err(|error| refusal("setting the steering program of the TUN device", error))?;
        self.dqa = Some(dqa);
        Ok(())
    }
}

impl Port for Tun {
    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd).collect()
    }

    fn read(&self, queue: usize, into: &mut [u8]) -> Result<Option<usize>, SoftNicError> {
        match rustix::io::read(&self.queues[queue], into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(refusal(&format!("reading from `{}`", self.name), error)),
        }
    }

    fn left(&self, queue: usize, bytes: usize) {
        if let Some(dqa) = &self.dqa {
            dqa.left(queue as u16, bytes as u32);
        }
    }

    fn write(&self, queue: usize, parts: &[IoSlice<'_>]) -> bool {
        rustix::io::writev(&self.queues[queue], parts).is_ok()
    }
}

fn open_queue(name: &str, segmentation: bool) -> Result<OwnedFd, SoftNicError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| {
        refusal(
            "opening /dev/net/tun (a kernel with CONFIG_TUN has it)",
            error,
        )
    })?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_MULTI_QUEUE | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let mut offload = OFFLOAD_CHECKSUM;
    if segmentation {
        offload |= OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_TCP_ECN;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` of 40 bytes at the pointer, which `request` is.
    let set = unsafe { Updater::<SET_INTERFACE, InterfaceRequest>::new(&mut request) };
    // SAFETY: as above; the borrow of `request` lasts for the call.
    unsafe { ioctl(&file, set) }
        .map_err(|error| refusal(&format!("making the TUN device `{name}`"), error))?;
    // SAFETY: TUNSETVNETHDRSZ reads one int at the pointer.
    unsafe { ioctl(&file, Setter::<SET_NOTE_SIZE, i32>::new(NOTE_BYTES as i32)) }
        .map_err(|error| refusal("setting the header size of the TUN device", error))?;
    // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
    unsafe { ioctl(&file, IntegerSetter::<SET_OFFLOAD>::new_usize(offload)) }
        .map_err(|error| refusal("setting the offloads of the TUN device", error))?;
    Ok(file)
}

fn refusal(action: &str, error: Errno) -> SoftNicError {
    let remedy = match error {
        Errno::PERM | Errno::ACCESS => "; run as root, or with CAP_NET_ADMIN",
        Errno::BUSY => "; another program holds a device of that name: choose another name",
        Errno::NOENT | Errno::NODEV => "; load the module tun",
        _ => "",
    };
    SoftNicError::Machine(format!("{action}: {error}{remedy}"))
}
