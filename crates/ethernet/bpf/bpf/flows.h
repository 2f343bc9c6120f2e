/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The state of one flow: its backlog in the device, its queue, and the weight that it added to this queue's load.
 *
 * Problem: egress and completion run on different processors without a lock. The tracing programs may miss a packet,
 * since the kernel skips a tracing program that would interrupt itself.
 * Method: `backlog` is one word that changes by compare-and-swap only. The program that raises its packet count from 0
 * chooses the place and adds the weight. The program that lowers the count to 0 subtracts the weight that the place
 * names. In between only `follow` and `is_first` change the place, also by compare-and-swap. Until the place is written, it
 * names the run before, and no other processor counts packets of the flow or drains it. Packets of one flow leave their queue in
 * order, so the completion of packet n completes all packets up to n, also those whose completion was missed.
 * A flow whose last completion was missed is found by its age: `sweep` looks through a few sets per tick. A slow device
 * makes such a flow too, whose packets are still outstanding. So a healed flow keeps its queue until one of its later
 * packets has completed, and its earlier packets complete nothing.
 * Limits: 2^20 packets, 2^29 bytes and a run of 2^14 packets in one flow.
 */
#ifndef ISOLANE_FLOWS_H
#define ISOLANE_FLOWS_H

#include "maps.h"

#define PACKETS_MASK ((1ull << DQA_PACKETS_BITS) - 1)
#define BYTES_ONE (1ull << DQA_PACKETS_BITS)
#define BYTES_MASK ((1ull << DQA_BYTES_BITS) - 1)
#define RUN_SHIFT (DQA_PACKETS_BITS + DQA_BYTES_BITS)
#define RUN_ONE (1ull << RUN_SHIFT)
#define NUMBER_SHIFT (RUN_SHIFT + DQA_RUN_BITS)
#define NUMBER_ONE (1ull << NUMBER_SHIFT)
#define NUMBER_MASK ((1u << DQA_NUMBER_BITS) - 1)
/* What stays of a drained flow's backlog: run and number. */
#define KEPT (~(RUN_ONE - 1))
#define LOAD_MASK ((1ull << DQA_FLOWS_SHIFT) - 1)
#define FLOW_ONE (1ull << DQA_FLOWS_SHIFT)

/* The part of `dqa_flow.last` that names a queue. */
#define DQA_LAST_QUEUE (DQA_LAST_HELD | (DQA_QUEUES_MAX - 1) << DQA_LAST_QUEUE_SHIFT)

/* Tries of a compare-and-swap. Two processors seldom change one flow at once; eight failures in a row do not occur. */
#define TRIES 8

static always_inline u32 packets_of(u64 backlog)
{
	return backlog & PACKETS_MASK;
}

static always_inline u32 bytes_of(u64 backlog)
{
	return backlog >> DQA_PACKETS_BITS & BYTES_MASK;
}

static always_inline u32 number_of(u64 backlog)
{
	return backlog >> NUMBER_SHIFT;
}

static always_inline u32 queue_of(u64 place)
{
	return place >> DQA_QUEUE_SHIFT & (DQA_QUEUES_MAX - 1);
}

/* Whether the processor that counted the first of the outstanding packets has chosen their place. */
static always_inline bool is_placed(u64 backlog, u64 place)
{
	return !((backlog >> RUN_SHIFT ^ place >> DQA_PLACE_RUN_SHIFT) & 1);
}

static always_inline u64 weight_of(u64 place)
{
	return (u32)place;
}

static always_inline u64 swap(u64 *word, u64 old, u64 new)
{
	return __sync_val_compare_and_swap(word, old, new);
}

static always_inline bool is_stale(const struct dqa_flow *flow, u64 now, u32 stale_ticks)
{
	u64 touched = READ_ONCE(flow->touched);

	return now > touched && now - touched > stale_ticks;
}

static always_inline void touch(struct dqa_flow *flow, u64 now)
{
	if (flow->touched != now)
		WRITE_ONCE(flow->touched, now);
}

/* Whether this packet of a flow, or a later one, completed already. Numbers more than half of their range apart cannot be
 * ordered. */
