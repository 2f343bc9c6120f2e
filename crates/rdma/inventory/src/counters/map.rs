//! The common meaning of each driver's counters.
//!
//! For each counter the first available entry counts, so an entry with the exact meaning comes before an approximate
//! one. Names changed between kernels; all spellings are listed. Port data counters are in 4-byte words on every device
//! that has them (IBTA, PortXmitData); `factor` converts them.
//!
//! No driver here counts misses of the RNIC's context caches (ICM) where an operator can read them without the vendor's
//! own tools; PCIe stalls, of mlx5, are the nearest.
//!
//! Sources: the drivers of Linux 6.12 (`mlx5_ib/counters.c`, `bnxt_re/hw_counters.c`, `bnxt_ethtool.c`, `irdma/verbs.c`,
//! `efa/efa_verbs.c`, `rxe_hw_counters.c`), `Documentation/networking/.../mlx5/counters.rst`, and
//! `Documentation/ABI/stable/sysfs-class-infiniband`.

use isolane_common_linux::root::Root;
use serde::Serialize;
use std::fmt;

/// A counter with a meaning common to all vendors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// RDMA bytes sent.
    TxBytes,
    /// RDMA bytes received.
    RxBytes,
    /// RDMA packets sent.
    TxPackets,
    /// RDMA packets received.
    RxPackets,
    /// Bytes that the network device below sent; they include RDMA on Soft-RoCE and siw only.
    NetdevTxBytes,
    /// Bytes that the network device below received.
    NetdevRxBytes,
    /// Negative acknowledgements received because the peer had no receive posted.
    RnrNaksReceived,
    /// Messages that arrived when no receive was posted here.
    RnrNaksSent,
    /// Retransmitted packets, or restarts of sending, depending on the driver.
    Retransmits,
    /// Acknowledgements that did not arrive in time.
    Timeouts,
    /// Negative acknowledgements received for a sequence gap: our packets were lost.
    SequenceNaks,
    /// Packets received out of sequence: packets to us were lost or reordered.
    OutOfSequence,
    /// Requests received twice.
    DuplicateRequests,
    /// Packets received with a congestion mark (ECN).
    EcnMarked,
    /// Congestion notifications sent.
    CnpSent,
    /// Received congestion notifications that slowed a flow.
    CnpHandled,
    /// Received congestion notifications without an effect.
    CnpIgnored,
    /// Received packets dropped because no buffer was free.
    RxDrops,
    /// Packets dropped before sending.
    TxDrops,
    /// Ticks with data to send and no credit (InfiniBand).
    TxWaitTicks,
    /// Pause frames sent for the whole link.
    PausesSent,
    /// Pause frames received for the whole link.
    PausesReceived,
    /// Pause frames sent, over all priorities.
    PriorityPausesSent,
    /// Pause frames received, over all priorities.
    PriorityPausesReceived,
    /// Time for which pause frames held the sender on the other side, over all priorities, microseconds.
    PauseSentUs,
    /// Time for which received pause frames held this sender, over all priorities, microseconds.
    PauseReceivedUs,
    /// RDMA bytes between two ends of this device, which cross no wire.
    LoopbackBytes,
    /// Queue pair contexts that the device read from the host.
    ContextMisses,
    /// Address translations that the device read from the host.
    TranslationMisses,
    /// Protection entries that the device read from the host.
    ProtectionMisses,
    /// Receives that the device read from the host when their message was there already.
    ReceiveMisses,
    /// Events in which a PCIe read waited for the host.
    PcieReadStalls,
    /// Events in which a PCIe write waited for the host.
    PcieWriteStalls,
    /// Symbol or frame check errors on the wire.
    WireErrors,
}

