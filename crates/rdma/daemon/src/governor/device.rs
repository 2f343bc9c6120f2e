//! One device: its policy, and the two directions whose senders share the policy's rate.

use super::foreign::Balance;
use super::sources::Sources;
use super::stream::Stream;
use super::tally::{ALL, READERS, Tally};
use crate::config::{Config, DeviceConfig, PolicyName};
use crate::dilation::Dilation;
use crate::order::{Grant, Order, REFERENCE_BYTES};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_rdma_policy::justitia::{Justitia, JustitiaOptions, Weights};
use isolane_rdma_policy::leases::{EVERYTHING, LeaseOptions, LimitKind, MemberId, Rates};
use isolane_rdma_policy::{Action, Direction, Policy, RemoteState, Signal};
use isolane_rdma_session::region::{Lease, METER_ACTIVE, METER_RELEASED, Service};

/// Both directions, in the order of a session's meters.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Outgoing, Direction::RemoteRead];

/// The direction of READs, in [`DIRECTIONS`].
pub(super) const READS: usize = 1;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) config: DeviceConfig,
    dilation: Dilation,
    pub(super) options: JustitiaOptions,
    /// `None`: no pacing.
    pub(super) policy: Option<Box<Justitia>>,
    pub(super) streams: [Stream; 2],
    /// The devices that its READs read.
    pub(super) sources: Sources,
    /// All latency flows, and those that READ.
    latency: [Tally; 2],
    /// Whether rates must be divided again before the loop sleeps.
    pub(super) dirty: bool,
    /// Whether bursts or chunks changed, so that idle meters need new leases too.
    pub(super) refresh_idle: bool,
    /// Traffic that no session posted.
    pub(super) foreign: Balance,
    /// The class of reference messages.
    pub(super) service: Service,
    /// The peers' last state, for a policy that restarts.
    remote: Option<RemoteState>,
    pub(super) scratch: Vec<MemberId>,
}

impl Device {
    /// Makes a device whose port has the rate `port_rate`. Fails if the policy rejects an option.
    pub(super) fn new(
        config: &Config,
        device: &DeviceConfig,
        port_rate: BitRate,
    ) -> Result<Self, OptionError> {
        let options = options(config, device, port_rate);
        options.check()?;
        let policy = match device.policy {
            PolicyName::None => None,
            PolicyName::Justitia => Some(Box::new(Justitia::new(options.clone())?)),
        };
        let lease_options = LeaseOptions {
            idle_after: config.idle_after(),
            hungry_for: config.period() * HUNGRY_PERIODS,
        };
        let rates = Rates {
            bytes_per_s: options.rate_max.as_bps() / 8,
            operations_per_s: options.message_rate_max_per_s,
        };
        Ok(Self {
            config: device.clone(),
            dilation: config.dilation,
            options,
            policy,
            streams: [rates, rates].map(|rates| Stream::new(lease_options, rates)),
            sources: Sources::default(),
            latency: <[Tally; 2]>::default(),
            dirty: true,
            refresh_idle: false,
            foreign: Balance::default(),
            service: Service::default(),
            remote: None,
            scratch: Vec::new(),
        })
    }

    /// Reports active senders and latency flows to the policy and passes its orders to `orders`.
    pub(super) fn settle(&mut self, now: Instant, orders: &mut impl FnMut(Order)) {
        let weights = self.weights();
        let Some(policy) = &mut self.policy else {
            return;
        };
        let had_latency = policy.has_latency();
        policy.set_weights(now, weights);
        self.refresh_idle |= policy.has_latency() != had_latency;
        self.perform(orders);
        if let Some(reads) = self.sources.news(&self.streams[READS]) {
            orders(Order::TellReads(reads));
        }
    }