static always_inline bool is_past(u32 last, u32 number)
{
	return !(last & DQA_LAST_NONE) && ((last - number) & NUMBER_MASK) <= NUMBER_MASK / 2;
}

/* A flow drained: subtracts its weight from the load of its queue, and the flow from its container. */
verified_apart int give_back(struct dqa_state *shared, u64 place, u32 container)
{
	u32 index = container - 1;

	if (!shared)
		return 0;
	__sync_fetch_and_add(&shared->load[queue_of(place)], -(weight_of(place) + FLOW_ONE));
	if (container) {
		struct dqa_container *owner = map_lookup(&containers, &index);

		if (owner)
			__sync_fetch_and_add(&owner->flows, -1);
	}
	return 0;
}

/* Drains a stale flow, whose completions were missed. Returns 1 to the one caller that drained it. */
verified_apart int heal(struct dqa_flow *flow, struct dqa_state *shared, u64 now, u32 stale_ticks)
{
	if (!flow || !shared)
		return 0;
	u64 old = READ_ONCE(flow->backlog);
	u64 place = READ_ONCE(flow->place);
	u32 container = flow->container;
	u32 bytes = bytes_of(old);

	if (!packets_of(old) || !is_placed(old, place) || !is_stale(flow, now, stale_ticks))
		return 0;
	if (swap(&flow->backlog, old, old & KEPT) != old)
		return 0;
	WRITE_ONCE(flow->last, (flow->last & DQA_LAST_QUEUE) | number_of(old) | DQA_LAST_HEALED);
	if (bytes)
		__sync_fetch_and_add(&shared->bytes[queue_of(place)], -(s64)bytes);
	give_back(shared, place, container);
	COUNT(healed);
	return 1;
}

/* Drains the stale flows of the next few sets. */
verified_apart int sweep(struct dqa_state *shared, u32 sets_mask, u64 now, u32 stale_ticks)
{
	if (!shared)
		return 0;
	u32 first = __sync_fetch_and_add(&shared->sweep, DQA_SWEEP_SETS);

	for (u32 i = 0; i < DQA_SWEEP_SETS; i++) {
		u32 index = (first + i) & sets_mask;
		struct dqa_set *set = map_lookup(&flows, &index);

		if (!set)
			return 0;
		for (u32 way = 0; way < DQA_WAYS; way++) {
			struct dqa_flow *flow = &set->flow[way];

			if (packets_of(flow->backlog) && is_stale(flow, now, stale_ticks))
				heal(flow, shared, now, stale_ticks);
		}
	}
	return 0;
}

static always_inline struct dqa_flow *find(struct dqa_set *set, u32 key)
{
	for (u32 way = 0; way < DQA_WAYS; way++)
		if (set->flow[way].key == key)
			return &set->flow[way];
	return 0;
}

/* An entry for a new flow: a free one, else the entry of the flow that has been without backlog for longest. */
verified_apart u32 claim(struct dqa_set *set, struct dqa_state *shared, u32 key, u64 now, u32 stale_ticks)
{
	u32 best = DQA_WAYS;
	u64 oldest = ~0ull;

	if (!set || !shared)
		return DQA_WAYS;
	for (u32 way = 0; way < DQA_WAYS; way++) {
		struct dqa_flow *flow = &set->flow[way];

		if (packets_of(flow->backlog) && !heal(flow, shared, now, stale_ticks))
			continue;
		u64 age = flow->key ? flow->touched + 1 : 0;

		if (age < oldest) {
			oldest = age;
			best = way;
		}
	}
	if (best >= DQA_WAYS)
		return DQA_WAYS;
	struct dqa_flow *flow = &set->flow[best & (DQA_WAYS - 1)];
	u32 old = flow->key;

	if (__sync_val_compare_and_swap(&flow->key, old, key) != old)
		return DQA_WAYS;
	if (old)
		COUNT(evicted);
	flow->moves = 0;
	flow->sent_bytes = 0;
	flow->sent_packets = 0;
	flow->owner = 0;
	flow->container = 0;
	flow->last = DQA_LAST_NONE;
	flow->touched = now;
	return best;
}

#endif
