/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Measures and marks the messages that TCP connections of a cgroup send.
 *
 * Problem: a program without the admission library has no admit probability, and its calls have no measured network time.
 * Method: a *message* is what a connection sends from a packet that leaves while nothing is outstanding, to the
 * acknowledgement of every byte that was written. `observe` (sock_ops) runs at each packet that a connection sends. At the
 * first packet of a message it draws: with the admit probability of destination and class the message runs in the class
 * of its connection, otherwise in the lowest class. It sets the socket's code point before the kernel writes the IP header
 * of this packet. `acknowledge` (cgroup_skb) sees each packet that the connection receives, and passes an ended message to
 * user space. The next packet that the connection sends, or the next round-trip sample, restores the code point.
 * `check` (cgroup_skb) reads the code point of the first packet behind the kernel's filters.
 * Units: nanoseconds of the monotonic clock, bytes of the TCP stream.
 * Limits: connections that began before the program was attached are not measured. A message of SPLIT_BYTES is reported in
 * parts, all of them in the class of the first one. docs/internals/rpc-enforce.md has what a message is not.
 * Source: Aequitas (in the thesis "cloud QoS"), algorithm 2, line 7.
 */
#include "messages.h"

#define SPLIT_BYTES (1u << 22)

/* A measured connection. */
struct connection {
	struct destination to;
	/* Start of the current message; 0 without one. */
	u64 begin_ns;
	/* When all but the last segment of what `nearly_seq` ends was acknowledged; 0 if that has not happened. */
	u64 nearly_ns;
	/* When every byte was acknowledged, up to `over_seq`, while a program held the socket; 0 otherwise. */
	u64 over_ns;
	u64 over_at_least_ns;
	u32 over_seq;
	u32 begin_seq;
	/* The latest acknowledgement. */
	u32 acknowledged;
	u32 nearly_seq;
	u8 class;
	/* Code point that the socket has. */
	u8 code_point;
	u8 flags;
	/* The next packet is the first of a message. */
	u8 unchecked;
	/* `code_point` is ours. */
	u8 marked;
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, PORTS_MAX);
	__type(key, u16);
	__type(value, u8);
} classes_of_ports SEC(".maps");

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, DESTINATIONS_MAX);
	__type(key, struct destination);
	__type(value, struct probabilities);
} admit SEC(".maps");

struct {
	__uint(type, MAP_SK_STORAGE);
	__uint(map_flags, MAP_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, RING_BYTES);
} messages SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} counts SEC(".maps");

static const u32 zero;

#define COUNT(event)                                            \
	do {                                                    \
		struct counts *mine = map_lookup(&counts, &zero); \
		if (mine)                                       \
			mine->event++;                          \
	} while (0)

static always_inline int read_mark(struct bpf_sock_ops *event)
{
	int mark = 0;
	long code = event->family == AF_INET6 ? get_option(event, SOL_IPV6, IPV6_TCLASS, &mark, sizeof(mark))
					      : get_option(event, SOL_IP, IP_TOS, &mark, sizeof(mark));

	return code ? 0 : mark >> 2;
}

/* Gives the socket a code point. The two lowest bits belong to congestion notification, and the kernel keeps them. */
static always_inline void set_mark(struct bpf_sock_ops *event, struct connection *connection, u8 code_point)
{
	int mark = code_point << 2;
	long code;

	if (connection->code_point == code_point)
		return;
	code = event->family == AF_INET6 ? set_option(event, SOL_IPV6, IPV6_TCLASS, &mark, sizeof(mark))
					 : set_option(event, SOL_IP, IP_TOS, &mark, sizeof(mark));
	if (code)
		COUNT(refused);
	else {
		connection->code_point = code_point;
		connection->marked = 1;
	}
}

static always_inline int uses_bbr(struct bpf_sock_ops *event)
{
	char name[16] = {};

	return !get_option(event, SOL_TCP, TCP_CONGESTION, name, sizeof(name)) && name[0] == 'b' && name[1] == 'b' && name[2] == 'r';
}

