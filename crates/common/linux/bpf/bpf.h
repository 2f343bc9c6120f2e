/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What every BPF program needs: types, descriptions of maps, and the packet. With it and a program's own declarations,
 * clang alone compiles the program.
 *
 * `struct __sk_buff` and the helpers' numbers are the kernel's stable interface to BPF programs (bpf-helpers(7)) and must
 * be exact. Kernel structs have only the fields that are read. The loader corrects their offsets by field name (CO-RE),
 * so their order has no effect.
 */
#ifndef ISOLANE_BPF_H
#define ISOLANE_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;
enum { false, true };

#define SEC(name) __attribute__((section(name), used))
#define always_inline inline __attribute__((always_inline))
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

/* Description of a map, in the form that the loader reads from the object's type information. */
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_SK_STORAGE = 24, MAP_RINGBUF = 27 };

#define from_kernel __attribute__((preserve_access_index))

struct bpf_sock;

/* A packet as the programs see it. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
	u32 napi_id;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 data_meta;
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	union {
		struct bpf_sock *sk;
		u64 sk_padded;
	};
	u32 gso_size;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;

#endif
