/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF programs and user space share, and nothing else: layouts and constants of the maps.
 *
 * Problem: both sides read the same memory (user space maps it), so a field that differs by a byte is a silent error.
 * Method: every struct has its size asserted here and again in `src/intf.rs`; a test compares the offsets by the BTF
 * of the compiled object. Plain integers of fixed size, naturally aligned, no pointers, no bit-fields.
 * Units: bytes; ticks of the kernel (jiffies: the clock that costs a program nothing; how long one is says `Tick`); weights in parts of DQA_WEIGHT_ONE.
 */
#ifndef ISOLANE_INTF_H
#define ISOLANE_INTF_H

#define DQA_QUEUES_MAX 64
#define DQA_WEIGHT_ONE 1024
/* Entries that one hash may take. Four cache lines are one page-local burst; more ways make a miss slower. */
#define DQA_WAYS 4
/* Sets when the caller names no number: 4,096 sets of 4 flows, 1 MiB. */
#define DQA_SETS 4096
#define DQA_CPUS_MAX 512
#define DQA_CONTAINERS_MAX 256
#define DQA_NO_QUEUE 0xffffffffu

/* `dqa_config.enabled`: off, the lightest queue, or one by the flow's hash as the kernel would (to compare with). */
#define DQA_OFF 0
#define DQA_BY_LOAD 1
#define DQA_BY_HASH 2

/* `dqa_config.completion` */
#define DQA_FREED 0
#define DQA_HANDED_OVER 1
/* As DQA_FREED, but what is freed is only taken in hand; user space says when it has left. */
#define DQA_IN_HAND 2
#define DQA_HAND (1ull << 63)

/* `dqa_config.weights` */
#define DQA_WEIGH_FLOWS 0
#define DQA_WEIGH_DSCP 1
#define DQA_WEIGH_CONTAINERS 2

/*
 * `dqa_flow.backlog`, one word, so that one compare-and-swap changes all of it:
 * packets not yet completed | their bytes | number of the packet sent last, modulo 2^14. A packet that is to be cut
 * counts as its segments.
 */
#define DQA_PACKETS_BITS 20
#define DQA_BYTES_BITS 30
#define DQA_NUMBER_BITS 14

/* `dqa_flow.place`, one word: weight | queue << 32. `dqa_state.load`, one word: weight | flows << 40. */
#define DQA_QUEUE_SHIFT 32
#define DQA_FLOWS_SHIFT 40

/* What egress writes into `skb->tc_index`, where completion finds it. */
#define DQA_TAG_OURS 0x8000     /* counted; the low 14 bits are the packet's number */
#define DQA_TAG_SEGMENTED 0x4000 /* may be cut by software: what completes says */
#define DQA_TAG_PROBE 0x4000    /* alone: not counted, only says that completions work */

/* Sets that are looked through for lost completions at each tick. */
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
	/* Its container's place in `containers`, plus 1; 0 is none. */
	unsigned int container;
	/* Number of the packet completed last. */
	unsigned int completed_number;
};

struct dqa_set {
	struct dqa_flow flow[DQA_WAYS];
};

/*
 * What the data path writes, apart from flows. Whoever chooses a queue reads the loads of all of them: eight in a cache
 * line, so that for eight queues one line comes from the processor that changed it last, instead of eight. Every packet
 * reads `completed` and `waiting`, which change once in a tick.
 */
struct dqa_state {
	unsigned long long load[DQA_QUEUES_MAX];
	/* Bytes in the queue; kept only while the gate is on. */
	long long bytes[DQA_QUEUES_MAX];
	/* The last completion, and the first packet sent since then. */
	unsigned long long completed;
	unsigned long long waiting;
	unsigned long long reserved[6];
	unsigned int last_queue;
	unsigned int sweep;
	unsigned long long reserved_too[7];
	/* The packet that each queue's user-space card took last and has not yet sent: DQA_HAND, its number, its key. */
	unsigned long long hand[DQA_QUEUES_MAX];
};

/* What user space decides. The first cache line is what every packet reads. */
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
	/* A flow with packets in the device that were not heard of for so many ticks has lost their completions. */
	unsigned int stale_ticks;
	/* Packets leave, but nothing completed for so many ticks: the programs stand aside. */
	unsigned int fallback_ticks;
	unsigned int dscp_weights[64];
	unsigned long long processor_queues[DQA_CPUS_MAX];
	/* For user space alone: whether clsact was added with the programs, and how long a tick is. */
	unsigned int clsact_added;
	unsigned int tick_ns;
	unsigned int preference;
	/* Set by egress: somebody after it at the hook takes the tags away, so completion goes by the hash alone. */
	unsigned int untagged;
};

/* A container; the map `container_of` says which cgroup has which. */
struct dqa_container {
	unsigned long long cgroup;
	unsigned long long queues;
	unsigned int weight;
	unsigned int flows;
	unsigned long long reserved[5];
};

/* Events, counted by each processor for itself. */
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
	unsigned long long reserved[3];
};

_Static_assert(sizeof(struct dqa_flow) == 64, "a flow is one cache line");
_Static_assert(sizeof(struct dqa_set) == 256, "a set is four cache lines");
_Static_assert(sizeof(struct dqa_state) == 64 * 26, "state");
_Static_assert(sizeof(struct dqa_config) == 64 + 256 + 4096 + 16, "config");
_Static_assert(sizeof(struct dqa_container) == 64, "a container is one cache line");
_Static_assert(sizeof(struct dqa_counters) == 128, "counters");
_Static_assert(DQA_PACKETS_BITS + DQA_BYTES_BITS + DQA_NUMBER_BITS == 64, "one word");

#endif