static always_inline void established(struct bpf_sock_ops *event, const struct settings *set, int here)
{
	/* The local port is in the machine's order, the remote one in the network's, in the upper half. */
	u16 remote = __builtin_bswap16((u16)(event->remote_port >> 16));
	u16 port = here ? (u16)event->local_port : remote;
	u8 *of_port = map_lookup(&classes_of_ports, &port);
	u8 class = of_port ? *of_port : set->other_ports;
	struct connection *connection;

	if (class >= set->classes) {
		COUNT(without_class);
		return;
	}
	/* The kernel marks these packets with the option of IPv4, which BPF cannot set on a socket of IPv6. */
	if (event->family == AF_INET6 && !event->remote_ip6[0] && !event->remote_ip6[1] &&
	    event->remote_ip6[2] == __builtin_bswap32(0xffff)) {
		COUNT(mapped);
		return;
	}
	if (read_mark(event)) {
		COUNT(marked_by_program);
		return;
	}
	if (!event->sk)
		return;
	connection = storage(&connections, event->sk, 0, STORAGE_CREATE);
	if (!connection)
		return;
	connection->to.family = event->family;
	connection->to.port = here ? 0 : remote;
	if (event->family == AF_INET6) {
		u32 *words = (u32 *)connection->to.address;

		words[0] = event->remote_ip6[0];
		words[1] = event->remote_ip6[1];
		words[2] = event->remote_ip6[2];
		words[3] = event->remote_ip6[3];
	} else {
		*(u32 *)connection->to.address = event->remote_ip4;
	}
	connection->class = class;
	COUNT(connections);
	if (uses_bbr(event))
		COUNT(bbr);
	if (set->mode == MODE_ENFORCE)
		set_mark(event, connection, set->code_point[class & (CLASSES_MAX - 1)]);
	set_flags(event, event->bpf_sock_ops_cb_flags | FLAG_STATE | FLAG_RTT | FLAG_HEADER_OPTION);
}

/* After a change of the mode, a connection with a code point of ours returns to that of its class. */
static always_inline int is_marked(const struct connection *connection, const struct settings *set)
{
	return set->mode == MODE_ENFORCE || connection->marked;
}

static always_inline void begin(struct bpf_sock_ops *event, struct connection *connection, const struct settings *set)
{
	u8 last = (set->classes - 1) & (CLASSES_MAX - 1);
	u8 class = connection->class & (CLASSES_MAX - 1);
	u8 flags = MESSAGE_ADMITTED;

	if (set->mode != MODE_OFF && class != last) {
		struct probabilities *known = map_lookup(&admit, &connection->to);

		if (!known)
			flags |= MESSAGE_TO_UNKNOWN;
		else if (random_word() >= known->of_class[class])
			flags = set->mode == MODE_ENFORCE ? MESSAGE_DOWNGRADED : 0;
	}
	connection->flags = flags;
	if (is_marked(connection, set)) {
		set_mark(event, connection, set->code_point[flags & MESSAGE_DOWNGRADED ? last : class]);
		connection->unchecked = set->mode == MODE_ENFORCE;
	}
	connection->begin_seq = event->snd_nxt;
	connection->acknowledged = event->snd_nxt;
	connection->nearly_ns = 0;
	connection->over_ns = 0;
	connection->begin_ns = now_ns();
}

/* The part of a message that is reported, and its times on the clock. */
struct part {
	u64 begin_ns;
	u64 end_ns;
	/* A time at which the part was not yet acknowledged, or 0. */
	u64 at_least_ns;
	u32 bytes;
	u8 flags;
};

/* Passes a part of a message to user space. */
static always_inline void report(const struct connection *connection, const struct part *part)
{
	struct message *message = reserve(&messages, sizeof(*message), 0);

	if (!message) {
		COUNT(lost);
		return;
	}
	message->to = connection->to;
	message->class = connection->class;
	message->flags = part->flags;
	message->reserved[0] = message->reserved[1] = 0;
	message->bytes = part->bytes;
	message->at_least_ns = part->at_least_ns ? part->at_least_ns - part->begin_ns : 0;
	message->whole_ns = part->end_ns - part->begin_ns;
	message->ended_ns = part->end_ns;
	submit(message, 0);
}

