// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Dynamic queue assignment: chooses the transmit queue of each packet before the kernel does.
 *
 * Problem: the kernel spreads flows over queues by hash, so flows share one queue while other queues are idle
 * (titan 3).
 * Method (titan 4.1): a flow without a packet in the device takes the queue of least load and adds its weight to this
 * load. The flow keeps its queue while it has packets outstanding, so no packet is reordered. Its last completion
 * subtracts the weight. The decision is `titan::assign` of the crate `isolane-ethernet-policy`; a test compares both.
 *   `egress` (tc, clsact) decides, counts, and writes `queue_mapping`, which the kernel then uses.
 *   `completed` and `dropped` (tracepoints) run when the kernel frees a packet. For devices that only pass packets to
 *   a peer, `handed_over` and `dropped_before` run instead.
 *   `steer` (socket filter) returns the decision of `egress` to a TUN device.
 *   `carry` (cgroup_skb, in containers.h) notes the container of packets that will be routed.
 * A counted packet carries its number in `tc_index`. Completion reads the number with one load: it marks the packet as
 * ours, and it shows which completions the programs missed. Copies for packet sockets carry the number too; completion
 * ignores them by their packet type.
 * Units: packets on the wire. A packet that will be segmented counts as its segments from the start. The whole packet
 * and its segments complete the same number, no matter who segments it. A whole packet that software frees after
 * segmentation completes nothing.
 * Limits: 64 queues. The kernel chooses the queue of a flow that has no entry in the table, and of all flows while no
 * packet completes.
 */
#include "completion.h"
#include "containers.h"

/* Differentiated services code point of an IP packet, 64 of anything else. */
verified_apart u32 code_point(struct __sk_buff *skb)
{
	u8 head[2] = {};

	if (read_packet_from(skb, 0, head, sizeof(head), FROM_NETWORK_HEADER))
		return 64;
	switch (head[0] >> 4) {
	case 4:
		return head[1] >> 2;
	case 6:
		return (head[0] & 0x0f) << 2 | head[1] >> 6;
	}
	return 64;
}

/* Expedited forwarding and network control: packets that must not wait behind a large segment. */
static always_inline bool is_urgent(u32 point)
{
	return point == 46 || point == 48 || point == 56;
}

/*
 * The queue of least load in a set that is not empty. Among equal loads: the first queue, in cyclic order, after the
 * queue that was assigned last. A queue outside the set ranks above all. The loop has no branches, since each branch
 * doubles the paths that the verifier follows.
 */
static always_inline u32 lightest(struct dqa_state *shared, u32 queues, u64 among)
{
	u32 first = shared->last_queue + 1;
	s64 best = ~0ull >> 1;

	for (u32 queue = 0; queue < DQA_QUEUES_MAX; queue++) {
		if (queue >= queues)
			break;
		u64 turn = (queue - first) & (DQA_QUEUES_MAX - 1);
		u64 load = READ_ONCE(shared->load[queue]) & LOAD_MASK;
		s64 rank = (~among >> queue & 1) << 62 | load << 8 | turn;
		s64 gain = best - rank;

		best -= gain & ~(gain >> 63);
	}
	return (best + first) & (DQA_QUEUES_MAX - 1);
}

/* The queue of a set that a flow's hash selects; all queues of the set are equally likely. */
static noinline u32 hashed(u32 key, u64 among)
{
	u32 count = 0;

	for (u32 queue = 0; queue < DQA_QUEUES_MAX; queue++)
		count += among >> queue & 1;
	u32 left = (u64)key * count >> 32;

	for (u32 queue = 0; queue < DQA_QUEUES_MAX; queue++) {
		if (!(among >> queue & 1))
			continue;
		if (!left)
			return queue;
		left--;
	}
	return 0;
}

/* The queues of this packet's traffic class: the kernel moves a packet from other queues into its class. */
static always_inline u64 queues_of_class(struct __sk_buff *skb, struct dqa_config *settings)
{
	u64 all = settings->queues >= 64 ? ~0ull : (1ull << settings->queues) - 1;
	u64 class = settings->priority_queues[skb->priority & (DQA_PRIORITIES - 1)] & all;

	return class ? class : all;
}

/* The queues of this packet's traffic class, its container and this processor, without the latency queue. */
static always_inline u64 allowed(struct dqa_config *settings, struct dqa_container *container, u64 among)
{

	if (settings->latency_queue < DQA_QUEUES_MAX && among & ~(1ull << settings->latency_queue))
		among &= ~(1ull << settings->latency_queue);
	if (container && among & container->queues)
		among &= container->queues;
	if (settings->processor_pools) {
		u32 cpu = this_cpu() & (DQA_CPUS_MAX - 1);
		u64 pool = settings->processor_queues[cpu];

		if (among & pool)
			among &= pool;
	}
	return among;
}

/*
 * The queue that the next packet of a flow without counted packets takes in any case; DQA_NO_QUEUE if there is a choice.
 * A healed flow may have packets in its queue. The kernel keeps the first queue of a connected socket until its route
 * changes; TCP alone gives the queue up earlier, when nothing is outstanding.
 */
