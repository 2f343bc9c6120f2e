//! A study's TOML to a checked [`NicStudy`].
//!
//! A file with a `[nic]` table describes hosts with ordinary cards: the configuration and the card there, and either
//! `[flows]` (one pair of hosts) or `[cluster]` (all to all). `docs/reference/nic-scenario.md` describes the format. What
//! comes out is valid by construction.

use super::config::{self, CATALOGUE, NicConfig};
use super::model::{Card, NicStudy, NicTraffic, TcpCongestion};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::{DESCRIPTION, Key, Kind, NAME, SEED, count, key, required};
use isolane_common_toml_input::name::scenario_name;
use isolane_common_toml_input::table::Table;
use isolane_ethernet_policy::titan::QUEUES_MAX;

/// Longest run, picoseconds (1,000 s).
const RUN_MAX_PS: u64 = 1_000_000_000_000_000;
/// Most flows of a pair of hosts, and most hosts of a cluster (their connections are 16 bit pairs).
const FLOWS_MAX: u64 = 10_000;
const HOSTS_MAX: u64 = 256;
/// Least and most packet without Ethernet framing: IPv6's least, and jumbo frames.
const MTU: (u64, u64) = (1_280, 9_000);

const TIME: Kind = Kind::duration(0, RUN_MAX_PS);
const SOME_TIME: Kind = Kind::duration(1, RUN_MAX_PS);

static NAMES: [&str; CATALOGUE.len()] = {
    let mut names = [""; CATALOGUE.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = CATALOGUE[index].name;
        index += 1;
    }
    names
};

/// Keys of the top level.
#[rustfmt::skip]
pub(crate) const TOP: &[Key] = &[
    NAME,
    DESCRIPTION,
    SEED,
    key("warmup", TIME, "time before measuring (500ms; 0s in a cluster)"),
    key("duration", SOME_TIME, "time measured (5s); a cluster runs until its flows end"),
    required("nic", Kind::Table, "the hosts' cards and configuration"),
    key("flows", Kind::Table, "long flows between two hosts"),
    key("cluster", Kind::Table, "hosts that send to each other, all to all"),
];

/// Keys of `[nic]`.
#[rustfmt::skip]
pub(crate) const NIC: &[Key] = &[
    required("config", Kind::Choice(&NAMES), "how the hosts are set up"),
    key("rate", Kind::Rate, "line rate (10Gb/s)"),
    key("queues", count(1, QUEUES_MAX as u64), "transmit queues (8)"),
    key("processors", count(1, 1_024), "hardware threads of a host (8)"),
    key("mtu", Kind::size(MTU.0, MTU.1), "largest packet without Ethernet framing (1500)"),
    key("congestion", Kind::Choice(&["cubic", "dctcp"]), "TCP's congestion control (cubic)"),
];

/// Keys of `[flows]`.
#[rustfmt::skip]
pub(crate) const FLOWS: &[Key] = &[
    required("count", count(1, FLOWS_MAX), "how many flows"),
    key("ping", Kind::size(0, 1_400), "payload of a ping (1000)"),
    key("ping_interval", TIME, "time between pings (10ms); 0 for none"),
];

/// Keys of `[cluster]`.
#[rustfmt::skip]
pub(crate) const CLUSTER: &[Key] = &[
    required("hosts", count(2, HOSTS_MAX), "how many hosts"),
    key("second_switch", count(0, HOSTS_MAX), "of those, hosts behind the second switch (0)"),
    required("bytes", Kind::size(1, 1 << 40), "payload of each connection"),
];

/// What the caller wants other than the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicOverrides {
    /// Another configuration.
    pub config: Option<String>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Another measured time.
    pub duration: Option<Duration>,
}

/// The study written in `text`; `file` names it in messages.
///
/// ```
/// let text = "[nic]\nconfig = \"C6\"\n[flows]\ncount = 12";
/// let study = isolane_ethernet_scenario::parse::parse(text, "twelve.toml")?;
/// assert_eq!((study.name.as_str(), study.card.queues), ("twelve", 8));
/// # Ok::<(), isolane_common_toml_input::error::InputError>(())
/// ```
///
/// # Errors
/// The first mistake of the text, with file, line, key, value, and the remedy.
pub fn parse(text: &str, file: &str) -> Result<NicStudy, InputError> {
    NicOverrides::default().parse(text, file)
}

impl NicOverrides {
    /// As [`parse`], with these values in place of those of the text. Fails as [`parse`] does, and for a configuration
    /// that does not exist.
    pub fn parse(&self, text: &str, file: &str) -> Result<NicStudy, InputError> {
        Table::read(file, text, TOP, |top| study(top, file, self))
    }
}

fn study(top: &Table<'_>, file: &str, overrides: &NicOverrides) -> Result<NicStudy, InputError> {
    let name = scenario_name(top, file)?;
    let nic = top
        .table("nic", NIC)?
        .expect("opening checked that it is there");
    let traffic = traffic(top)?;
    let is_cluster = matches!(traffic, NicTraffic::AllToAll { .. });
    let warmup = match is_cluster {
        true => Duration::ZERO,
        false => Duration::from_ms(500),
    };
    let congestion: Option<TcpCongestion> = nic.choice("congestion")?;
    let duration = top.duration("duration")?.unwrap_or(Duration::from_secs(5));
    Ok(NicStudy {
        name,
        config: configuration(&nic, overrides)?,
        card: card(&nic)?,
        traffic,
        congestion: congestion.unwrap_or(TcpCongestion::Cubic),
        warmup: top.duration("warmup")?.unwrap_or(warmup),
        duration: overrides.duration.unwrap_or(duration),
        seed: overrides.seed.or(top.count("seed")?).unwrap_or(1),
    })
}