/*
 * Ends the message. An acknowledgement may arrive on one processor while another one sends, and both may find that the
 * message is over. The one that clears `begin_ns` reports it. The caller reads `begin_ns` before the rest of the part, so
 * that a part of a message that has ended meanwhile is not reported.
 */
static always_inline void end(struct connection *connection, const struct part *part)
{
	u64 begin_ns = part->begin_ns;

	if (begin_ns && __sync_val_compare_and_swap(&connection->begin_ns, begin_ns, 0) == begin_ns)
		report(connection, part);
}

static always_inline void finish(struct connection *connection)
{
	struct part part = {};

	part.begin_ns = READ_ONCE(connection->begin_ns);
	part.end_ns = READ_ONCE(connection->over_ns);
	part.at_least_ns = READ_ONCE(connection->over_at_least_ns);
	part.bytes = READ_ONCE(connection->over_seq) - READ_ONCE(connection->begin_seq);
	part.flags = READ_ONCE(connection->flags);
	if (part.end_ns)
		end(connection, &part);
}

/*
 * While a program holds the socket, the kernel keeps acknowledgements for later, and the program may write more of the
 * same message. So the message ends with an acknowledgement that the kernel has processed.
 */
static always_inline void settle(struct connection *connection, u32 una)
{
	if (connection->begin_ns && connection->over_ns && (s32)(una - connection->over_seq) >= 0)
		finish(connection);
}

static always_inline void advance(struct connection *connection, struct tcp_sock *tcp, u32 ack)
{
	u32 written = tcp->write_seq;
	u32 mss = tcp->mss_cache;
	u32 left = written - ack;
	u32 more = ack - connection->acknowledged;
	u64 now;

	/* An answer may come before the sender's processor has advanced `snd_nxt`, but `write_seq` is advanced first. */
	if ((s32)more <= 0 || (s32)left < 0)
		return;
	connection->acknowledged = ack;
	now = now_ns();
	if (!left) {
		u64 nearly_ns = connection->nearly_seq == written ? connection->nearly_ns : 0;

		connection->over_seq = ack;
		connection->over_ns = now;
		connection->over_at_least_ns = more > mss ? now : nearly_ns;
		if (!((struct sock *)tcp)->sk_lock.owned)
			finish(connection);
	} else if (ack - connection->begin_seq >= SPLIT_BYTES) {
		struct part part = {
			.begin_ns = READ_ONCE(connection->begin_ns),
			.end_ns = now,
			.at_least_ns = now,
			.bytes = ack - connection->begin_seq,
			.flags = connection->flags,
		};

		/* Another processor may have ended the message. */
		if (!part.begin_ns || __sync_val_compare_and_swap(&connection->begin_ns, part.begin_ns, now) != part.begin_ns)
			return;
		connection->begin_seq = ack;
		connection->nearly_ns = 0;
		report(connection, &part);
	} else if (left <= mss && (connection->nearly_seq != written || !connection->nearly_ns)) {
		connection->nearly_seq = written;
		connection->nearly_ns = now;
	}
}