    /// Runs the policy when its timeout is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, orders: &mut impl FnMut(Order)) {
        if let Some(policy) = &mut self.policy {
            policy.handle_timeout(now);
            self.perform(orders);
        }
    }

    /// Reports the latency of a reference message to the policy.
    pub(super) fn reference_latency(&mut self, now: Instant, latency: Duration) {
        if let Some(policy) = &mut self.policy {
            policy.on_signal(now, &Signal::ReferenceLatency(latency));
        }
    }

    /// Reports the other hosts' state to the policy.
    pub(super) fn remote(
        &mut self,
        now: Instant,
        state: RemoteState,
        orders: &mut impl FnMut(Order),
    ) {
        self.remote = Some(state);
        if let Some(policy) = &mut self.policy {
            let had_latency = policy.has_latency();
            policy.on_signal(now, &Signal::Remote(state));
            self.refresh_idle |= policy.has_latency() != had_latency;
            self.perform(orders);
        }
    }

    /// Takes over the rates at which this host may READ from its peers.
    pub(super) fn granted(&mut self, grants: Vec<Grant>) {
        let changed = self.sources.set_grants(&mut self.streams[READS], grants);
        self.dirty |= changed;
        self.refresh_idle |= changed;
    }

    /// Counts one more latency flow of the tenant or session with that number, among all or among those that READ.
    pub(super) fn add_latency(&mut self, which: usize, number: u32, weight: u32) {
        self.dirty |= self.latency[which].add(number, weight);
    }

    /// Counts one latency flow less.
    pub(super) fn remove_latency(&mut self, which: usize, number: u32) {
        self.dirty |= self.latency[which].remove(number);
    }

    /// Sum of the weights of tenants or sessions with latency flows.
    pub(super) fn latency_weight(&self) -> u64 {
        self.latency[ALL].weight
    }

    pub(super) fn set_weight(&mut self, number: u32, weight: u32) {
        for stream in &mut self.streams {
            stream.set_weight(number, weight);
        }
        for tally in &mut self.latency {
            tally.set_weight(number, weight);
        }
        self.sources.set_weight(number, weight);
        self.dirty = true;
    }

    /// Takes over the observations of the device that it replaces.
    pub(super) fn inherit(&mut self, now: Instant, other: &Self, orders: &mut impl FnMut(Order)) {
        self.foreign = other.foreign.clone();
        self.sources
            .inherit(&mut self.streams[READS], &other.sources);
        self.service = other.service;
        let had_foreign = other
            .policy
            .as_ref()
            .is_some_and(|policy| policy.has_foreign());
        if let (Some(policy), true) = (&mut self.policy, had_foreign) {
            policy.set_foreign(now, true);
        }
        if let Some(state) = other.remote {
            self.remote(now, state, orders);
        }
    }

    /// The policy's next timeout; `None` while no sender is active.
    pub(super) fn timeout(&self) -> Option<Instant> {
        match self.is_active() {
            true => self.policy.as_ref()?.poll_timeout(),
            false => None,
        }
    }

    /// Whether no lease depends on frequent reading: no latency flow exists, and each direction has at most one active
    /// sender, which has the whole rate.
    pub(super) fn is_calm(&self) -> bool {
        let has_latency = |policy: &Justitia| policy.has_latency();
        self.latency_weight() == 0
            && !self.policy.as_deref().is_some_and(has_latency)
            && self.streams.iter().all(|one| one.leases.active() <= 1)
    }

    pub(super) fn is_active(&self) -> bool {
        self.streams.iter().any(|stream| stream.leases.active() > 0)
    }

    /// Divides the rates of both directions. The caller writes the leases.
    pub(super) fn divide(&mut self) {
        if let Some(policy) = &self.policy {
            let rates = [policy.sending_rate(), policy.reading_rate()];
            for (stream, rate) in self.streams.iter_mut().zip(rates) {
                stream.leases.set_rates(Rates {
                    bytes_per_s: rate.as_bps() / 8,
                    operations_per_s: policy.messages_per_s_at(rate),
                });
            }
        }
        for stream in &mut self.streams {
            stream.leases.divide();
        }
    }

    /// The lease of a member until `valid_until_ns`. An idle member's lease has no end.
    pub(super) fn lease(&self, direction: usize, member: MemberId, valid_until_ns: u64) -> Lease {
        let leases = &self.streams[direction].leases;
        let is_active = leases.is_active(member);
        let Some(policy) = &self.policy else {
            let flags = if is_active { METER_ACTIVE } else { 0 };
            return match leases.cap(member, LimitKind::Tenant) {
                EVERYTHING => Lease {
                    flags: METER_ACTIVE | METER_RELEASED,
                    valid_until_ns: u64::MAX,
                    ..Lease::default()
                },
                limit => Lease {
                    flags,
                    valid_until_ns: if is_active { valid_until_ns } else { u64::MAX },
                    ..self.limited_lease(limit)
                },
            };
        };
        let share = match is_active {
            true => leases.share(member),
            false => leases.share_if_active(member),
        };
        let senders = leases.active() as u64 + u64::from(!is_active);
        let chunk = self.chunk(policy, direction, member, senders).get();
        let (saved, chunks) = match policy.has_latency() {
            true => {
                let default = self.dilation.real_time(BURST);
                (self.config.burst.unwrap_or(default), CHUNKS_WITH_LATENCY)
            }
            false => (self.burst_without_latency(), 1),
        };
        let in_time = |rate: u64| BitRate::from_bps(rate).bytes_in(saved * 8).get();
        Lease {
            // A rate of zero would mean no limit.
            rate_bytes_per_s: share.bytes_per_s.max(1),
            rate_operations_per_s: share.operations_per_s.max(1),
            burst_bytes: in_time(share.bytes_per_s).max(chunk * chunks),
            burst_operations: in_time(share.operations_per_s).max(OPERATIONS_LEAST),
            chunk_bytes: u32::try_from(chunk).unwrap_or(u32::MAX),
            valid_until_ns: if is_active { valid_until_ns } else { u64::MAX },
            flags: if is_active { METER_ACTIVE } else { 0 },
        }
    }

    /// Chunk size while `senders` are active in that direction. If the operator set no chunk and the target is known,
    /// the bursts of all senders together may take half of the target, and each chunk is a multiple of the packet size.
    /// The paper's 5,000 bytes fit 2 us at 56 Gb/s, but with an MTU of 4 KiB the second packet is nearly empty.
    fn chunk(&self, policy: &Justitia, direction: usize, member: MemberId, senders: u64) -> Bytes {
        let least = policy.chunk();
        if !policy.has_latency() || self.config.chunk.is_some() || self.config.target.is_none() {
            return least;
        }
        let rate = match DIRECTIONS[direction] {
            Direction::Outgoing => policy.sending_rate(),
            Direction::RemoteRead => {
                let granted = self.sources.granted(&self.streams[direction], member);
                granted.map_or(policy.reading_rate(), |granted| {
                    granted.min(policy.reading_rate())
                })
            }
        };
        let together = rate.bytes_in(self.options.target / 2).get();
        let each = together / (CHUNKS_WITH_LATENCY * senders.max(1));
        let most = self.options.token_without_latency.max(least);
        Bytes::new(each / PACKET * PACKET).clamp(least, most)
    }

    /// The lease of a limited sender on a device without a policy.
    fn limited_lease(&self, limit: u64) -> Lease {
        let chunk = self.options.token_without_latency.get();
        let saved = self.burst_without_latency();
        Lease {
            rate_bytes_per_s: limit.max(1),
            // Zero means that operations are not limited.
            rate_operations_per_s: 0,
            burst_bytes: BitRate::from_bps(limit.saturating_mul(8))
                .bytes_in(saved)
                .get()
                .max(chunk),
            chunk_bytes: u32::try_from(chunk).unwrap_or(u32::MAX),
            ..Lease::default()
        }
    }

    fn burst_without_latency(&self) -> Duration {
        let default = self.dilation.real_time(BURST_WITHOUT_LATENCY);
        self.config.burst_without_latency.unwrap_or(default)
    }

    fn weights(&self) -> Weights {
        Weights {
            sending_hungry: self.streams[0].leases.active_weight(),
            reading_hungry: self.streams[1].leases.active_weight(),
            // Those that READ post here too: this device delays their requests.
            sending_latency: self.latency_weight(),
            reading_latency: self.latency[READERS].weight,
        }
    }

    /// Performs the policy's actions.
    fn perform(&mut self, orders: &mut impl FnMut(Order)) {
        let Some(policy) = &mut self.policy else {
            return;
        };
        while let Some(action) = policy.poll_action() {
            match action {
                Action::SendReference => {
                    self.foreign.count(false, REFERENCE_BYTES.into(), 1);
                    orders(Order::SendReference);
                }
                Action::Tell(state) => orders(Order::Tell(state)),
                // The chunk is part of every lease. The other actions concern flows, which have not joined.
                _ => {}
            }
        }
        let rates = [policy.sending_rate(), policy.reading_rate()];
        for (stream, rate) in self.streams.iter().zip(rates) {
            self.dirty |= stream.leases.rates().bytes_per_s != rate.as_bps() / 8;
        }
    }
}

