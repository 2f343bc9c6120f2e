/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The container of a flow.
 *
 * Problem: a packet's socket names its cgroup. Routing removes the socket, so a routed packet has no cgroup at the device.
 * Method: `carry` (cgroup_skb) runs at the egress of each container's cgroup, where the packet still has its socket. It
 * notes the container under the packet's hash. The kernel gives each TCP socket and each connected UDP socket one hash,
 * which routing and NAT keep. `egress` looks up this hash where the socket names no container.
 * Limits: DQA_CARRIED_MAX flows; a new flow replaces the one that was least recently used. A noted container stays while it
 * exists: a socket of another container with the same hash gets its weight. Packets of other sockets have no hash until the
 * device, so a flow of an unconnected UDP socket has no container after routing.
 */
#ifndef ISOLANE_CONTAINERS_H
#define ISOLANE_CONTAINERS_H

#include "flows.h"

/* The cgroup of the container of this packet's socket: the socket's cgroup, or its closest ancestor with a container. */
static always_inline u64 container_of_socket(struct __sk_buff *skb, u32 *container)
{
	for (int level = 8; level > 0; level--) {
		u64 cgroup = packet_ancestor_cgroup(skb, level);
		u32 *index = cgroup ? map_lookup(&container_of, &cgroup) : 0;

		if (index) {
			*container = *index + 1;
			return cgroup;
		}
	}
	return 0;
}

/* The index of a flow's container, plus 1; 0 without one. */
verified_apart u32 find_container(struct __sk_buff *skb, struct dqa_flow *flow)
{
	u32 container = 0;

	if (!flow)
		return 0;
	u64 cgroup = container_of_socket(skb, &container);

	if (!cgroup) {
		u32 key = flow->key;
		u64 *noted = map_lookup(&carried, &key);
		u32 *index = 0;

		if (noted) {
			cgroup = *noted;
			index = map_lookup(&container_of, &cgroup);
		}
		if (!index) {
			flow->owner = packet_cgroup(skb);
			return 0;
		}
		container = *index + 1;
		COUNT(carried);
	}
	flow->owner = cgroup;
	return container;
}

/* Notes the container of this packet's flow. Returns 1: every packet passes. */
SEC("cgroup_skb/egress")
int carry(struct __sk_buff *skb)
{
	struct dqa_config *settings = map_lookup(&config, &zero);
	u32 key = skb->hash;
	u32 container = 0;

	if (!settings || !settings->enabled || !key)
		return 1;
	u64 *noted = map_lookup(&carried, &key);

	if (noted) {
		u64 cgroup = *noted;

		if (map_lookup(&container_of, &cgroup))
			return 1;
	}
	u64 cgroup = container_of_socket(skb, &container);

	if (cgroup)
		map_update(&carried, &key, &cgroup, 0);
	return 1;
}

#endif