fn configuration(nic: &Table<'_>, overrides: &NicOverrides) -> Result<NicConfig, InputError> {
    let written: String = nic
        .choice("config")?
        .expect("opening checked that it is there");
    let wanted = overrides.config.as_ref().unwrap_or(&written);
    config::named(wanted).copied().ok_or_else(|| {
        let problem = Problem::unknown_name("config", wanted, NAMES.iter().copied());
        nic.error_at("config", problem)
    })
}

fn card(nic: &Table<'_>) -> Result<Card, InputError> {
    let short = |key| Ok::<_, InputError>(nic.count(key)?.map_or(8, |count| count as u16));
    Ok(Card {
        rate: nic.rate("rate")?.unwrap_or(BitRate::from_gbps(10)),
        queues: short("queues")?,
        processors: short("processors")?,
        mtu: nic.size("mtu")?.unwrap_or(Bytes::new(1_500)),
    })
}

fn traffic(top: &Table<'_>) -> Result<NicTraffic, InputError> {
    let flows = top.table("flows", FLOWS)?;
    let cluster = top.table("cluster", CLUSTER)?;
    let present = "opening checked that it is there";
    match (flows, cluster) {
        (Some(flows), None) => Ok(NicTraffic::Flows {
            flows: flows.count32("count")?.expect(present),
            ping: flows.size("ping")?.unwrap_or(Bytes::new(1_000)),
            ping_interval: flows.duration("ping_interval")?.unwrap_or(Duration::from_ms(10)),
        }),
        (None, Some(cluster)) => {
            let hosts = cluster.count32("hosts")?.expect(present);
            let second_switch = cluster.count32("second_switch")?.unwrap_or(0);
            if second_switch >= hosts {
                let expected = format!("must be below hosts, {hosts}: the first switch has the others");
                return Err(cluster.wrong("second_switch", expected));
            }
            Ok(NicTraffic::AllToAll {
                hosts,
                second_switch,
                bytes: cluster.size("bytes")?.expect(present),
            })
        }
        (Some(_), Some(_)) => Err(top.error_at("cluster", Problem::Promise {
            problem: "[flows] and [cluster] are two experiments: keep one, and put the other in a file of its own".into(),
        })),
        (None, None) => Err(top.missing("flows", "[flows] with count, or [cluster] with hosts and bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const SHIPPED: &[(&str, &str)] = &[
        ("3-flows.toml", include_str!("../../../../scenarios/titan/3-flows.toml")),
        ("6-flows.toml", include_str!("../../../../scenarios/titan/6-flows.toml")),
        ("12-flows.toml", include_str!("../../../../scenarios/titan/12-flows.toml")),
        ("48-flows.toml", include_str!("../../../../scenarios/titan/48-flows.toml")),
        ("6-hosts.toml", include_str!("../../../../scenarios/titan/6-hosts.toml")),
        ("12-hosts.toml", include_str!("../../../../scenarios/titan/12-hosts.toml")),
        ("24-hosts.toml", include_str!("../../../../scenarios/titan/24-hosts.toml")),
    ];

    fn message(text: &str) -> String {
        parse(text, "x.toml").expect_err("a mistake").to_string()
    }

    #[test]
    fn shipped_scenarios_are_valid_in_every_configuration() {
        for (file, text) in SHIPPED {
            for config in NAMES {
                let overrides = NicOverrides {
                    config: Some(config.to_lowercase()),
                    seed: Some(7),
                    duration: Some(Duration::from_ms(1)),
                };
                let study = overrides.parse(text, file).expect("valid");
                assert_eq!((study.config.name, study.seed), (config, 7));
                assert_eq!(study.duration, Duration::from_ms(1));
            }
        }
    }

    #[test]
    fn a_mistake_is_reported_with_key_value_and_remedy() {
        let wrong = message("[nic]\nconfig = \"C66\"\n[flows]\ncount = 3");
        assert!(wrong.contains("C66") && wrong.contains("C6"), "{wrong}");
        let wrong = message("[nic]\nconfig = \"C6\"\nqueues = 65\n[flows]\ncount = 3");
        assert!(wrong.contains("65") && wrong.contains("64"), "{wrong}");
        let wrong = message("[nic]\nconfig = \"C6\"\n[flows]\ncont = 3");
        assert!(wrong.contains("cont") && wrong.contains("count"), "{wrong}");
        let wrong = message(
            "[nic]\nconfig = \"C6\"\n[cluster]\nhosts = 4\nsecond_switch = 4\nbytes = \"1MB\"",
        );
        assert!(wrong.contains("below hosts, 4"), "{wrong}");
        let wrong = message("[nic]\nconfig = \"C6\"");
        assert!(wrong.contains("[cluster]"), "{wrong}");
        let wrong = message(
            "[nic]\nconfig = \"C6\"\n[flows]\ncount = 3\n[cluster]\nhosts = 4\nbytes = \"1MB\"",
        );
        assert!(wrong.contains("two experiments"), "{wrong}");
    }

    #[test]
    fn an_override_that_names_no_configuration_is_reported_with_the_nearest() {
        let overrides = NicOverrides {
            config: Some("TX4".into()),
            ..NicOverrides::default()
        };
        let text = "[nic]\nconfig = \"C6\"\n[flows]\ncount = 3";
        let wrong = overrides
            .parse(text, "x.toml")
            .expect_err("unknown")
            .to_string();
        assert!(wrong.contains("TX4") && wrong.contains("TX1"), "{wrong}");
    }
}
