//! perftest's options: letters, long names, and what they mean here.
//!
//! The list follows the option table of perftest 4.5 (`perftest_parameters.c`). Method: as `getopt_long` does,
//! short options may be joined (`-FR`, `-s8`), long ones may carry `=` and may be cut to a unique prefix.

use isolane_common_toml_input::error::{CommandError, nearest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It shapes the traffic.
    Honoured,
    /// It cannot change the traffic; docs/reference/perftest.md says why.
    Ignored,
    /// It would change what runs in a way the model does not have; the reason is for the user.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Opt {
    pub(super) letter: Option<char>,
    pub(super) long: &'static str,
    pub(super) takes_value: bool,
    pub(super) usage: Use,
}

/// An option found on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: &'static str,
    pub(super) written: String,
    /// Its value; empty when it takes none.
    pub(super) value: String,
}

/// Splits the words after the program into honoured options; other words must be at most one host name.
pub(super) fn scan(line: &str) -> Result<Vec<Found>, CommandError> {
    let mut words = line.split_whitespace().skip(1);
    let mut found: Vec<Found> = Vec::new();
    let mut server = None;
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let option = by_name(name)?;
            let written = format!("--{}", option.long);
            let value = match (option.takes_value, value) {
                (true, Some(value)) => value.to_owned(),
                (true, None) => words
                    .next()
                    .ok_or_else(|| lacks_value(&written))?
                    .to_owned(),
                (false, None) => String::new(),
                (false, Some(_)) => return Err(CommandError::new(word, "takes no value")),
            };
            keep(&mut found, option, written, value)?;
        } else if word.len() > 1 && word.starts_with('-') {
            let mut rest = word[1..].chars();
            while let Some(letter) = rest.next() {
                let option = by_letter(letter)?;
                let written = format!("-{letter}");
                if !option.takes_value {
                    keep(&mut found, option, written, String::new())?;
                    continue;
                }
                let joined = rest.as_str().to_owned();
                let value = match joined.is_empty() {
                    false => joined,
                    true => words
                        .next()
                        .ok_or_else(|| lacks_value(&written))?
                        .to_owned(),
                };
                keep(&mut found, option, written, value)?;
                break;
            }
        } else if let Some(first) = server.replace(word) {
            let reason = format!("is not an option, and the server is {first} already");
            return Err(CommandError::new(word, reason));
        }
    }
    Ok(found)
}

fn lacks_value(written: &str) -> CommandError {
    CommandError::new(written, "needs a value")
}

fn keep(
    found: &mut Vec<Found>,
    option: &'static Opt,
    written: String,
    value: String,
) -> Result<(), CommandError> {
    match option.usage {
        Use::Ignored => Ok(()),
        Use::Refused(reason) => Err(CommandError::new(written, reason)),
        Use::Honoured if found.iter().any(|other| other.name == option.long) => {
            Err(CommandError::new(written, "is given twice"))
        }
        Use::Honoured => {
            found.push(Found {
                name: option.long,
                written,
                value,
            });
            Ok(())
        }
    }
}

fn by_letter(letter: char) -> Result<&'static Opt, CommandError> {
    let option = OPTIONS.iter().find(|option| option.letter == Some(letter));
    option.ok_or_else(|| {
        let other_case = OPTIONS.iter().find(|option| {
            option
                .letter
                .is_some_and(|other| other.eq_ignore_ascii_case(&letter))
        });
        CommandError {
            option: format!("-{letter}"),
            reason: "perftest has no such option".to_owned(),
            nearest: other_case.map(|option| {
                let other = option.letter.unwrap_or(letter);
                format!("-{other}, --{}", option.long)
            }),
        }
    })
}

fn by_name(name: &str) -> Result<&'static Opt, CommandError> {
    if let Some(option) = OPTIONS.iter().find(|option| option.long == name) {
        return Ok(option);
    }
    let mut cut = OPTIONS
        .iter()
        .filter(|option| !name.is_empty() && option.long.starts_with(name));
    if let (Some(option), None) = (cut.next(), cut.next()) {
        return Ok(option);
    }
    Err(CommandError {
        option: format!("--{name}"),
        reason: "perftest has no such option".to_owned(),
        nearest: nearest(name, OPTIONS.iter().map(|option| option.long))
            .map(|near| format!("--{near}")),
    })
}