impl Counter {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::TxBytes => "tx_bytes",
            Self::RxBytes => "rx_bytes",
            Self::TxPackets => "tx_packets",
            Self::RxPackets => "rx_packets",
            Self::NetdevTxBytes => "netdev_tx_bytes",
            Self::NetdevRxBytes => "netdev_rx_bytes",
            Self::RnrNaksReceived => "rnr_naks_received",
            Self::RnrNaksSent => "rnr_naks_sent",
            Self::Retransmits => "retransmits",
            Self::Timeouts => "timeouts",
            Self::SequenceNaks => "sequence_naks",
            Self::OutOfSequence => "out_of_sequence",
            Self::DuplicateRequests => "duplicate_requests",
            Self::EcnMarked => "ecn_marked",
            Self::CnpSent => "cnp_sent",
            Self::CnpHandled => "cnp_handled",
            Self::CnpIgnored => "cnp_ignored",
            Self::RxDrops => "rx_drops",
            Self::TxDrops => "tx_drops",
            Self::TxWaitTicks => "tx_wait_ticks",
            Self::PausesSent => "pauses_sent",
            Self::PausesReceived => "pauses_received",
            Self::PriorityPausesSent => "priority_pauses_sent",
            Self::PriorityPausesReceived => "priority_pauses_received",
            Self::PauseSentUs => "pause_sent_us",
            Self::PauseReceivedUs => "pause_received_us",
            Self::LoopbackBytes => "loopback_bytes",
            Self::ContextMisses => "context_misses",
            Self::TranslationMisses => "translation_misses",
            Self::ProtectionMisses => "protection_misses",
            Self::ReceiveMisses => "receive_misses",
            Self::PcieReadStalls => "pcie_read_stalls",
            Self::PcieWriteStalls => "pcie_write_stalls",
            Self::WireErrors => "wire_errors",
        }
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Where a counter is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `/sys/class/infiniband/DEVICE/ports/PORT/counters`.
    Port,
    /// `.../hw_counters`.
    Hardware,
    /// `/sys/class/net/NETDEV/statistics`.
    NetworkDevice,
    /// `ethtool -S NETDEV`.
    Ethtool,
    /// Pause frames reported by DCB.
    FlowControl,
}

/// A driver, by the family of its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// NVIDIA ConnectX-4 and later.
    Mlx5,
    /// Broadcom NetXtreme-E.
    Bnxt,
    /// Intel E810, X722.
    Irdma,
    /// Amazon Elastic Fabric Adapter.
    Efa,
    /// Soft-RoCE.
    Rxe,
    /// Soft-iWARP.
    Siw,
    /// A device of `isolane rdma emulate`.
    Emulated,
    /// Any other driver, by the kernel's name.
    Other(String),
}

impl Driver {
    /// The driver of `device`: that of its PCI function, or the software driver that needs none.
    pub fn of(root: &Root, device: &str) -> Self {
        let folder = format!("/sys/class/infiniband/{device}");
        match root
            .link_name(&format!("{folder}/device/driver"))
            .as_deref()
        {
            Some("mlx5_core") => Self::Mlx5,
            Some("bnxt_en") => Self::Bnxt,
            Some("ice" | "i40e" | "idpf" | "irdma") => Self::Irdma,
            Some("efa") => Self::Efa,
            Some("isolane-emulator") => Self::Emulated,
            Some(other) => Self::Other(other.to_owned()),
            // Soft-RoCE names its parent network device; siw names none and is an RNIC (type 4).
            None if root.exists(&format!("{folder}/parent")) => Self::Rxe,
            None if root.number_before_colon(&format!("{folder}/node_type")) == Some(4) => {
                Self::Siw
            }
            None => Self::Other("unknown".to_owned()),
        }
    }

    /// Whether the host's processor does the device's work.
    pub fn is_software(&self) -> bool {
        matches!(self, Self::Rxe | Self::Siw | Self::Emulated)
    }

    /// Name of the kernel module.
    pub fn name(&self) -> &str {
        match self {
            Self::Mlx5 => "mlx5_ib",
            Self::Bnxt => "bnxt_re",
            Self::Irdma => "irdma",
            Self::Efa => "efa",
            Self::Rxe => "rdma_rxe",
            Self::Siw => "siw",
            Self::Emulated => "emulated",
            Self::Other(name) => name,
        }
    }
}

/// One line of the map.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The common counter.
    pub counter: Counter,
    /// Where it is read from.
    pub source: Source,
    /// The driver's names of it, newest kernels first.
    pub names: &'static [&'static str],
    /// True where the values of all names are added up, one per priority.
    pub sum: bool,
    /// Common units per count: 4 if the driver counts words and the unit is bytes.
    pub factor: u32,
    /// Width of the counter in the device, bits.
    pub bits: u32,
}

