/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Completion: what the counts of a flow lose when the kernel frees one of its packets, and when the queue that the
 * kernel used differs from the chosen one.
 *
 * Problem, method and units: dqa.bpf.c and flows.h. Limits: a completion that is missed, and not followed by another of
 * its flow, is found by the flow's age.
 */
#ifndef ISOLANE_COMPLETION_H
#define ISOLANE_COMPLETION_H

#include "flows.h"

/* Number of packets after segmentation. Without the kernel's number, the result may be one too high, never too low. */
static always_inline u32 segments_of(u32 size, u32 segments, u32 len)
{
	return segments ? segments : len / size + 1;
}

/* The number of this packet's segments, and their kind in the upper half; 0 for a packet that is not segmented. */
static noinline u64 segments_in(struct sk_buff *skb, u32 len)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);
	u16 size = 0, segments = 0;
	u32 kind = 0;

	read_kernel(&size, sizeof(size), &info->gso_size);
	if (!size)
		return 0;
	read_kernel(&segments, sizeof(segments), &info->gso_segs);
	read_kernel(&kind, sizeof(kind), &info->gso_type);
	return segments_of(size, segments, len) | (u64)kind << 32;
}

/* Whether the device segments packets of this kind itself, by the kernel's own rule. */
static always_inline bool device_cuts(struct net_device *device, u32 kind)
{
	u64 needed = (u64)(kind & ~SEGMENTATION_UNTRUSTED) << SEGMENTATION_SHIFT;

	return (device->features & needed) == needed;
}

/*
 * Whether the kernel kept the socket's queue instead of the chosen one. `netdev_pick_tx` keeps this queue while TCP has
 * packets below it. TCP decides that before `egress` runs; if the last of these packets completes in between, `egress` makes
 * a choice that comes too late, and the packet takes the same queue as the one before. Where the kernel picks another queue
 * itself (XPS, traffic classes), the socket has that queue too, so only the earlier packet tells.
 */
static always_inline bool is_kept_by_socket(struct sk_buff *skb, u32 last)
{
	struct sock *socket = skb->sk;

	if (last & DQA_LAST_NONE || (last >> DQA_LAST_QUEUE_SHIFT & (DQA_QUEUES_MAX - 1)) != skb->queue_mapping)
		return false;
	return socket && socket->__sk_common.skc_tx_queue_mapping == skb->queue_mapping;
}

/* The kernel used another queue than `egress` chose. Moves the flow's weight to the queue that the kernel used; the next
 * packets take the same queue. */
verified_apart int follow(struct dqa_flow *flow, struct dqa_state *shared, u64 place, u32 queue, u32 bytes)
{
	if (!flow || !shared)
		return 0;
	u64 moved = (place & 1ull << DQA_PLACE_RUN_SHIFT) | weight_of(place) | (u64)queue << DQA_QUEUE_SHIFT | DQA_PLACE_CHECKED;

	if (swap(&flow->place, place, moved) != place)
		return 0;
	u64 load = weight_of(place) + FLOW_ONE;

	__sync_fetch_and_add(&shared->load[queue_of(place)], -load);
	__sync_fetch_and_add(&shared->load[queue & (DQA_QUEUES_MAX - 1)], load);
	if (bytes) {
		__sync_fetch_and_add(&shared->bytes[queue_of(place)], -(s64)bytes);
		__sync_fetch_and_add(&shared->bytes[queue & (DQA_QUEUES_MAX - 1)], bytes);
	}
	return 1;
}

/* Whether no packet of this flow has completed since its queue was chosen; only one caller gets true. */
static always_inline bool is_first(struct dqa_flow *flow, u64 place)
{
	return !(place & DQA_PLACE_CHECKED) && swap(&flow->place, place, place | DQA_PLACE_CHECKED) == place;
}

enum ending { DONE, LOST };