const fn honoured(letter: char, long: &'static str, takes_value: bool) -> Opt {
    Opt {
        letter: if letter == '\0' { None } else { Some(letter) },
        long,
        takes_value,
        usage: Use::Honoured,
    }
}

const fn ignored(letter: char, long: &'static str, takes_value: bool) -> Opt {
    Opt {
        letter: if letter == '\0' { None } else { Some(letter) },
        long,
        takes_value,
        usage: Use::Ignored,
    }
}

const fn refused(letter: char, long: &'static str, takes_value: bool, reason: &'static str) -> Opt {
    Opt {
        letter: if letter == '\0' { None } else { Some(letter) },
        long,
        takes_value,
        usage: Use::Refused(reason),
    }
}

/// No letter.
const NONE: char = '\0';
const RAW: &str = "belongs to raw_ethernet_* tests, which are not RDMA";
const CRYPTO: &str = "encryption offload is not modelled";
const EXITS: &str = "makes perftest print and exit: no traffic runs";
const MULTICAST: &str = "multicast is not modelled";
const HARDWARE: &str = "this accelerator's memory is not modelled; --use_cuda is";

/// Every option of perftest 4.5.
#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    honoured('s', "size", true),
    honoured('q', "qp", true),
    honoured('l', "post_list", true),
    honoured(NONE, "recv_post_list", true),
    honoured('t', "tx-depth", true),
    honoured('r', "rx-depth", true),
    honoured('c', "connection", true),
    honoured('I', "inline_size", true),
    honoured('n', "iters", true),
    honoured('D', "duration", true),
    honoured('m', "mtu", true),
    honoured('b', "bidirectional", false),
    honoured('Q', "cq-mod", true),
    honoured('o', "outs", true),
    honoured('A', "atomic_type", true),
    honoured(NONE, "run_infinitely", false),
    honoured(NONE, "rate_limit", true),
    honoured(NONE, "rate_units", true),
    honoured(NONE, "rate_limit_type", true),
    honoured(NONE, "mr_per_qp", false),
    honoured(NONE, "reversed", false),
    honoured(NONE, "use_cuda", true),
    honoured(NONE, "use_cuda_bus_id", true),
    ignored(NONE, "use_cuda_dmabuf", false),
    ignored('p', "port", true),
    ignored('d', "ib-dev", true),
    ignored('i', "ib-port", true),
    ignored('x', "gid-index", true),
    ignored('R', "rdma_cm", false),
    ignored('z', "comm_rdma_cm", false),
    ignored('F', "CPU-freq", false),
    ignored('u', "qp-timeout", true),
    ignored(NONE, "retry_count", true),
    ignored(NONE, "pkey_index", true),
    ignored(NONE, "dlid", true),
    ignored(NONE, "dont_xchg_versions", false),
    ignored(NONE, "ipv6", false),
    ignored(NONE, "ipv6-addr", false),
    ignored(NONE, "bind_source_ip", true),
    ignored(NONE, "force-link", true),
    ignored(NONE, "use_old_post_send", false),
    ignored(NONE, "perform_warm_up", false),
    ignored(NONE, "wait_destroy", true),
    ignored(NONE, "payload_file_path", true),
    ignored('S', "sl", true),
    ignored('T', "tos", true),
    ignored(NONE, "tclass", true),
    ignored('N', "noPeak", false),
    ignored('C', "report-cycles", false),
    ignored('H', "report-histogram", false),
    ignored('U', "report-unsorted", false),
    ignored('W', "report-counters", true),
    ignored('f', "margin", true),
    ignored('w', "limit_bw", true),
    ignored('y', "limit_msgrate", true),
    ignored(NONE, "report_gbits", false),
    ignored(NONE, "report-both", false),
    ignored(NONE, "output", true),
    ignored(NONE, "cpu_util", false),
    ignored(NONE, "out_json", false),
    ignored(NONE, "out_json_file", true),
    refused('a', "all", false, "one run has one size: give -s, or one tenant per size"),
    refused('e', "events", false, "completions are polled in this model; sleeping on events is not modelled"),
    refused('X', "vector", true, "completions are polled in this model; event vectors have no meaning"),
    refused('g', "mcg", false, MULTICAST),
    refused('M', "MGID", true, MULTICAST),
    refused('h', "help", false, EXITS),
    refused('V', "version", false, EXITS),
    refused('O', "dualport", false, "a NIC has one port in this model: write two tenants"),
    refused(NONE, "report-per-port", false, "a NIC has one port in this model"),
    refused(NONE, "use-srq", false, "shared receive queues are not modelled"),
    refused(NONE, "use-null-mr", false, "null memory regions are not modelled"),
    refused(NONE, "odp", false, "on-demand paging is not modelled"),
    refused(NONE, "use_hugepages", false, "translations are of 4 KiB pages in this model"),
    refused(NONE, "mmap", true, "files as buffers are not modelled"),
    refused(NONE, "mmap-offset", true, "files as buffers are not modelled"),
    refused(NONE, "use_rocm", true, HARDWARE),
    refused(NONE, "use_neuron", true, HARDWARE),
    refused(NONE, "use_neuron_dmabuf", false, HARDWARE),
    refused(NONE, "use_hl", true, HARDWARE),
    refused(NONE, "latency_gap", true, "write [[tenant.traffic]] with arrival = \"closed\", depth = 1 and think instead"),
    refused(NONE, "burst_size", true, "a limited rate is spread evenly in this model"),
    refused(NONE, "typical_pkt_size", true, "packet pacing is for raw Ethernet"),
    refused(NONE, "write_with_imm", false, "WRITE with immediate is not modelled"),
    refused(NONE, "use_ooo", false, "out-of-order placement is not modelled"),
    refused(NONE, "disable_pcie_relaxed", false, "PCIe ordering is the profile's"),
    refused(NONE, "congest_type", true, "congestion control is the profile's"),
    refused(NONE, "aes_xts", false, CRYPTO),
    refused(NONE, "encrypt_on_tx", false, CRYPTO),
    refused(NONE, "sig_before", false, CRYPTO),
    refused(NONE, "aes_block_size", true, CRYPTO),
    refused(NONE, "kek_path", true, CRYPTO),
    refused(NONE, "credentials_path", true, CRYPTO),
    refused(NONE, "data_enc_keys_number", true, CRYPTO),
    refused(NONE, "data_enc_key_app_path", true, CRYPTO),
    refused(NONE, "log_dci_streams", true, "DC is not modelled"),
    refused(NONE, "log_active_dci_streams", true, "DC is not modelled"),
    refused('L', "hop_limit", true, RAW),
    refused('B', "source_mac", true, RAW),
    refused('E', "dest_mac", true, RAW),
    refused('J', "dest_ip", true, RAW),
    refused('j', "source_ip", true, RAW),
    refused('K', "dest_port", true, RAW),
    refused('k', "source_port", true, RAW),
    refused('Y', "ethertype", true, RAW),
    refused('Z', "server", false, RAW),
    refused('P', "client", false, RAW),
    refused('v', "mac_fwd", false, RAW),
    refused('G', "use_rss", false, RAW),
    refused(NONE, "remote_mac", true, RAW),
    refused(NONE, "local_mac", true, RAW),
    refused(NONE, "remote_ip", true, RAW),
    refused(NONE, "local_ip", true, RAW),
    refused(NONE, "remote_port", true, RAW),
    refused(NONE, "local_port", true, RAW),
    refused(NONE, "tcp", false, RAW),
    refused(NONE, "raw_ipv6", false, RAW),
    refused(NONE, "raw_mcast", false, RAW),
    refused(NONE, "promiscuous", false, RAW),
    refused(NONE, "sniffer", false, RAW),
    refused(NONE, "flow_label", true, RAW),
    refused(NONE, "flows", true, RAW),
    refused(NONE, "flows_burst", true, RAW),
    refused(NONE, "reply_every", true, RAW),
    refused(NONE, "vlan_en", false, RAW),
    refused(NONE, "vlan_pcp", true, RAW),
];