/// Parameters of a device: the operator's values, and values derived from its rate.
pub(super) fn options(
    config: &Config,
    device: &DeviceConfig,
    port_rate: BitRate,
) -> JustitiaOptions {
    let usable = BitRate::from_bps(port_rate.as_bps() / 100 * USABLE_PERCENT);
    let rate = device.rate.unwrap_or(usable).max(RATE_LEAST);
    let messages = device
        .message_rate_per_s
        .unwrap_or(rate.as_bps() / BITS_PER_MESSAGE)
        .max(1);
    let chunk = device.chunk.unwrap_or(CHUNK);
    let slow = |time| config.dilation.real_time(time);
    let large = rate
        .bytes_in(slow(LARGE_CHUNK_TIME))
        .clamp(LARGE_CHUNK_LEAST, LARGE_CHUNK_MOST);
    let period = device.reference_period.unwrap_or(config.period());
    let step = u128::from(rate.as_bps()) * u128::from(period.as_ps())
        / (2 * u128::from(slow(CLIMB).as_ps()));
    let target = device
        .target
        .unwrap_or(slow(TARGET_LEAST) + rate.time_for(chunk) * TARGET_CHUNKS);
    JustitiaOptions {
        reference_period: period,
        reference_count: device.reference_count.unwrap_or(REFERENCE_COUNT),
        token_dictionary: vec![(rate, chunk)],
        token_without_latency: device.chunk_without_latency.unwrap_or(large),
        additive_step: device.additive_step.unwrap_or(BitRate::from_bps(
            u64::try_from(step).unwrap_or(u64::MAX).max(1),
        )),
        idle_after: config.idle_after(),
        ..JustitiaOptions::for_device(rate, messages, target)
    }
}

