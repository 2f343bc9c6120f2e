// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A network device with data centre bridging and without hardware, for the lab.
 *
 * Problem: no driver that an emulated machine has implements the IEEE part of dcbnl, so nothing tests how our program
 * writes these settings. Method: the device stores ETS, PFC and buffers as a driver does and returns them; the kernel
 * itself keeps the table of priorities by DSCP. It rejects what drivers reject: shares that do not sum to 100 percent,
 * classes and buffers out of range, buffers larger than the device has. Limits: it drops every frame, and no setting has
 * an effect on traffic. Units: percent, bytes. Source: include/net/dcbnl.h; IEEE 802.1Qaz.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/dcbnl.h>

#define CLASSES 8
/* Bytes of all buffers: ConnectX-5 has about as many. */
#define BUFFER_BYTES 262144

struct bridging {
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct dcbnl_buffer buffer;
};

static struct net_device *device;

static int ets_get(struct net_device *netdev, struct ieee_ets *ets)
{
	*ets = ((struct bridging *)netdev_priv(netdev))->ets;
	ets->ets_cap = CLASSES;
	return 0;
}

static int ets_set(struct net_device *netdev, struct ieee_ets *ets)
{
	int index, sum = 0, shared = 0;

	for (index = 0; index < CLASSES; index++) {
		if (ets->prio_tc[index] >= CLASSES)
			return -EINVAL;
		if (ets->tc_tsa[index] != IEEE_8021QAZ_TSA_ETS)
			continue;
		shared++;
		sum += ets->tc_tx_bw[index];
	}
	if (shared && sum != 100)
		return -EINVAL;
	((struct bridging *)netdev_priv(netdev))->ets = *ets;
	return 0;
}

static int pfc_get(struct net_device *netdev, struct ieee_pfc *pfc)
{
	*pfc = ((struct bridging *)netdev_priv(netdev))->pfc;
	pfc->pfc_cap = CLASSES;
	return 0;
}

static int pfc_set(struct net_device *netdev, struct ieee_pfc *pfc)
{
	((struct bridging *)netdev_priv(netdev))->pfc = *pfc;
	return 0;
}

static int buffer_get(struct net_device *netdev, struct dcbnl_buffer *buffer)
{
	*buffer = ((struct bridging *)netdev_priv(netdev))->buffer;
	buffer->total_size = BUFFER_BYTES;
	return 0;
}

static int buffer_set(struct net_device *netdev, struct dcbnl_buffer *buffer)
{
	u64 sum = 0;
	int index;

	for (index = 0; index < CLASSES; index++) {
		if (buffer->prio2buffer[index] >= DCBX_MAX_BUFFERS)
			return -EINVAL;
		sum += buffer->buffer_size[index];
	}
	if (sum > BUFFER_BYTES)
		return -ENOMEM;
	((struct bridging *)netdev_priv(netdev))->buffer = *buffer;
	return 0;
}

static u8 dcbx_get(struct net_device *netdev)
{
	return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
}

static const struct dcbnl_rtnl_ops bridging_operations = {
	.ieee_getets = ets_get,
	.ieee_setets = ets_set,
	.ieee_getpfc = pfc_get,
	.ieee_setpfc = pfc_set,
	.dcbnl_getbuffer = buffer_get,
	.dcbnl_setbuffer = buffer_set,
	.getdcbx = dcbx_get,
};

static netdev_tx_t transmit(struct sk_buff *packet, struct net_device *netdev)
{
	dev_kfree_skb(packet);
	return NETDEV_TX_OK;
}

static const struct net_device_ops device_operations = {
	.ndo_start_xmit = transmit,
};

static void set_up(struct net_device *netdev)
{
	ether_setup(netdev);
	netdev->netdev_ops = &device_operations;
	netdev->dcbnl_ops = &bridging_operations;
	eth_hw_addr_random(netdev);
}

static int __init start(void)
{
	struct bridging *bridging;
	int error;

	device = alloc_netdev(sizeof(*bridging), "dcb%d", NET_NAME_ENUM, set_up);
	if (!device)
		return -ENOMEM;
	bridging = netdev_priv(device);
	bridging->buffer.buffer_size[0] = BUFFER_BYTES;
	error = register_netdev(device);
	if (error)
		free_netdev(device);
	return error;
}

static void __exit stop(void)
{
	unregister_netdev(device);
	free_netdev(device);
}

module_init(start);
module_exit(stop);
MODULE_DESCRIPTION("A network device with data centre bridging and without hardware");
MODULE_LICENSE("Dual MIT/GPL");
