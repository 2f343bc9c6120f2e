//! Sender and receiver: two network namespaces with a TUN device each, and nothing else.
//!
//! Method: the sender's device has the card's queues and no queueing discipline (`noqueue`), so that a frame that finds its
//! queue full is refused at once: TCP takes that as congestion of its own host, keeps the segment and tries again with the
//! next acknowledgement, as it does below a stopped queue. A queue's length is set in frames.
//! Units: frames; bytes. Limits: needs root; addresses are 10.98.0.1 and .2, and fd98::1 and ::2.
//! Source: ours.

use crate::error::SoftNicError;
use crate::tun::{Tun, TunOptions};
use isolane_common_linux::command::{CommandError, run, run_words};
use isolane_common_linux::namespaces;
use isolane_common_linux::namespaces::Space;
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};

/// What all our namespaces begin with.
pub const PREFIX: &str = "isolane-nic-";
/// The device, in both namespaces.
pub const DEVICE: &str = "soft0";
/// The receiver's address.
pub const RECEIVER: &str = "10.98.0.2";
/// The receiver's IPv6 address.
pub const RECEIVER6: &str = "fd98::2";
/// Frames on the way back that the receiver's device holds: acknowledgements, small.
const BACK_FRAMES: u32 = 1_000;

/// How the sender's device is made.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Transmit queues.
    pub queues: u16,
    /// The card cuts segments into packets.
    pub segmentation: bool,
    /// Frames that a queue holds.
    pub queue_frames: u32,
    /// Largest packet.
    pub mtu: u32,
}

/// Two made namespaces, removed when dropped.
#[derive(Debug)]
pub struct Pair {
    sender: Space,
    receiver: Space,
}

impl Pair {
    /// Makes them; what killed processes left is removed first. Fails if this is not root, or the machine lacks a part.
    pub fn make() -> Result<Self, SoftNicError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !namespaces::is_root() {
            return Err(SoftNicError::Machine(
                "the NIC in user space makes network namespaces, which needs root; run it with sudo (it changes nothing outside them)"
                    .to_owned(),
            ));
        }
        namespaces::remove_stale(PREFIX);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |role: char| format!("{PREFIX}{}-{number}-{role}", namespaces::maker());
        Ok(Self {
            sender: Space::make(name('s'))?,
            receiver: Space::make(name('r'))?,
        })
    }

    /// The sender's name.
    pub fn sender(&self) -> &str {
        self.sender.name()
    }

    /// The receiver's name.
    pub fn receiver(&self) -> &str {
        self.receiver.name()
    }
}

/// Opens the card's two devices in existing namespaces, with addresses, up. Fails if a namespace is not there, or the
/// machine lacks a part.
pub fn open_devices(
    sender: &str,
    receiver: &str,
    options: &DeviceOptions,
) -> Result<(Tun, Tun), SoftNicError> {
    let from = open(sender, 1, options)?;
    Ok((from, open_receiver(receiver, options.mtu)?))
}

/// Opens the receiver's device alone. Fails as [`open_devices`] does.
pub fn open_receiver(receiver: &str, mtu: u32) -> Result<Tun, SoftNicError> {
    let options = DeviceOptions {
        queues: 1,
        segmentation: true,
        queue_frames: BACK_FRAMES,
        mtu,
    };
    open(receiver, 2, &options)
}

/// A device with the address of this host, up.
fn open(space: &str, host: u8, options: &DeviceOptions) -> Result<Tun, SoftNicError> {
    let path = namespaces::file(space);
    let file = File::open(&path).map_err(|error| {
        SoftNicError::Input(format!(
            "there is no network namespace `{space}` ({}: {error}); `ip netns list` names those there are",
            path.display()
        ))
    })?;
    let tun = TunOptions {
        name: DEVICE,
        queues: options.queues,
        segmentation: options.segmentation,
    };
    let tun = Tun::open_in(&file, &tun)?;
    let (mtu, frames) = (options.mtu, options.queue_frames);
    run(&format!(
        "ip -n {space} link set {DEVICE} mtu {mtu} txqueuelen {frames}"
    ))?;
    run(&format!(
        "ip -n {space} addr replace 10.98.0.{host}/24 dev {DEVICE}"
    ))?;
    // A kernel without IPv6 is good enough.
    let _ = run(&format!(
        "ip -n {space} addr add fd98::{host}/64 dev {DEVICE} nodad"
    ));
    run(&format!(
        "tc -n {space} qdisc replace dev {DEVICE} root noqueue"
    ))?;
    run(&format!("ip -n {space} link set {DEVICE} up"))?;
    Ok(tun)
}

/// Sets the largest segment of the sender's device; open connections learn of it at once.
pub fn set_segment(sender: &str, bytes: u64) -> Result<(), SoftNicError> {
    run(&format!(
        "ip -n {sender} link set {DEVICE} gso_max_size {bytes}"
    ))?;
    write_setting(sender, "net/ipv4/route/flush", "1")?;
    Ok(())
}

/// Sets how many frames each queue of the sender's device holds.
pub fn set_queue_frames(sender: &str, frames: u32) -> Result<(), SoftNicError> {
    run(&format!(
        "ip -n {sender} link set {DEVICE} txqueuelen {frames}"
    ))?;
    Ok(())
}

/// Writes a setting of a namespace: its own, not the machine's.
fn write_setting(space: &str, key: &str, value: &str) -> Result<(), CommandError> {
    let script = format!("echo {value} > /proc/sys/{key}");
    run_words("ip", &["netns", "exec", space, "sh", "-c", &script])?;
    Ok(())
}