impl Entry {
    /// The modulus at which the value, in the common unit, wraps; zero means 2^64.
    pub fn modulus(&self) -> u64 {
        match self.bits {
            32 => u64::from(self.factor) << 32,
            _ => 0,
        }
    }
}

/// The entries of a driver, most exact first.
pub fn entries(driver: &Driver) -> impl Iterator<Item = &'static Entry> + use<> {
    let own = match driver {
        Driver::Mlx5 => MLX5,
        Driver::Bnxt => BNXT,
        Driver::Irdma => IRDMA,
        Driver::Efa => EFA,
        Driver::Rxe => RXE,
        Driver::Siw => SIW,
        Driver::Emulated => EMULATED,
        Driver::Other(_) => &[],
    };
    let port: &[Entry] = match driver {
        Driver::Rxe | Driver::Siw => &[],
        _ => PORT,
    };
    own.iter().chain(port).chain(COMMON)
}

const fn wide(counter: Counter, source: Source, names: &'static [&'static str]) -> Entry {
    Entry {
        counter,
        source,
        names,
        factor: 1,
        bits: 64,
        sum: false,
    }
}

const fn narrow(counter: Counter, source: Source, names: &'static [&'static str]) -> Entry {
    Entry {
        counter,
        source,
        names,
        factor: 1,
        bits: 32,
        sum: false,
    }
}

const fn words(counter: Counter, names: &'static [&'static str]) -> Entry {
    Entry {
        counter,
        source: Source::Port,
        names,
        factor: 4,
        bits: 64,
        sum: false,
    }
}

/// A counter per priority, which are added up.
const fn priorities(counter: Counter, names: &'static [&'static str]) -> Entry {
    Entry {
        counter,
        source: Source::Ethtool,
        names,
        factor: 1,
        bits: 64,
        sum: true,
    }
}

use Counter::*;
use Source::{Ethtool, Hardware, NetworkDevice, Port};

/// Queue-counter sets are 32 bits wide on the device, congestion counters 64.
#[rustfmt::skip]
const MLX5: &[Entry] = &[
    narrow(RnrNaksReceived, Hardware, &["rnr_nak_retry_err"]),
    narrow(RnrNaksSent, Hardware, &["out_of_buffer"]),
    narrow(Timeouts, Hardware, &["local_ack_timeout_err"]),
    narrow(SequenceNaks, Hardware, &["packet_seq_err"]),
    narrow(OutOfSequence, Hardware, &["out_of_sequence"]),
    narrow(DuplicateRequests, Hardware, &["duplicate_request"]),
    narrow(Retransmits, Hardware, &["roce_adp_retrans"]),
    wide(EcnMarked, Hardware, &["np_ecn_marked_roce_packets"]),
    wide(CnpSent, Hardware, &["np_cnp_sent"]),
    wide(CnpHandled, Hardware, &["rp_cnp_handled"]),
    wide(CnpIgnored, Hardware, &["rp_cnp_ignored"]),
    wide(RxDrops, Ethtool, &["rx_discards_phy"]),
    wide(TxDrops, Ethtool, &["tx_discards_phy"]),
    wide(PausesSent, Ethtool, &["tx_pause_ctrl_phy", "tx_global_pause"]),
    wide(PausesReceived, Ethtool, &["rx_pause_ctrl_phy", "rx_global_pause"]),
    priorities(
        PauseSentUs,
        &[
            "tx_prio0_pause_duration",
            "tx_prio1_pause_duration",
            "tx_prio2_pause_duration",
            "tx_prio3_pause_duration",
            "tx_prio4_pause_duration",
            "tx_prio5_pause_duration",
            "tx_prio6_pause_duration",
            "tx_prio7_pause_duration",
        ],
    ),
    priorities(
        PauseReceivedUs,
        &[
            "rx_prio0_pause_duration",
            "rx_prio1_pause_duration",
            "rx_prio2_pause_duration",
            "rx_prio3_pause_duration",
            "rx_prio4_pause_duration",
            "rx_prio5_pause_duration",
            "rx_prio6_pause_duration",
            "rx_prio7_pause_duration",
        ],
    ),
    wide(PauseSentUs, Ethtool, &["tx_global_pause_duration"]),
    wide(PauseReceivedUs, Ethtool, &["rx_global_pause_duration"]),
    wide(PcieReadStalls, Ethtool, &["outbound_pci_stalled_rd_events"]),
    wide(PcieWriteStalls, Ethtool, &["outbound_pci_stalled_wr_events"]),
    wide(WireErrors, Ethtool, &["rx_crc_errors_phy", "rx_symbol_err_phy"]),
];