static always_inline int complete(struct sk_buff *skb, enum ending ending)
{
	u32 tag = skb->tc_index;
	struct dqa_config *settings = map_lookup(&config, &zero);

	if (!settings)
		return 0;
	bool ours = tag & DQA_TAG_OURS;

	if (likely(!ours && tag != DQA_TAG_PROBE && !settings->untagged))
		return 0;
	struct net_device *device = skb->dev;

	if (device->ifindex != settings->ifindex)
		return 0;
	if (device->nd_net.net->net_cookie != settings->net_cookie)
		return 0;
	if ((*skb->__pkt_type_offset & 7) == PACKET_OUTGOING)
		return 0;
	struct dqa_state *shared = map_lookup(&state, &zero);
	u64 now = ticks_now();
	u32 key = skb->hash;
	u32 index = key & settings->sets_mask;
	struct dqa_set *set = map_lookup(&flows, &index);
	struct dqa_flow *flow = set && key ? find(set, key) : 0;

	if (!shared)
		return 0;
	/* Without a tag, only the hash tells a sent packet from a received one. */
	if (unlikely(!ours && tag != DQA_TAG_PROBE && !flow))
		return 0;
	if (shared->completed != now) {
		WRITE_ONCE(shared->completed, now);
		sweep(shared, settings->sets_mask, now, settings->stale_ticks);
	}
	if (unlikely(tag == DQA_TAG_PROBE))
		return 0;
	if (!flow) {
		COUNT(unknown);
		return 0;
	}
	touch(flow, now);
	u32 number = tag & NUMBER_MASK;

	if (settings->completion == DQA_IN_HAND && ending == DONE) {
		if (ours)
			WRITE_ONCE(shared->hand[skb->queue_mapping & (DQA_QUEUES_MAX - 1)],
				   DQA_HAND | (u64)number << 32 | key);
		return 0;
	}
	u32 len = skb->len;
	u32 units = 1;
	bool exact = ours && ending == DONE;

	if (tag & DQA_TAG_SEGMENTED || unlikely(!ours)) {
		u64 found = segments_in(skb, len);
		u32 segments = found;
		bool sent = settings->completion == DQA_HANDED_OVER ||
			    (settings->hardware_segmentation && device_cuts(device, found >> 32));

		/* Software segmented the packet and now frees the whole; its segments complete later. */
		if (segments && ending == DONE && !sent)
			return 0;
		if (segments)
			units = segments;
		else
			exact = false;
	}

	u32 last = READ_ONCE(flow->last);

	/* A busy driver gets the same packet a second time, and a healed flow's packets leave late. The segments that software
	 * cuts from a packet have one number. */
	if (ours && is_past(last, number) && (exact || last & DQA_LAST_HEALED))
		return 0;
	/* Read before the count falls to 0, after which egress may write them. */
	u64 place = READ_ONCE(flow->place);
	u32 container = flow->container;
	u32 left, bytes, rest, tries = 0;
	bool gate = settings->gate_flow_bytes || settings->gate_queue_bytes;
	u64 old;

	for (;;) {
		old = READ_ONCE(flow->backlog);
		left = packets_of(old);
		if (!left) {
			COUNT(unknown);
			return 0;
		}
		left = left > units ? left - units : 0;
		/* A queue keeps the order, so all earlier packets of the flow have left too. Numbers more than half of
		 * their range apart cannot be ordered. */
		u32 after = (number_of(old) - number) & NUMBER_MASK;

		if (exact && unlikely(after < left) && left <= NUMBER_MASK / 2) {
			left = after;
			COUNT(recovered);
		}
		bytes = bytes_of(old);
		u64 new = old & KEPT;

		if (left)
			new |= BYTES_ONE * (bytes > len ? bytes - len : 0) | left;
		rest = bytes_of(new);
		bytes -= rest;
		if (likely(swap(&flow->backlog, old, new) == old))
			break;
		if (++tries == TRIES)
			return 0;
	}
	/* A packet that was dropped may not have reached the kernel's choice. */
	bool elsewhere = ending == DONE && unlikely(skb->queue_mapping != queue_of(place)) &&
			 skb->queue_mapping < settings->queues;
	bool kept = elsewhere && is_kept_by_socket(skb, last);

	if (ending == DONE) {
		u32 next = skb->queue_mapping < DQA_QUEUES_MAX ? skb->queue_mapping << DQA_LAST_QUEUE_SHIFT : 0;

		next |= ours ? number : last & NUMBER_MASK;
		if (kept || (last & DQA_LAST_HELD && !elsewhere))
			next |= DQA_LAST_HELD;
		if (last != next)
			WRITE_ONCE(flow->last, next);
	}
	if (gate)
		__sync_fetch_and_add(&shared->bytes[queue_of(place)], -(s64)bytes);

	/* A choice whose packets were all dropped says nothing about the driver. */
	bool checked = ending == DONE && !(place & DQA_PLACE_CHECKED);

	if (!left) {
		give_back(shared, place, container);
	} else if (elsewhere) {
		elsewhere = follow(flow, shared, place, skb->queue_mapping, gate ? rest : 0);
		checked = checked && elsewhere;
	} else if (checked) {
		checked = is_first(flow, place);
	}
	if (checked)
		COUNT(checked);
	if (kept && elsewhere)
		COUNT(socket);
	else if (elsewhere)
		COUNT(moved);
	if (ending == DONE) {
		COUNT_OFTEN(completed);
	} else {
		/* A dropped packet was not sent. */
		__sync_fetch_and_add(&flow->sent_bytes, -(u64)(len < bytes ? len : bytes));
		COUNT(dropped);
	}
	return 0;
}

#endif
