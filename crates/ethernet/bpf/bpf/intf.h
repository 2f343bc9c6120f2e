/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Layouts and constants of the maps, which the BPF programs and user space share.
 *
 * Problem: user space maps the memory that the programs use, so a field that differs by a byte is a silent error.
 * Method: this file and `src/intf.rs` both assert the size of every struct, and a test compares the offsets with the
 * BTF of the compiled object. Fields are plain integers of fixed size, naturally aligned.
 * Units: bytes; ticks of the kernel (jiffies, which a program reads at no cost; `tick_ns` is the length of one);
 * weights in parts of DQA_WEIGHT_ONE.
 */
#ifndef ISOLANE_INTF_H
#define ISOLANE_INTF_H

#define DQA_QUEUES_MAX 64
#define DQA_WEIGHT_ONE 1024
/* Entries of one set. More ways make a failed look-up slower. */
#define DQA_WAYS 4
/* Default number of sets: 4,096 sets of 4 flows are 1 MiB. */
#define DQA_SETS 4096
#define DQA_CPUS_MAX 512
#define DQA_CONTAINERS_MAX 256
/* Priorities of a packet; the kernel looks at the lowest four bits (`TC_BITMASK`). */
#define DQA_PRIORITIES 16
/* Routed flows whose container is known: as many as the default table has flows. */
#define DQA_CARRIED_MAX 16384
#define DQA_NO_QUEUE 0xffffffffu

/* `dqa_config.enabled`: off; the queue of least load; or a queue by the flow's hash, as the kernel does, to compare. */
#define DQA_OFF 0
#define DQA_BY_LOAD 1
#define DQA_BY_HASH 2

/* `dqa_config.completion`: the event that completes a packet. */
#define DQA_FREED 0
#define DQA_HANDED_OVER 1
/* A freed packet is not sent yet: a card in user space took it, and user space reports when it was sent. */
#define DQA_IN_HAND 2
#define DQA_HAND (1ull << 63)

/* `dqa_config.weights`: what a weight belongs to. */
#define DQA_WEIGH_FLOWS 0
#define DQA_WEIGH_DSCP 1
#define DQA_WEIGH_CONTAINERS 2

/*
 * `dqa_flow.backlog` is one word, so that one compare-and-swap changes all of it:
 * packets not yet completed | their bytes | run | number of the packet sent last, modulo 2^14. A packet that will be
 * segmented counts as its segments. The run is one bit, which changes with the first packet of a drained flow.
 */
#define DQA_PACKETS_BITS 20
#define DQA_BYTES_BITS 29
#define DQA_RUN_BITS 1
#define DQA_NUMBER_BITS 14

/*
 * `dqa_flow.place`, one word: weight | queue << 32 | the run for which the queue was chosen | whether a packet has
 * completed since.
 * `dqa_state.load`, one word: weight | flows << 40.
 */
#define DQA_QUEUE_SHIFT 32
#define DQA_PLACE_RUN_SHIFT 62
#define DQA_PLACE_CHECKED (1ull << 63)
#define DQA_FLOWS_SHIFT 40

/* Tags that egress writes into `skb->tc_index` and completion reads. */
#define DQA_TAG_OURS 0x8000     /* counted; the low 14 bits are the packet's number */
#define DQA_TAG_SEGMENTED 0x4000 /* software may segment it: completion finds out */
#define DQA_TAG_PROBE 0x4000    /* alone: not counted, only shows that completions work */

/*
 * `dqa_flow.last`: the number and the queue of the packet that completed last | marks. NONE: no packet of this flow has
 * completed. HEALED: packets up to the number may still be outstanding; no later packet has completed. HELD: the kernel
 * kept the socket in this queue instead of the chosen one.
 */
#define DQA_LAST_QUEUE_SHIFT 16
#define DQA_LAST_HELD 0x20000000u
#define DQA_LAST_NONE 0x40000000u
#define DQA_LAST_HEALED 0x80000000u

/* Sets that each tick searches for stale flows. */
#define DQA_SWEEP_SETS 8