#[rustfmt::skip]
const BNXT: &[Entry] = &[
    wide(TxBytes, Hardware, &["tx_roce_only_bytes", "tx_bytes"]),
    wide(RxBytes, Hardware, &["rx_roce_only_bytes", "rx_bytes"]),
    wide(TxPackets, Hardware, &["tx_roce_only_pkts", "tx_pkts"]),
    wide(RxPackets, Hardware, &["rx_roce_only_pkts", "rx_pkts"]),
    wide(RnrNaksReceived, Hardware, &["rnr_nak_retry_err", "rnr_naks_rcvd"]),
    wide(RnrNaksSent, Hardware, &["out_of_buffer", "rx_out_of_buffer"]),
    wide(Retransmits, Hardware, &["local_ack_timeout_err", "to_retransmits"]),
    wide(SequenceNaks, Hardware, &["packet_seq_err", "seq_err_naks_rcvd"]),
    wide(OutOfSequence, Hardware, &["out_of_sequence", "oos_drop_count", "res_oos_drop_count"]),
    wide(DuplicateRequests, Hardware, &["duplicate_request", "dup_req"]),
    wide(EcnMarked, Hardware, &["np_ecn_marked_roce_packets", "rx_ecn_marked_pkts"]),
    wide(CnpSent, Hardware, &["np_cnp_sent", "np_cnp_pkts", "tx_cnp_pkts"]),
    wide(CnpHandled, Hardware, &["rp_cnp_handled", "rx_cnp_pkts"]),
    wide(RxDrops, Hardware, &["rx_roce_discards"]),
    wide(TxDrops, Hardware, &["tx_roce_discards"]),
    priorities(
        PauseSentUs,
        &[
            "pfc_pri0_tx_duration_us",
            "pfc_pri1_tx_duration_us",
            "pfc_pri2_tx_duration_us",
            "pfc_pri3_tx_duration_us",
            "pfc_pri4_tx_duration_us",
            "pfc_pri5_tx_duration_us",
            "pfc_pri6_tx_duration_us",
            "pfc_pri7_tx_duration_us",
        ],
    ),
    priorities(
        PauseReceivedUs,
        &[
            "pfc_pri0_rx_duration_us",
            "pfc_pri1_rx_duration_us",
            "pfc_pri2_rx_duration_us",
            "pfc_pri3_rx_duration_us",
            "pfc_pri4_rx_duration_us",
            "pfc_pri5_rx_duration_us",
            "pfc_pri6_rx_duration_us",
            "pfc_pri7_rx_duration_us",
        ],
    ),
];

/// The IP counters of irdma count RDMA traffic of either protocol.
const IRDMA: &[Entry] = &[
    wide(TxBytes, Hardware, &["ip4OutOctets"]),
    wide(RxBytes, Hardware, &["ip4InOctets"]),
    wide(TxPackets, Hardware, &["ip4OutPkts"]),
    wide(RxPackets, Hardware, &["ip4InPkts"]),
    narrow(RnrNaksReceived, Hardware, &["RNR received"]),
    narrow(RnrNaksSent, Hardware, &["RNR sent"]),
    narrow(Retransmits, Hardware, &["RetransSegs", "tcpRetransSegs"]),
    narrow(Timeouts, Hardware, &["RTO"]),
    narrow(SequenceNaks, Hardware, &["Nak Sequence Error"]),
    narrow(OutOfSequence, Hardware, &["Rcvd Out of order packets"]),
    wide(EcnMarked, Hardware, &["RxECNMrkd"]),
    narrow(CnpSent, Hardware, &["cnpSent"]),
    narrow(CnpHandled, Hardware, &["cnpHandled"]),
    narrow(CnpIgnored, Hardware, &["cnpIgnored"]),
    narrow(RxDrops, Hardware, &["ip4InDiscards"]),
    wide(PausesSent, Ethtool, &["link_xoff_tx.nic"]),
    wide(PausesReceived, Ethtool, &["link_xoff_rx.nic"]),
];

