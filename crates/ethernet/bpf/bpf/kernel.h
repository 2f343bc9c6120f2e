/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The part of the kernel's interface that these programs use, in addition to bpf.h. */
#ifndef ISOLANE_KERNEL_H
#define ISOLANE_KERNEL_H

#include "bpf.h"

#define noinline __attribute__((__noinline__))
/* The verifier checks a function that is not static once, for any arguments, instead of once per path to a call. */
#define verified_apart __attribute__((__noinline__))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

#define MAP_MMAPABLE (1u << 10)

/* Continue with the next filter, or send the packet if there is none; drop the packet. */
#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2

#define FROM_NETWORK_HEADER 1
#define PACKET_OUTGOING 4

struct net {
	u64 net_cookie;
} from_kernel;

typedef struct {
	struct net *net;
} from_kernel possible_net_t;

struct net_device {
	u64 features;
	u32 ifindex;
	possible_net_t nd_net;
} from_kernel;

struct skb_shared_info {
	u16 gso_size;
	u16 gso_segs;
	u32 gso_type;
} from_kernel;

/* The feature bit of a kind of segmentation is the kind's bit, shifted. One kind only marks packets of a guest. */
#define SEGMENTATION_SHIFT 16
#define SEGMENTATION_UNTRUSTED 2

struct sock_common {
	u16 skc_tx_queue_mapping;
} from_kernel;

struct sock {
	struct sock_common __sk_common;
} from_kernel;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	u32 len;
	u16 queue_mapping;
	u8 __pkt_type_offset[0];
	u16 tc_index;
	u32 hash;
	u32 end;
	u8 *head;
} from_kernel;

enum skb_drop_reason {
	SKB_DROP_REASON_TC_EGRESS,
	SKB_DROP_REASON_QDISC_DROP,
	SKB_DROP_REASON_QDISC_OVERLIMIT,
	SKB_DROP_REASON_QDISC_CONGESTED,
};

/* Whether the running kernel has a drop reason, and its value, which the loader corrects. */
#define reason_value(name) __builtin_preserve_enum_value(*(enum skb_drop_reason *)name, 1)
#define reason_exists(name) __builtin_preserve_enum_value(*(enum skb_drop_reason *)name, 0)
#define is_reason(reason, name) (reason_exists(name) && (reason) == reason_value(name))

struct bpf_sock {
	u32 bound_dev_if;
	u32 family;
	u32 type;
	u32 protocol;
};

#define PROTOCOL_TCP 6

static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u32 (*const this_cpu)(void) = (void *)8;
static u32 (*const packet_hash)(struct __sk_buff *packet) = (void *)34;
static long (*const read_packet_from)(const void *packet, u32 offset, void *to, u32 bytes, u32 from) = (void *)68;
static u64 (*const packet_cgroup)(struct __sk_buff *packet) = (void *)79;
static u64 (*const packet_ancestor_cgroup)(struct __sk_buff *packet, int level) = (void *)83;
static struct bpf_sock *(*const full_socket)(struct bpf_sock *socket) = (void *)95;
static long (*const read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static u64 (*const ticks_now)(void) = (void *)118;

#endif
