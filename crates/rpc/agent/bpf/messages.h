/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs and user space share. `src/wire.rs` has the same layout; tests compare the offsets.
 */
#ifndef ISOLANE_RPC_MESSAGES_H
#define ISOLANE_RPC_MESSAGES_H

#include "kernel.h"

/* Classes of the settings, and the number that says "none". */
#define CLASSES_MAX 8
#define NO_CLASS 255
/* Destinations with probabilities; beyond it the least recently used one is replaced. */
#define DESTINATIONS_MAX 16384
#define PORTS_MAX 1024
/* Messages that wait for user space. A further one is lost and counted. */
#define RING_BYTES (1 << 20)

enum { MODE_ENFORCE = 0, MODE_SHADOW = 1, MODE_OFF = 2 };

/* The last class is the lowest. */
struct settings {
	u8 mode;
	u8 classes;
	/* Class of connections whose port has none. */
	u8 other_ports;
	u8 reserved[5];
	u8 code_point[CLASSES_MAX];
};

/* The address of IPv4 is in the first four bytes. `port` is 0 where the connection is to a port of this host. */
struct destination {
	u8 address[16];
	u16 port;
	u8 family;
	u8 reserved;
};

/* Admit probabilities of the classes: admitted is a random word below it, so 2^32 is one. */
struct probabilities {
	u64 of_class[CLASSES_MAX];
};

enum { MESSAGE_ADMITTED = 1, MESSAGE_GIVEN_UP = 2, MESSAGE_DOWNGRADED = 4, MESSAGE_TO_UNKNOWN = 8 };

/* The end of a message. Times count from its first packet, in nanoseconds. */
struct message {
	struct destination to;
	u8 class;
	u8 flags;
	u8 reserved[2];
	/* Acknowledged bytes; all written bytes of a message that was given up. */
	u64 bytes;
	/* A lower bound of the last byte's arrival, which the acknowledgements prove; 0 without one. */
	u64 at_least_ns;
	/* Acknowledgement of the last byte. */
	u64 whole_ns;
	/* Time of the machine's monotonic clock. */
	u64 ended_ns;
};

/* Counts of a processor. */
struct counts {
	/* Connections measured, connections that a program had marked, connections whose class is not known. */
	u64 connections;
	u64 marked_by_program;
	u64 without_class;
	/* Connections of IPv4 whose socket is one of IPv6. */
	u64 mapped;
	/* Measured connections with the congestion control BBR. */
	u64 bbr;
	/* Messages lost because user space was late, or whose end was not seen. */
	u64 lost;
	/* Code points that the kernel did not set. */
	u64 refused;
	/* First packets of messages at the egress of the cgroup: with the class's code point, with another one. */
	u64 packets_marked;
	u64 packets_other;
};

#endif
