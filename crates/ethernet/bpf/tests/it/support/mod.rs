//! Namespaces, devices and traffic for tests on the real kernel; nothing outlives the test.
//!
//! Problem: the programs need root, a network of their own and a BPF file system, and tests run in parallel. Method: a
//! test runs in a thread with a network and a mount namespace of its own, which vanish with it; other hosts are further
//! namespaces that a descriptor keeps. Without the privileges a test is skipped with a message.
#![allow(dead_code)]

pub(crate) mod departures;

use isolane_common_linux::skip::skip;
use isolane_ethernet_bpf::{Completion, Dqa, DqaSettings, LoadOptions, bpffs};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;

/// Runs `test` in namespaces of its own, with a directory for pins; skips where that is not allowed.
pub(crate) fn in_lab(name: &str, test: impl FnOnce(&Path) + Send) {
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| match enter() {
            Ok(pins) => {
                test(&pins);
                None
            }
            Err(error) => Some(error),
        });
        thread.join()
    });
    match outcome {
        Ok(None) => {}
        Ok(Some(error)) => skip(format_args!(
            "{name} needs root, namespaces and BPF: {error}"
        )),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn enter() -> io::Result<PathBuf> {
    // SAFETY: affects this thread only, which was made for the test.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) })?;
    // SAFETY: constant strings; keeps our mounts out of other namespaces.
    check(unsafe {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            private,
            std::ptr::null(),
        )
    })?;
    bpffs::mount(Path::new("/mnt"))?;
    assert!(bpffs::is_bpf_fs(Path::new("/mnt")));
    ip("link set lo up");
    Ok(PathBuf::from("/mnt/device"))
}

fn check(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Another network namespace.
pub(crate) struct Host(File);

impl Host {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            // SAFETY: affects this thread only.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).expect("network namespace");
            File::open("/proc/thread-self/ns/net").expect("its file")
        });
        let host = Self(made.join().expect("a namespace"));
        host.run(|| ip("link set lo up"));
        host
    }

    /// A path by which `ip` finds it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `work` in it.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: affects this thread only.
                check(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })
                    .expect("enter the namespace");
                work()
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(arguments: &str) {
    command("ip", arguments);
}

/// Runs a program and returns what it prints.
pub(crate) fn command(program: &str, arguments: &str) -> String {
    let words = arguments.split_whitespace();
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Number of a device of this thread's namespace.
pub(crate) fn ifindex(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).expect("no zero byte");
    // SAFETY: a string that ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "no device {device}");
    index
}

/// A pair of devices with 8 queues each: `v0` here, 10.1.0.1, and `v1` in the returned host, 10.1.0.2.
pub(crate) fn veth() -> Host {
    let host = Host::new();
    let queues = "numtxqueues 8 numrxqueues 8";
    ip(&format!(
        "link add v0 {queues} type veth peer name v1 {queues} netns {}",
        host.path()
    ));
    ip("addr add 10.1.0.1/24 dev v0");
    ip("addr add fd00::1/64 dev v0 nodad");
    ip("link set v0 up");
    host.run(|| {
        ip("addr add 10.1.0.2/24 dev v1");
        ip("addr add fd00::2/64 dev v1 nodad");
        ip("link set v1 up");
    });
    host
}

/// Lets the first processor receive all packets of this end of a pair, so packets to forward arrive in the order in
/// which they were sent.
pub(crate) fn receive_on_one_processor(device: &str, queues: u32) {
    // sysfs shows the devices of the namespace in which it was mounted.
    let devices = Path::new("/mnt/sys");
    std::fs::create_dir_all(devices).expect("a directory of the BPF file system");
    // SAFETY: constant strings; in the test's own mount namespace.
    check(unsafe {
        let sysfs = c"sysfs".as_ptr();
        libc::mount(sysfs, c"/mnt/sys".as_ptr(), sysfs, 0, std::ptr::null())
    })
    .expect("sysfs of the namespace");
    for queue in 0..queues {
        let processors = devices.join(format!("class/net/{device}/queues/rx-{queue}/rps_cpus"));
        let written = std::fs::write(&processors, "1");
        written.unwrap_or_else(|error| panic!("{}: {error}", processors.display()));
    }
    // SAFETY: a constant string; nothing of it is open any more.
    check(unsafe { libc::umount(c"/mnt/sys".as_ptr()) }).expect("unmounted");
}

/// Packets that a device of this thread's namespace has sent.
pub(crate) fn sent_packets(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("its counters");
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no device {device} in {text}"));
    let sent = line.split_whitespace().nth(9).expect("ten counters");
    sent.parse().expect("a number")
}

/// A TUN device with several queues: what is sent through it can be read here, and the other way round.
pub(crate) struct Tun {
    pub(crate) queues: Vec<OwnedFd>,
}

const TUN_QUEUES_FLAGS: u16 = 0x0001 | 0x1000 | 0x0100;
const TUNSETIFF: u64 = 0x4004_54ca;
const TUNSETSTEERINGEBPF: u64 = 0x8004_54e0;