static always_inline u32 held_queue(struct __sk_buff *skb, struct dqa_config *settings, struct dqa_flow *flow)
{
	u32 last = READ_ONCE(flow->last);

	if (likely(!(last & (DQA_LAST_HEALED | DQA_LAST_HELD))) || settings->enabled != DQA_BY_LOAD)
		return DQA_NO_QUEUE;
	if (last & DQA_LAST_HEALED)
		return queue_of(flow->place);
	struct bpf_sock *socket = skb->sk;

	socket = socket ? full_socket(socket) : 0;
	if (!socket || socket->protocol == PROTOCOL_TCP)
		return DQA_NO_QUEUE;
	return last >> DQA_LAST_QUEUE_SHIFT & (DQA_QUEUES_MAX - 1);
}

/* Sets the queue and the weight of a flow that became backlogged. */
verified_apart u32 assign(struct __sk_buff *skb, struct dqa_config *settings, struct dqa_state *shared,
			   struct dqa_flow *flow)
{
	struct dqa_container *container = 0;
	u32 latency = settings ? settings->latency_queue : DQA_NO_QUEUE;
	u64 weight = DQA_WEIGHT_ONE;
	u32 point = 64;
	u32 queue;

	if (!settings || !shared || !flow)
		return 0;
	/* No other processor changes it before the place is written. */
	u64 run = READ_ONCE(flow->backlog) >> RUN_SHIFT & 1;

	if (settings->weights == DQA_WEIGH_CONTAINERS) {
		if (!flow->container)
			flow->container = find_container(skb, flow);
		u32 index = flow->container - 1;

		if (flow->container)
			container = map_lookup(&containers, &index);
		if (container) {
			u32 flows = __sync_fetch_and_add(&container->flows, 1) + 1;

			weight = container->weight / (flows ? flows : 1);
		}
	} else {
		flow->container = 0;
	}
	u32 held = held_queue(skb, settings, flow);
	u64 class = queues_of_class(skb, settings);

	/* The latency queue is of one class. */
	if (latency < DQA_QUEUES_MAX && !(class >> latency & 1))
		latency = DQA_NO_QUEUE;
	bool sparse = latency < DQA_QUEUES_MAX && skb->len <= settings->small_bytes;

	if (settings->weights == DQA_WEIGH_DSCP || (latency < DQA_QUEUES_MAX && !sparse)) {
		point = code_point(skb);
		sparse |= latency < DQA_QUEUES_MAX && is_urgent(point);
	}
	if (settings->weights == DQA_WEIGH_DSCP && point < 64)
		weight = settings->dscp_weights[point & 63];
	if (!weight)
		weight = 1;
	if (held < settings->queues) {
		queue = held;
	} else if (sparse) {
		queue = latency;
		COUNT(sparse);
	} else if (settings->enabled == DQA_BY_HASH) {
		queue = hashed(flow->key, allowed(settings, container, class));
	} else {
		queue = lightest(shared, settings->queues, allowed(settings, container, class));
		shared->last_queue = queue;
	}
	if (queue_of(flow->place) != queue)
		flow->moves++;
	/* A held queue is no choice that could be overruled. */
	flow->place = weight | (u64)queue << DQA_QUEUE_SHIFT | run << DQA_PLACE_RUN_SHIFT |
		      (held < settings->queues ? DQA_PLACE_CHECKED : 0);
	__sync_fetch_and_add(&shared->load[queue & (DQA_QUEUES_MAX - 1)], weight + FLOW_ONE);
	if (held < settings->queues)
		COUNT(kept);
	else
		COUNT(assigned);
	return queue;
}

/*
 * Whether no packet has completed for `fallback_ticks` although packets leave: the tracepoints must be detached.
 * After half of this time, `untagged` is set: another filter may have cleared `tc_index`, and completion then
 * recognises packets by their hash.
 */
static always_inline bool is_blind(struct dqa_config *settings, struct dqa_state *shared, u64 now)
{
	u64 waiting = READ_ONCE(shared->waiting);

	if (waiting <= READ_ONCE(shared->completed)) {
		if (waiting != now)
			WRITE_ONCE(shared->waiting, now);
		return false;
	}
	if (now <= waiting)
		return false;
	if (now - waiting > settings->fallback_ticks / 2 && !settings->untagged)
		settings->untagged = 1;
	return now - waiting > settings->fallback_ticks;
}

/*
 * Whether this packet must wait. The gate stands in for TCP small queues and byte queue limits on devices that disable
 * both. A flow without a packet outstanding always passes, since only a completion or an acknowledgement makes it try
 * again. At a full queue, a flow waits if it already has its weighted share of the limit: a fair software queue above
 * the device would have kept the shares of the others free.
 */
