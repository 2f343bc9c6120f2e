/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The part of the kernel's interface that these programs use, in addition to bpf.h. */
#ifndef ISOLANE_RPC_KERNEL_H
#define ISOLANE_RPC_KERNEL_H

#include "bpf.h"

#define MAP_NO_PREALLOC 1u
#define STORAGE_CREATE 1

/* Events of a TCP socket. */
enum {
	OP_ACTIVE_ESTABLISHED = 4,
	OP_PASSIVE_ESTABLISHED = 5,
	OP_STATE = 10,
	OP_RTT = 12,
	OP_HEADER_LENGTH = 14,
};
enum { FLAG_STATE = 1 << 2, FLAG_RTT = 1 << 3, FLAG_HEADER_OPTION = 1 << 6 };
/* The argument of OP_HEADER_LENGTH where the kernel computes the size of future segments, without a packet. */
#define HEADER_OF_NO_PACKET 1
#define TCP_CLOSE 7

/* Offsets of fields in the headers of IPv6 and TCP. */
#define IPV6_NEXT_HEADER 6
#define TCP 6
#define TCP_ACKNOWLEDGEMENT 8
#define TCP_FLAGS 13
#define TCP_RST 4
#define TCP_ACK 16

#define AF_INET6 10
#define SOL_IP 0
#define IP_TOS 1
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define SOL_IPV6 41
#define IPV6_TCLASS 67

struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 is_fullsock;
	u32 snd_cwnd;
	u32 srtt_us;
	u32 bpf_sock_ops_cb_flags;
	u32 state;
	u32 rtt_min;
	u32 snd_ssthresh;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 snd_una;
	u32 mss_cache;
	u32 ecn_flags;
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 packets_out;
	u32 retrans_out;
	u32 total_retrans;
	u32 segs_in;
	u32 data_segs_in;
	u32 segs_out;
	u32 data_segs_out;
	u32 lost_out;
	u32 sacked_out;
	u32 sk_txhash;
	u64 bytes_received;
	u64 bytes_acked;
	union {
		struct bpf_sock *sk;
		u64 sk_padded;
	};
	union {
		void *skb_data;
		u64 skb_data_padded;
	};
	union {
		void *skb_data_end;
		u64 skb_data_end_padded;
	};
	u32 skb_len;
	u32 skb_tcp_flags;
	u64 skb_hwtstamp;
};

typedef struct {
	int owned;
} from_kernel socket_lock_t;

/* The beginning of a `struct tcp_sock`. */
struct sock {
	socket_lock_t sk_lock;
} from_kernel;

struct tcp_sock {
	u32 snd_una;
	u32 mss_cache;
	u32 write_seq;
} from_kernel;

static u64 (*const now_ns)(void) = (void *)5;
static u32 (*const random_word)(void) = (void *)7;
static long (*const load_bytes)(const void *packet, u32 offset, void *to, u32 bytes) = (void *)26;
static long (*const set_option)(void *socket, int level, int name, void *value, int bytes) = (void *)49;
static long (*const get_option)(void *socket, int level, int name, void *value, int bytes) = (void *)57;
static long (*const set_flags)(struct bpf_sock_ops *event, int flags) = (void *)59;
static struct bpf_sock *(*const full_socket)(struct bpf_sock *socket) = (void *)95;
static void *(*const storage)(void *map, void *socket, void *initial, u64 flags) = (void *)107;
static void *(*const reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const submit)(void *data, u64 flags) = (void *)132;
static struct tcp_sock *(*const tcp_socket)(void *socket) = (void *)137;

#endif