/* One flow: one cache line. `key` 0 means free. */
struct dqa_flow {
	unsigned int key;
	unsigned int moves;
	unsigned long long backlog;
	unsigned long long place;
	unsigned long long touched;
	unsigned long long sent_bytes;
	unsigned long long sent_packets;
	unsigned long long owner;
	/* Index of its container in `containers`, plus 1; 0 is none. */
	unsigned int container;
	unsigned int last;
};

struct dqa_set {
	struct dqa_flow flow[DQA_WAYS];
};

/*
 * State that the data path writes, apart from flows. A decision reads the loads of all queues. Eight loads share a
 * cache line, so with eight queues one line moves between processors instead of eight. Every packet reads `completed`
 * and `waiting`, which change at most once per tick.
 */
struct dqa_state {
	unsigned long long load[DQA_QUEUES_MAX];
	/* Bytes in the queue; kept only while the gate is on. */
	long long bytes[DQA_QUEUES_MAX];
	/* Ticks of the last completion, and of the first packet sent since then. */
	unsigned long long completed;
	unsigned long long waiting;
	unsigned long long reserved[6];
	unsigned int last_queue;
	unsigned int sweep;
	unsigned long long reserved_too[7];
	/* The packet that the user-space card took last from each queue and has not sent: DQA_HAND, its number, its key. */
	unsigned long long hand[DQA_QUEUES_MAX];
};

/* Settings by user space. Every packet reads the first cache line only. */
struct dqa_config {
	unsigned int enabled;
	unsigned int queues;
	unsigned int ifindex;
	unsigned int sets_mask;
	unsigned long long net_cookie;
	unsigned int completion;
	unsigned int hardware_segmentation;
	unsigned int gate_flow_bytes;
	unsigned int gate_queue_bytes;
	unsigned int weights;
	unsigned int latency_queue;
	unsigned int small_bytes;
	unsigned int processor_pools;
	/* A flow with backlog is stale after so many ticks without a packet or a completion: completions were missed. */
	unsigned int stale_ticks;
	/* Packets leave, but none completed for so many ticks: the kernel chooses the queues. */
	unsigned int fallback_ticks;
	unsigned int dscp_weights[64];
	unsigned long long processor_queues[DQA_CPUS_MAX];
	/* The queues of the traffic class of each priority; 0 without classes. */
	unsigned long long priority_queues[DQA_PRIORITIES];
	/* Only user space reads these: whether clsact was added with the programs, and the length of a tick. */
	unsigned int clsact_added;
	unsigned int tick_ns;
	unsigned int preference;
	/* Set by egress: a later filter clears the tags, so completion recognises packets by their hash. */
	unsigned int untagged;
};

/* A container; the map `container_of` has the index of each cgroup's container. */
struct dqa_container {
	unsigned long long cgroup;
	unsigned long long queues;
	unsigned int weight;
	unsigned int flows;
	unsigned long long reserved[5];
};

/* Events; each processor has its own counters. */
struct dqa_counters {
	unsigned long long assigned;
	unsigned long long kept;
	unsigned long long full;
	unsigned long long sparse;
	unsigned long long healed;
	unsigned long long untouched;
	unsigned long long gated;
	unsigned long long moved;
	unsigned long long completed;
	unsigned long long dropped;
	unsigned long long recovered;
	unsigned long long unknown;
	unsigned long long evicted;
	unsigned long long carried;
	unsigned long long socket;
	unsigned long long checked;
};

_Static_assert(sizeof(struct dqa_flow) == 64, "a flow is one cache line");
_Static_assert(sizeof(struct dqa_set) == 256, "a set is four cache lines");
_Static_assert(sizeof(struct dqa_state) == 64 * 26, "state");
_Static_assert(sizeof(struct dqa_config) == 64 + 256 + 4096 + 128 + 16, "config");
_Static_assert(sizeof(struct dqa_container) == 64, "a container is one cache line");
_Static_assert(sizeof(struct dqa_counters) == 128, "counters");
_Static_assert(DQA_PACKETS_BITS + DQA_BYTES_BITS + DQA_RUN_BITS + DQA_NUMBER_BITS == 64, "one word");

#endif