impl Tun {
    /// Makes it, without offloads: every packet is read as it is sent.
    pub(crate) fn new(name: &str, count: usize) -> Self {
        let queues = (0..count).map(|_| {
            let file = File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .expect("/dev/net/tun");
            let mut request = [0_u8; 40];
            request[..name.len()].copy_from_slice(name.as_bytes());
            request[16..18].copy_from_slice(&TUN_QUEUES_FLAGS.to_ne_bytes());
            // SAFETY: a request of the size of `struct ifreq`.
            check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) })
                .expect("TUNSETIFF");
            let fd = OwnedFd::from(file);
            // SAFETY: our own descriptor.
            check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })
                .expect("O_NONBLOCK");
            fd
        });
        let tun = Self {
            queues: queues.collect(),
        };
        // No router solicitations, so that what is read is what the test sent.
        ip(&format!("link set {name} addrgenmode none mtu 4000"));
        ip(&format!("link set {name} up"));
        tun
    }

    /// Lets a program choose the queue.
    pub(crate) fn steer(&self, program: impl AsRawFd) {
        let mut fd = program.as_raw_fd();
        // SAFETY: reads one descriptor.
        check(unsafe { libc::ioctl(self.queues[0].as_raw_fd(), TUNSETSTEERINGEBPF, &raw mut fd) })
            .expect("TUNSETSTEERINGEBPF");
    }

    /// The next packet of a queue.
    pub(crate) fn read(&self, queue: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        match rustix::io::read(&self.queues[queue], &mut buffer) {
            Ok(bytes) => {
                buffer.truncate(bytes);
                Some(buffer)
            }
            Err(rustix::io::Errno::AGAIN) => None,
            Err(error) => panic!("read queue {queue}: {error}"),
        }
    }

    /// Passes a packet to the kernel as if it had arrived from the wire.
    pub(crate) fn write(&self, queue: usize, packet: &[u8]) {
        match rustix::io::write(&self.queues[queue], packet) {
            Ok(bytes) => assert_eq!(bytes, packet.len()),
            Err(error) => panic!("write: {error}"),
        }
    }
}

/// Gives a device the first address of a subnet, over which TCP waits a minute before it sends again. A busy machine may keep a wire
/// in user space waiting for longer than the usual least timeout, 200 ms, and a retransmission after a timeout is a flow of its own,
/// which overtakes what waits in a TUN queue.
pub(crate) fn without_timeouts(device: &str, subnet: &str) {
    ip(&format!("addr add {subnet}.1/24 dev {device}"));
    ip(&format!(
        "route replace {subnet}.0/24 dev {device} proto kernel scope link src {subnet}.1 rto_min 60s"
    ));
}

/// What this thread's namespace says of packets out of order, as a receiver and as a sender.
pub(crate) fn out_of_order() -> [u64; 3] {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").expect("its counters");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next(), lines.next());
    let pairs: Vec<(&str, u64)> = names
        .zip(values)
        .map(|(names, values)| names.split_whitespace().zip(values.split_whitespace()))
        .expect("names and values")
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    ["TCPOFOQueue", "TCPSACKReorder", "TCPTSReorder"].map(|wanted| {
        let found = pairs.iter().find(|(name, _)| *name == wanted);
        found.unwrap_or_else(|| panic!("no counter {wanted}")).1
    })
}

/// How many programs run on the packets that sockets of this cgroup send.
pub(crate) fn programs_of(cgroup: impl AsRawFd) -> u32 {
    const PROG_QUERY: i32 = 16;
    const CGROUP_EGRESS: u32 = 1;
    // The descriptor, the hook, two flags, the pointer to a list, its length; then the kernel's answer.
    let mut attributes = [cgroup.as_raw_fd() as u32, CGROUP_EGRESS, 0, 0, 0, 0, 0, 0];
    let bytes = size_of_val(&attributes);
    // SAFETY: without a list, the kernel only writes the number of programs.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, attributes.as_mut_ptr(), bytes) };
    check(result as i32).expect("BPF_PROG_QUERY");
    attributes[6]
}

/// The first words of a pinned map, which the programs change at the same time. The mapping stays until the process ends.
pub(crate) fn map_words(pin: &Path, words: usize) -> &'static [AtomicU64] {
    const OBJ_GET: i32 = 7;
    let path = CString::new(pin.as_os_str().as_bytes()).expect("no zero in it");
    // The pointer to the path, then the descriptor's place and flags.
    let mut attributes = [path.as_ptr() as u64, 0];
    let bytes = size_of_val(&attributes);
    // SAFETY: the kernel reads the path, which lives, and nothing else.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET, attributes.as_mut_ptr(), bytes) } as i32;
    check(fd).expect("BPF_OBJ_GET");
    // SAFETY: just opened, without another owner.
    let map = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a new mapping, shared as atomics only; the map has more bytes than these.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(
            std::ptr::null_mut(),
            words * 8,
            access,
            libc::MAP_SHARED,
            map.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        std::slice::from_raw_parts(start.cast(), words)
    }
}

/// Sends a frame as it is through a device.
pub(crate) fn send_frame(device: &str, frame: &[u8]) {
    let socket = packet_socket();
    // SAFETY: all zero is a valid address; filled below.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = ifindex(device) as i32;
    address.sll_halen = 6;
    // SAFETY: pointers and lengths belong together.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
}

/// A socket that sees every packet of this namespace, as a capture does.
pub(crate) fn packet_socket() -> OwnedFd {
    let protocol = i32::from(0x0003_u16.to_be());
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, protocol) };
    check(fd).expect("packet socket");
    // SAFETY: just opened, without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Loads the programs for the device `t0`, attaches them and lets them steer `tun`.
pub(crate) fn load(tun: &Tun, queues: u16, pins: &Path, settings: &DqaSettings) -> Dqa {
    let options = LoadOptions {
        ifindex: ifindex("t0"),
        queues,
        completion: Completion::Freed,
        hardware_segmentation: true,
        pins: pins.into(),
        flows: 0,
    };
    let mut dqa = Dqa::load(&options, settings).expect("loads");
    dqa.attach().expect("attaches");
    tun.steer(dqa.steering_program());
    dqa
}
