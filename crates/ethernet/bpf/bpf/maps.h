/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The maps: fixed arrays that user space also maps into its memory, an index of containers, the containers of routed flows,
 * counters per processor.
 */
#ifndef ISOLANE_MAPS_H
#define ISOLANE_MAPS_H

#include "kernel.h"
#include "intf.h"

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct dqa_config);
} config SEC(".maps");

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct dqa_state);
} state SEC(".maps");

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, DQA_SETS);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct dqa_set);
} flows SEC(".maps");

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, DQA_CONTAINERS_MAX);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct dqa_container);
} containers SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, DQA_CONTAINERS_MAX);
	__type(key, u64);
	__type(value, u32);
} container_of SEC(".maps");

/* The cgroup of the container of each flow that may be routed, by the hash of its packets. */
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, DQA_CARRIED_MAX);
	__type(key, u32);
	__type(value, u64);
} carried SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct dqa_counters);
} counters SEC(".maps");

static const u32 zero;

/* Events of this processor. Not atomic: a program that interrupts another may lose one. */
static always_inline struct dqa_counters *events(void)
{
	return map_lookup(&counters, &zero);
}

verified_apart int count_rare(u32 offset)
{
	u8 *mine = (u8 *)events();

	if (mine)
		*(u64 *)(mine + (offset & 0x78)) += 1;
	return 0;
}

/* For the path of every packet: counts without a call. Elsewhere a call keeps the programs short. */
#define COUNT_OFTEN(event)                            \
	do {                                          \
		struct dqa_counters *mine = events(); \
		if (mine)                             \
			mine->event++;                \
	} while (0)
#define COUNT(event) count_rare(__builtin_offsetof(struct dqa_counters, event))

#endif