SEC("sockops")
int observe(struct bpf_sock_ops *event)
{
	struct settings *set = map_lookup(&settings, &zero);
	struct connection *connection;
	u32 op = event->op;
	int has_payload;

	if (!set || !event->is_fullsock)
		return 1;
	if (op == OP_ACTIVE_ESTABLISHED || op == OP_PASSIVE_ESTABLISHED) {
		established(event, set, op == OP_PASSIVE_ESTABLISHED);
		return 1;
	}
	if (op != OP_RTT && op != OP_HEADER_LENGTH && op != OP_STATE)
		return 1;
	if (!event->sk)
		return 1;
	connection = storage(&connections, event->sk, 0, 0);
	if (!connection)
		return 1;
	if (op == OP_STATE) {
		if (connection->begin_ns && connection->over_ns)
			finish(connection);
		if (event->args[1] == TCP_CLOSE && connection->begin_ns) {
			struct bpf_sock *socket = event->sk;
			struct tcp_sock *tcp = socket ? tcp_socket(socket) : 0;

			if (!tcp)
				return 1;
			struct part part = {
				.begin_ns = connection->begin_ns,
				.end_ns = now_ns(),
				.bytes = tcp->write_seq - connection->begin_seq,
				.flags = connection->flags | MESSAGE_GIVEN_UP,
			};

			end(connection, &part);
		}
		return 1;
	}
	if (op == OP_HEADER_LENGTH && event->args[0] == HEADER_OF_NO_PACKET)
		return 1;
	settle(connection, event->snd_una);
	has_payload = op == OP_HEADER_LENGTH && event->skb_len;
	if (connection->begin_ns) {
		/* More of the message leaves, so it is not over. */
		if (has_payload)
			connection->over_ns = 0;
		if (!has_payload || event->snd_una != event->snd_nxt || connection->acknowledged == event->snd_una)
			return 1;
		/* Nothing is outstanding, and `acknowledge` has not seen it. */
		COUNT(lost);
		connection->begin_ns = 0;
	}
	/* The kernel may not have processed the acknowledgement that ended the last message. */
	if (has_payload && (event->snd_una == event->snd_nxt || connection->acknowledged == event->snd_nxt))
		begin(event, connection, set);
	else if (is_marked(connection, set))
		set_mark(event, connection, set->code_point[connection->class & (CLASSES_MAX - 1)]);
	return 1;
}

/* The connection of a packet, or none. */
static always_inline struct connection *connection_of(struct __sk_buff *packet)
{
	struct bpf_sock *socket = packet->sk;

	if (!socket)
		return 0;
	socket = full_socket(socket);
	return socket ? storage(&connections, socket, 0, 0) : 0;
}

/* Follows the acknowledgements that a connection receives. Every packet passes. */
SEC("cgroup_skb/ingress")
int acknowledge(struct __sk_buff *packet)
{
	struct connection *connection = connection_of(packet);
	struct tcp_sock *tcp;
	u32 at = 40, ack;
	u8 head;

	if (!connection || !connection->begin_ns || !packet->sk)
		return 1;
	tcp = tcp_socket(packet->sk);
	if (!tcp)
		return 1;
	settle(connection, tcp->snd_una);
	if (!connection->begin_ns || load_bytes(packet, 0, &head, sizeof(head)))
		return 1;
	if (head >> 4 == 4) {
		at = (head & 15) * 4;
	} else {
		if (load_bytes(packet, IPV6_NEXT_HEADER, &head, sizeof(head)) || head != TCP)
			return 1;
	}
	if (load_bytes(packet, at + TCP_FLAGS, &head, sizeof(head)) || (head & (TCP_ACK | TCP_RST)) != TCP_ACK)
		return 1;
	if (load_bytes(packet, at + TCP_ACKNOWLEDGEMENT, &ack, sizeof(ack)))
		return 1;
	advance(connection, tcp, __builtin_bswap32(ack));
	return 1;
}

/* Compares the code point of the first packet of each message with the socket's. Every packet passes. */
SEC("cgroup_skb/egress")
int check(struct __sk_buff *packet)
{
	struct connection *connection = connection_of(packet);
	u8 head[2];
	u8 code_point;

	if (!connection || !connection->unchecked)
		return 1;
	if (load_bytes(packet, 0, head, sizeof(head)))
		return 1;
	connection->unchecked = 0;
	code_point = head[0] >> 4 == 6 ? (head[0] & 15) << 2 | head[1] >> 6 : head[1] >> 2;
	if (code_point == connection->code_point)
		COUNT(packets_marked);
	else
		COUNT(packets_other);
	return 1;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