verified_apart int is_held(struct dqa_config *settings, struct dqa_state *shared, struct dqa_flow *flow, u32 len)
{
	if (!settings || !shared || !flow)
		return false;
	u64 backlog = READ_ONCE(flow->backlog);

	if (!packets_of(backlog))
		return false;
	if (settings->gate_flow_bytes && bytes_of(backlog) + len > settings->gate_flow_bytes)
		return true;
	u64 place = READ_ONCE(flow->place);
	s64 bytes = READ_ONCE(shared->bytes[queue_of(place)]);
	u64 limit = settings->gate_queue_bytes;

	if (!limit || bytes <= 0 || (u64)bytes + len <= limit)
		return false;
	u64 load = READ_ONCE(shared->load[queue_of(place)]) & LOAD_MASK;

	return !load || bytes_of(backlog) + len > limit * weight_of(place) / load;
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	struct dqa_config *settings = map_lookup(&config, &zero);
	struct dqa_state *shared = map_lookup(&state, &zero);

	if (skb->tc_index)
		skb->tc_index = 0;
	if (!settings || !shared || !settings->enabled)
		return TC_ACT_UNSPEC;
	u64 now = ticks_now();

	if (unlikely(is_blind(settings, shared, now))) {
		skb->tc_index = DQA_TAG_PROBE;
		COUNT(untouched);
		return TC_ACT_UNSPEC;
	}
	/* The kernel later replaces a forwarded packet's hash that covers addresses only; completion sees the final hash. */
	u32 key = skb->hash && !skb->ingress_ifindex ? skb->hash : packet_hash(skb);
	u32 index = key & settings->sets_mask;
	struct dqa_set *set = map_lookup(&flows, &index);

	if (!set || !key)
		return TC_ACT_UNSPEC;
	struct dqa_flow *flow = find(set, key);

	if (unlikely(!flow)) {
		u32 way = claim(set, shared, key, now, settings->stale_ticks);

		if (way >= DQA_WAYS) {
			COUNT(full);
			return TC_ACT_UNSPEC;
		}
		flow = &set->flow[way];
	}
	u32 len = skb->len;
	u32 units = 1, segmented = 0;

	if (skb->gso_size) {
		units = segments_of(skb->gso_size, skb->gso_segs, len);
		segmented = DQA_TAG_SEGMENTED;
	}
	bool gate = settings->gate_flow_bytes || settings->gate_queue_bytes;

	if (gate && is_held(settings, shared, flow, len)) {
		COUNT(gated);
		return TC_ACT_SHOT;
	}
	if (packets_of(flow->backlog) && unlikely(is_stale(flow, now, settings->stale_ticks)))
		heal(flow, shared, now, settings->stale_ticks);
	u64 old, new;
	u32 tries = 0;

	for (;;) {
		old = READ_ONCE(flow->backlog);
		/* Another processor is choosing the queue: to count this packet would need that queue. */
		if (packets_of(old) && unlikely(!is_placed(old, READ_ONCE(flow->place)))) {
			COUNT(untouched);
			return TC_ACT_UNSPEC;
		}
		/* An overflow of the number drops out of the word. */
		new = (packets_of(old) ? old : (old & KEPT) ^ RUN_ONE) + NUMBER_ONE * units + BYTES_ONE * len + units;
		if (likely(swap(&flow->backlog, old, new) == old))
			break;
		if (++tries == TRIES)
			return TC_ACT_UNSPEC;
	}
	touch(flow, now);
	u32 queue;

	if (packets_of(old)) {
		queue = queue_of(READ_ONCE(flow->place));
		COUNT_OFTEN(kept);
	} else {
		queue = assign(skb, settings, shared, flow);
	}
	if (gate)
		__sync_fetch_and_add(&shared->bytes[queue & (DQA_QUEUES_MAX - 1)], len);
	/* Atomic: a drop on another processor takes its bytes back. */
	__sync_fetch_and_add(&flow->sent_bytes, len);
	/* Not atomic: one socket sends at a time. Where several send, the count is only a statistic. */
	flow->sent_packets += 1;
	skb->tc_index = DQA_TAG_OURS | number_of(new) | segmented;
	skb->queue_mapping = queue + 1;
	return TC_ACT_UNSPEC;
}

SEC("tp_btf/consume_skb")
int completed(u64 *ctx)
{
	return complete((struct sk_buff *)ctx[0], DONE);
}

SEC("tp_btf/kfree_skb")
int dropped(u64 *ctx)
{
	return complete((struct sk_buff *)ctx[0], LOST);
}

SEC("tp_btf/net_dev_start_xmit")
int handed_over(u64 *ctx)
{
	return complete((struct sk_buff *)ctx[0], DONE);
}

/* Drops before the device. A later drop was already counted by `handed_over`. */
SEC("tp_btf/kfree_skb")
int dropped_before(u64 *ctx)
{
	u32 reason = ctx[2];

	if (is_reason(reason, SKB_DROP_REASON_QDISC_DROP) || is_reason(reason, SKB_DROP_REASON_QDISC_OVERLIMIT) ||
	    is_reason(reason, SKB_DROP_REASON_QDISC_CONGESTED) || is_reason(reason, SKB_DROP_REASON_TC_EGRESS))
		return complete((struct sk_buff *)ctx[0], LOST);
	return 0;
}

SEC("socket")
int steer(struct __sk_buff *skb)
{
	struct dqa_config *settings = map_lookup(&config, &zero);

	if (skb->queue_mapping)
		return skb->queue_mapping - 1;
	return settings ? (u64)skb->hash * settings->queues >> 32 : 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