/// A member that waited counts as backlogged for this many periods.
const HUNGRY_PERIODS: u64 = 8;
/// Payload share of a port's signalling rate, percent; headers and gaps take the rest.
const USABLE_PERCENT: u64 = 92;
/// Lowest rate that can be paced.
const RATE_LEAST: BitRate = BitRate::from_bps(1_000_000);
/// Bits per message at a device that reaches both limits: 200 bytes, as in the paper's device of 48 Gb/s and 30 M/s.
const BITS_PER_MESSAGE: u64 = 1_600;
/// Chunk while a latency flow exists (justitia 5.2).
const CHUNK: Bytes = Bytes::new(5_000);
/// The largest path MTU. Chunks that are multiples of it end with a full packet for every MTU.
const PACKET: u64 = 4_096;
/// Time of one chunk while no latency flow exists, within limits.
const LARGE_CHUNK_TIME: Duration = Duration::from_ms(10);
const LARGE_CHUNK_LEAST: Bytes = Bytes::from_kib(64);
const LARGE_CHUNK_MOST: Bytes = Bytes::new(1_000_000);
/// Reference latencies in the percentile: the last 0.2 s at the default period, like 10,000 at 20 us.
const REFERENCE_COUNT: usize = 200;
/// Default target: this, plus the time of so many chunks of other senders.
const TARGET_LEAST: Duration = Duration::from_us(20);
const TARGET_CHUNKS: u64 = 2;
/// Time in which SafeUtil rises from half of the device to all of it, as with the paper's step at 48 Gb/s.
const CLIMB: Duration = Duration::from_ms(60);
/// Saved credit, as time: it covers the sleep of a waiting process.
const BURST: Duration = Duration::from_us(200);
const BURST_WITHOUT_LATENCY: Duration = Duration::from_ms(2);
/// One chunk is sent while the credit of the next one grows, so a process may oversleep by one chunk without a loss.
const CHUNKS_WITH_LATENCY: u64 = 2;
/// Fewest messages of a burst.
const OPERATIONS_LEAST: u64 = 4;