const EFA: &[Entry] = &[
    wide(TxBytes, Hardware, &["tx_bytes"]),
    wide(RxBytes, Hardware, &["rx_bytes"]),
    wide(TxPackets, Hardware, &["tx_pkts"]),
    wide(RxPackets, Hardware, &["rx_pkts"]),
    wide(Retransmits, Hardware, &["retrans_pkts"]),
    wide(Timeouts, Hardware, &["retrans_timeout_events"]),
    wide(RxDrops, Hardware, &["rx_drops"]),
];

/// Soft-RoCE counts no bytes; its packets cross the network device, whose bytes are the nearest thing.
const RXE: &[Entry] = &[
    wide(TxPackets, Hardware, &["sent_pkts"]),
    wide(RxPackets, Hardware, &["rcvd_pkts"]),
    wide(RnrNaksReceived, Hardware, &["rcvd_rnr_err"]),
    wide(RnrNaksSent, Hardware, &["send_rnr_err"]),
    wide(Retransmits, Hardware, &["completer_retry_err"]),
    wide(SequenceNaks, Hardware, &["rcvd_seq_err"]),
    wide(OutOfSequence, Hardware, &["out_of_seq_request"]),
    wide(DuplicateRequests, Hardware, &["duplicate_request"]),
    wide(TxDrops, Hardware, &["send_err"]),
    wide(RxDrops, NetworkDevice, &["rx_dropped"]),
];

/// siw has no counters; the network device below it carries its packets.
const SIW: &[Entry] = &[
    wide(RxDrops, NetworkDevice, &["rx_dropped"]),
    wide(TxDrops, NetworkDevice, &["tx_dropped"]),
];

/// What the broker of `isolane rdma emulate` writes beside the port counters, under the names that results of the simulator have.
const EMULATED: &[Entry] = &[
    wide(LoopbackBytes, Hardware, &["loopback_bytes"]),
    wide(PriorityPausesSent, Hardware, &["tx_prio3_pause"]),
    wide(PriorityPausesReceived, Hardware, &["rx_prio3_pause"]),
    wide(PauseSentUs, Hardware, &["tx_prio3_pause_duration"]),
    wide(PauseReceivedUs, Hardware, &["rx_prio3_pause_duration"]),
    wide(ContextMisses, Hardware, &["icm_cache_miss"]),
    wide(TranslationMisses, Hardware, &["mtt_cache_miss"]),
    wide(ProtectionMisses, Hardware, &["mpt_cache_miss"]),
    wide(ReceiveMisses, Hardware, &["receive_wqe_cache_miss"]),
    wide(CnpSent, Hardware, &["np_cnp_sent"]),
    wide(CnpHandled, Hardware, &["rp_cnp_handled"]),
    wide(OutOfSequence, Hardware, &["out_of_sequence"]),
];

/// The port counters of the InfiniBand management interface. On RoCE they count RDMA alone.
const PORT: &[Entry] = &[
    words(TxBytes, &["port_xmit_data"]),
    words(RxBytes, &["port_rcv_data"]),
    wide(TxPackets, Port, &["port_xmit_packets"]),
    wide(RxPackets, Port, &["port_rcv_packets"]),
    wide(TxWaitTicks, Port, &["port_xmit_wait"]),
    wide(TxDrops, Port, &["port_xmit_discards"]),
    wide(WireErrors, Port, &["symbol_error"]),
];

/// What every network device has.
const COMMON: &[Entry] = &[
    wide(NetdevTxBytes, NetworkDevice, &["tx_bytes"]),
    wide(NetdevRxBytes, NetworkDevice, &["rx_bytes"]),
];
