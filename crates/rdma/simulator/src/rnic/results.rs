//! From the model's sums to a [`RunResult`].

use super::cache::MissSlots;
use super::event::Event;
use super::micro::Kept;
use super::nic::{Baseline, Counts};
use super::world::World;
use isolane_common_quantities::stats::Histogram;
use isolane_rdma_policy::FlowClass;
use isolane_rdma_scenario::model::{Class, Host, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::{
    ApplicationResult, HostCounters, LatencyResult, RunResult, STEADY_MEDIANS_MIN,
    STEADY_SAMPLES_MIN, TenantResult,
};
use std::collections::BTreeMap;

impl<const RECORDS: bool> World<RECORDS> {
    /// The warm-up is over at `now`.
    pub(crate) fn start_measuring(&mut self, now: u64) {
        self.meter.measuring = true;
        self.baseline = Baseline {
            counts: (0..self.nics.len())
                .map(|host| self.counts(host, now))
                .collect(),
            grants: self.daemon_sums(|daemon| daemon.grants),
        };
        for nic in &mut self.nics {
            let micro = &mut nic.micro;
            micro.peak = Kept {
                receives: micro.receives,
                requests: micro.kept,
            };
            for buffer in &mut nic.buffers {
                buffer.peak = buffer.buffered;
            }
        }
        let at = now + self.sample_interval;
        self.schedule(at, Event::Sample);
    }

    fn daemon_sums(&self, of: impl Fn(&super::enforce::Daemon) -> u64) -> Vec<u64> {
        let daemons = self.enforcer.daemons.iter();
        daemons
            .map(|daemon| daemon.as_ref().map_or(0, |daemon| of(daemon)))
            .collect()
    }

    /// One point of the time series ends.
    pub(crate) fn sample(&mut self, now: u64) {
        self.meter.end_point();
        let at = now + self.sample_interval;
        if at <= self.end {
            self.schedule(at, Event::Sample);
        }
    }

    /// The counters of one NIC, with what its caches and open intervals hold.
    fn counts(&self, host: usize, now: u64) -> Counts {
        let nic = &self.nics[host];
        let mut counts = nic.count;
        counts.icm = [nic.contexts.hits, nic.contexts.misses];
        counts.mtt = [nic.translations.hits, nic.translations.misses];
        counts.mpt = [nic.protections.hits, nic.protections.misses];
        counts.receive_wqe = [nic.receive_wqes.hits, nic.receive_wqes.misses];
        counts.context_waited = nic.context_slots.waited;
        counts.translation_waited = nic.translation_slots.waited;
        counts.context_busy = nic.context_slots.busy;
        counts.translation_busy = nic.translation_slots.busy;
        // Stalls are charged when they begin; the part after `now` has not happened yet.
        let ahead = nic.responder_free.saturating_sub(now);
        if counts.rnr_stall > 0 {
            counts.rnr_stall -= ahead.min(counts.rnr_stall);
        } else {
            counts.drop_stall -= ahead.min(counts.drop_stall);
        }
        if nic.pausing != 0 {
            counts.pausing_ps += now - nic.pausing_since;
        }
        if nic.lanes.paused != 0 {
            counts.paused_ps += now - nic.paused_since;
        }
        counts
    }

    /// The result of the finished run.
    pub(crate) fn result(&self, scenario: &Scenario, profile: &Profile) -> RunResult {
        let measured_s = scenario.duration.as_secs_f64();
        let counters = Host::ALL[..self.nics.len()]
            .iter()
            .filter(|host| self.in_use[host.index()])
            .map(|&host| self.host_counters(host, scenario.duration.as_ps()))
            .collect();
        RunResult {
            tenants: (0..scenario.tenants.len())
                .map(|index| self.tenant_result(scenario, index))
                .collect(),
            counters,
            policy_state: self.policy_state(measured_s),
            sample_us: self.sample_interval as f64 / 1e6,
            ..RunResult::empty(scenario, &profile.name, "sim")
        }
    }

    fn policy_state(&self, measured_s: f64) -> BTreeMap<String, f64> {
        let mut state = BTreeMap::new();
        for (host, daemon) in self.enforcer.daemons.iter().enumerate() {
            let name = Host::ALL[host].letter().to_ascii_lowercase();
            self.monitor_state(host, &name, &mut state);
            self.harmonic_state(host, &name, &mut state);
            let Some(daemon) = daemon else { continue };
            for (key, value) in daemon.policy.snapshot() {
                state.insert(format!("host_{name}.{key}"), value);
            }
            let grants = daemon.grants - self.baseline.grants[host];
            state.insert(
                format!("host_{name}.tokens_per_s"),
                grants as f64 / measured_s,
            );
        }
        state
    }

    fn tenant_result(&self, scenario: &Scenario, index: usize) -> TenantResult {
        let tenant = &scenario.tenants[index];
        let meter = &self.meter.tenants[index];
        let seconds = scenario.duration.as_secs_f64();
        let gbps = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
        let point_s = self.sample_interval as f64 / 1e12;
        let mut daemons = self.enforcer.daemons.iter();
        let treated = daemons
            .find_map(|daemon| daemon.as_ref()?.class_of(index as u16))
            .map_or(tenant.class, |class| match class {
                FlowClass::Latency => Class::Latency,
                FlowClass::Throughput => Class::Throughput,
                FlowClass::Bandwidth => Class::Bandwidth,
            });
        let mut pairs: Vec<u64> = self
            .pairs
            .iter()
            .filter(|pair| usize::from(pair.tenant) == index && !pair.reference)
            .map(|pair| pair.bytes_delivered)
            .collect();
        pairs.sort_unstable();
        let pick = |position: usize| pairs.get(position).map_or(0.0, |&bytes| gbps(bytes));
        TenantResult {
            name: tenant.name.clone(),
            class: treated,
            declared_class: tenant.class,
            offered_gbps: (self.open_loop[index] || self.paced[index] > 0)
                .then(|| gbps(meter.offered) + self.paced[index] as f64 / 1e9),
            goodput_gbps: gbps(meter.delivered),
            wire_gbps: gbps(meter.sent),
            message_rate_per_s: meter.messages as f64 / seconds,
            control_rate_per_s: meter.controls as f64 / seconds,
            share: gbps(meter.delivered) / self.payload_capacity_gbps(),
            latency_us: meter
                .latencies
                .as_ref()
                .and_then(|latencies| latency_result(latencies, seconds)),
            application: self
                .programs
                .belong_to(index as u16)
                .then(|| ApplicationResult {
                    operations_per_s: meter.operations as f64 / seconds,
                    pace_per_s: meter
                        .pace
                        .per_s((scenario.warmup + scenario.duration).as_ps()),
                    operation_us: meter
                        .latencies
                        .as_ref()
                        .and_then(|latencies| latency_result(latencies, seconds)),
                }),
            policy_cores: self.policy_cores(index, seconds),
            errors: meter.errors + self.refused_connections(index),
            queue_pair_gbps: [
                pick(0),
                pick(pairs.len() / 2),
                pick(pairs.len().saturating_sub(1)),
            ],
            goodput_series_gbps: meter
                .goodput_series
                .iter()
                .map(|&bytes| bytes as f64 * 8.0 / point_s / 1e9)
                .collect(),
            p99_series_us: meter
                .p99_series
                .iter()
                .map(|p99| p99.map(|ps| ps as f64 / 1e6))
                .collect(),
        }
    }

    /// What one direction of the link can carry in payload at its default MTU, Gb/s.
    fn payload_capacity_gbps(&self) -> f64 {
        let mtu = self.mtu_default as f64;
        self.device.link_rate.as_gbps_f64() * mtu / (mtu + self.device.frame as f64)
    }

    /// Cores spent on pacing this tenant: every chunk beyond the messages themselves is posted by its own cores,
    /// every token is made and handed over by the daemon.
    fn policy_cores(&self, index: usize, seconds: f64) -> f64 {
        let mut cores = self.harmonic_cores(index);
        for daemon in self.enforcer.daemons.iter().flatten() {
            let (chunks, tokens, polls) = daemon.tenant_sums(index as u16);
            let post_s = (self.device.post + self.device.ring) as f64 / 1e12;
            let total = self.end as f64 / 1e12;
            let poll_s = polls as f64 * self.device.poll as f64 / 1e12;
            cores +=
                (chunks as f64 * post_s + tokens as f64 * TOKEN_S + poll_s) / total.max(seconds);
        }
        cores
    }

    /// The counters of one NIC since the beginning, by name.
    pub(crate) fn totals(&self, host: usize, now: u64) -> [(&'static str, u64); 32] {
        values(&self.counts(host, now), &Counts::default())
    }

    fn host_counters(&self, host: Host, duration: u64) -> HostCounters {
        let index = host.index();
        let now = self.counts(index, self.end);
        let then = self.baseline.counts[index];
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        let ratios = self.ratios(index, (&now, &then), duration);
        HostCounters {
            host,
            values: values(&now, &then).into_iter().map(named).collect(),
            ratios: ratios
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    /// Ratios from 0 to 1 of one host, from its counters `now` and `then`, `duration` ps apart.
    fn ratios(
        &self,
        host: usize,
        (now, then): (&Counts, &Counts),
        duration: u64,
    ) -> [(&'static str, f64); 23] {
        let since = |of: fn(&Counts) -> u64| of(now).saturating_sub(of(then));
        let share = |time: u64| (time as f64 / duration as f64).min(1.0);
        let of_time = |of: fn(&Counts) -> u64| share(since(of));
        let link = |of: fn(&Counts) -> u64| share(self.device.link.of(since(of)));
        let pcie = |of: fn(&Counts) -> u64| share(self.device.pcie.of(since(of)));
        let misses = |of: fn(&Counts) -> [u64; 2]| {
            let (hits, misses) = (of(now)[0] - of(then)[0], of(now)[1] - of(then)[1]);
            if hits + misses == 0 {
                0.0
            } else {
                misses as f64 / (hits + misses) as f64
            }
        };
        let nic = &self.nics[host];
        let slots = |of: fn(&Counts) -> u64, slots: &MissSlots| {
            of_time_slots(since(of), duration, slots.len())
        };
        let micro = &self.device.micro;
        let buffers = nic.buffers.iter();
        let fullest = buffers.map(|buffer| part(buffer.peak, buffer.pause_at));
        [
            ("link_tx_utilisation", link(|c| c.tx_bytes)),
            ("link_rx_utilisation", link(|c| c.rx_bytes)),
            ("pcie_to_nic_utilisation", pcie(|c| c.pcie_in_bytes)),
            ("pcie_to_host_utilisation", pcie(|c| c.pcie_out_bytes)),
            ("requester_unit_utilisation", of_time(|c| c.requester_busy)),
            ("responder_unit_utilisation", of_time(|c| c.responder_busy)),
            ("rnr_stall_ratio", of_time(|c| c.rnr_stall)),
            ("unreliable_stall_ratio", of_time(|c| c.drop_stall)),
            ("translation_stall_ratio", of_time(|c| c.translation_stall)),
            ("icm_miss_ratio", misses(|c| c.icm)),
            ("mtt_miss_ratio", misses(|c| c.mtt)),
            ("mpt_miss_ratio", misses(|c| c.mpt)),
            ("receive_wqe_miss_ratio", misses(|c| c.receive_wqe)),
            (
                "context_miss_busy",
                slots(|c| c.context_busy, &nic.context_slots),
            ),
            (
                "translation_miss_busy",
                slots(|c| c.translation_busy, &nic.translation_slots),
            ),
            ("tx_pause_ratio", of_time(|c| c.pausing_ps)),
            ("rx_pause_ratio", of_time(|c| c.paused_ps)),
            ("receive_buffer_peak_ratio", fullest.fold(0.0, f64::max)),
            (
                "receive_cache_peak_ratio",
                part(nic.micro.peak.receives, micro.receive_cache),
            ),
            (
                "request_cache_peak_ratio",
                part(nic.micro.peak.requests, micro.request_cache),
            ),
            (
                "packet_memory_ratio",
                part(nic.micro.reserved, micro.staging),
            ),
            ("remote_socket_utilisation", of_time(|c| c.paths_busy[0])),
            ("gpu_path_utilisation", of_time(|c| c.paths_busy[1])),
        ]
    }
}

/// What one host counted between `then` and `now`, by name.
fn values(now: &Counts, then: &Counts) -> [(&'static str, u64); 32] {
    let since = |of: fn(&Counts) -> u64| of(now).saturating_sub(of(then));
    let us = |of: fn(&Counts) -> u64| since(of) / 1_000_000;
    [
        ("tx_vport_rdma_unicast_bytes", since(|c| c.tx_bytes)),
        ("tx_vport_rdma_unicast_packets", since(|c| c.tx_packets)),
        ("rx_vport_rdma_unicast_bytes", since(|c| c.rx_bytes)),
        ("rx_vport_rdma_unicast_packets", since(|c| c.rx_packets)),
        ("loopback_bytes", since(|c| c.loop_bytes)),
        ("tx_prio3_pause", since(|c| c.pauses_sent)),
        ("rx_prio3_pause", since(|c| c.pauses_received)),
        ("tx_prio3_pause_duration", us(|c| c.pausing_ps)),
        ("rx_prio3_pause_duration", us(|c| c.paused_ps)),
        ("icm_cache_hit", since(|c| c.icm[0])),
        ("icm_cache_miss", since(|c| c.icm[1])),
        ("mtt_cache_hit", since(|c| c.mtt[0])),
        ("mtt_cache_miss", since(|c| c.mtt[1])),
        ("mtt_cache_prefetch", since(|c| c.translation_prefetches)),
        ("mpt_cache_hit", since(|c| c.mpt[0])),
        ("mpt_cache_miss", since(|c| c.mpt[1])),
        ("receive_wqe_cache_hit", since(|c| c.receive_wqe[0])),
        ("receive_wqe_cache_miss", since(|c| c.receive_wqe[1])),
        ("pcie_inbound_bytes", since(|c| c.pcie_in_bytes)),
        ("pcie_outbound_bytes", since(|c| c.pcie_out_bytes)),
        ("rnr_nak_sent", since(|c| c.rnr_naks)),
        ("unreliable_drops", since(|c| c.drops)),
        ("out_of_sequence", since(|c| c.out_of_sequence)),
        ("np_ecn_marked_roce_packets", since(|c| c.marks)),
        ("np_cnp_sent", since(|c| c.notifications_sent)),
        ("rp_cnp_handled", since(|c| c.notifications_handled)),
        ("doorbells", since(|c| c.doorbells)),
        ("wqe_fetched", since(|c| c.wqe_fetches)),
        ("cqe_written", since(|c| c.cqes)),
        ("acks_sent", since(|c| c.tx_acks)),
        ("regions_registered", since(|c| c.registrations)),
        ("regions_deregistered", since(|c| c.deregistrations)),
    ]
}

/// Part of `size` that `used` is, at most 1; 0 of a resource that the device does not have.
fn part(used: u64, size: u64) -> f64 {
    match size {
        0 => 0.0,
        _ => (used as f64 / size as f64).min(1.0),
    }
}

fn of_time_slots(busy: u64, duration: u64, slots: usize) -> f64 {
    (busy as f64 / duration as f64 / slots as f64).min(1.0)
}

fn latency_result(histogram: &Histogram, measured_s: f64) -> Option<LatencyResult> {
    let us = |ps: Option<u64>| ps.map(|ps| ps as f64 / 1e6);
    let p50 = us(histogram.quantile(0.5))?;
    Some(LatencyResult {
        samples: histogram.count(),
        min: us(histogram.min())?,
        mean: histogram.mean()? / 1e6,
        p50,
        p99: us(histogram.quantile(0.99))?,
        p999: us(histogram.quantile(0.999))?,
        max: us(histogram.max())?,
        steady: histogram.count() >= STEADY_SAMPLES_MIN
            && p50 * f64::from(STEADY_MEDIANS_MIN) <= measured_s * 1e6,
    })
}

/// Making and handing over one token, seconds: measured by the policy benchmark, rounded up.
const TOKEN_S: f64 = 100e-9;
