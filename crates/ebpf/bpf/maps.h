/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The maps: fixed arrays that user space maps too, an index of containers, counters of each processor.
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

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct dqa_counters);
} counters SEC(".maps");

static const u32 zero;

/* An event of this processor. Not atomic: a program that interrupts another may lose one. */
static noinline int count(u32 offset)
{
	u8 *mine = map_lookup(&counters, &zero);

	if (mine && offset <= sizeof(struct dqa_counters) - sizeof(u64))
		*(u64 *)(mine + (offset & 0x78)) += 1;
	return 0;
}

#define COUNT(event) count(__builtin_offsetof(struct dqa_counters, event))

#endif
