// SPDX-License-Identifier: GPL-2.0
/*
 * The port, its GIDs, and the network interface that these follow.
 *
 * That is, in this order: the one that the parameter "netdev" names, a function of the same PCI
 * slot, any one with the MAC address of the device. In any case it must have that address, since
 * the device takes no frames to another one.
 */
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>
#include <linux/module.h>
#include <rdma/ib_addr.h>
#include "rocinante.h"

static char *netdev;
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "Network interface whose addresses are the GIDs");

static LIST_HEAD(roc_devices);
static DEFINE_MUTEX(roc_devices_lock);

static struct net_device *roc_get_netdev(struct roc_dev *rdev)
{
	struct net_device *found;

	mutex_lock(&rdev->netdev_lock);
	found = rdev->netdev;
	if (found)
		dev_hold(found);
	mutex_unlock(&rdev->netdev_lock);
	return found;
}

int roc_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	struct roc_dev *rdev = to_rdev(ibdev);
	struct virtio_rdma_cmd_query_port ask = { .port = port };
	struct virtio_rdma_rsp_query_port told;
	struct net_device *ndev;
	int err;

	if (rdev->dead)
		return -EIO;
	err = roc_call2(rdev, VIRTIO_RDMA_CONTROL_COMMAND_QUERY_PORT, ask, told);
	if (err)
		return err;
	attr->state = told.state;
	attr->max_mtu = told.max_mtu;
	attr->active_mtu = told.active_mtu;
	attr->phys_mtu = le32_to_cpu(told.phys_mtu);
	attr->gid_tbl_len = le32_to_cpu(told.gid_tbl_len);
	attr->ip_gids = true;
	attr->port_cap_flags = le32_to_cpu(told.port_cap_flags);
	attr->max_msg_sz = le32_to_cpu(told.max_msg_sz);
	attr->bad_pkey_cntr = le32_to_cpu(told.bad_pkey_cntr);
	attr->qkey_viol_cntr = le32_to_cpu(told.qkey_viol_cntr);
	attr->pkey_tbl_len = le16_to_cpu(told.pkey_tbl_len);
	attr->active_width = told.active_width;
	attr->active_speed = le16_to_cpu(told.active_speed);
	attr->phys_state = told.phys_state;
	attr->max_vl_num = 1;
	ndev = roc_get_netdev(rdev);
	if (!ndev) {
		attr->state = IB_PORT_DOWN;
		return 0;
	}
	if (!netif_running(ndev) || !netif_carrier_ok(ndev))
		attr->state = IB_PORT_DOWN;
	attr->active_mtu = min_t(int, attr->max_mtu, iboe_get_mtu(ndev->mtu));
	dev_put(ndev);
	return 0;
}

int roc_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	struct virtio_rdma_cmd_query_pkey ask = {
		.port = cpu_to_le32(port), .index = cpu_to_le16(index),
	};
	struct virtio_rdma_rsp_query_pkey told;
	int err = roc_call2(to_rdev(ibdev), VIRTIO_RDMA_CONTROL_COMMAND_QUERY_PKEY, ask, told);

	if (!err)
		*pkey = le16_to_cpu(told.pkey);
	return err;
}

int roc_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct virtio_rdma_cmd_add_gid cmd = {
		.gid_type = cpu_to_le32(VIRTIO_RDMA_GID_TYPE_ROCE_V2),
		.index = cpu_to_le16(attr->index),
		.port_num = cpu_to_le32(attr->port_num),
	};

	if (attr->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		return -EOPNOTSUPP;
	memcpy(cmd.gid, attr->gid.raw, sizeof(cmd.gid));
	return roc_call(to_rdev(attr->device), VIRTIO_RDMA_CONTROL_COMMAND_ADD_GID, cmd);
}

int roc_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct virtio_rdma_cmd_del_gid cmd = {
		.index = cpu_to_le16(attr->index),
		.port = cpu_to_le32(attr->port_num),
	};
	struct roc_dev *rdev = to_rdev(attr->device);
	int err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DEL_GID, cmd);

	return rdev->dead ? 0 : err;
}

/* Network interfaces --------------------------------------------------------------------------- */

static bool roc_same_slot(struct roc_dev *rdev, struct net_device *ndev)
{
	struct device *parent = ndev->dev.parent;

	while (parent && !dev_is_pci(parent))
		parent = parent->parent;
	if (!parent)
		return false;
	return to_pci_dev(parent)->bus == rdev->pdev->bus &&
	       PCI_SLOT(to_pci_dev(parent)->devfn) == PCI_SLOT(rdev->pdev->devfn);
}

static bool roc_in_use(struct net_device *ndev)
{
	struct roc_dev *other;

	list_for_each_entry(other, &roc_devices, node)
		if (other->netdev == ndev)
			return true;
	return false;
}

/* How well an interface fits, 0: not at all. */
static int roc_fits(struct roc_dev *rdev, struct net_device *ndev)
{
	if (ndev->type != ARPHRD_ETHER || !ether_addr_equal(ndev->dev_addr, rdev->mac) ||
	    is_vlan_dev(ndev) || roc_in_use(ndev))
		return 0;
	if (netdev && *netdev)
		return strcmp(netdev, ndev->name) ? 0 : 3;
	return roc_same_slot(rdev, ndev) ? 2 : 1;
}

static void roc_set_netdev(struct roc_dev *rdev, struct net_device *ndev)
{
	struct net_device *old;

	mutex_lock(&rdev->netdev_lock);
	old = rdev->netdev;
	if (ndev)
		dev_hold(ndev);
	rdev->netdev = ndev;
	mutex_unlock(&rdev->netdev_lock);
	if (old)
		dev_put(old);
	if (ib_device_set_netdev(&rdev->base, ndev, 1))
		dev_warn(&rdev->vdev->dev, "the interface cannot be set\n");
	if (ndev)
		dev_info(&rdev->vdev->dev, "GIDs are those of %s\n", ndev->name);
}

static void roc_look_for_netdev(struct roc_dev *rdev)
{
	struct net_device *ndev, *best = NULL;
	int fits = 0;
	struct net *net;

	down_read(&net_rwsem);
	for_each_net(net)
		for_each_netdev(net, ndev)
			if (roc_fits(rdev, ndev) > fits) {
				fits = roc_fits(rdev, ndev);
				best = ndev;
			}
	up_read(&net_rwsem);
	if (best)
		roc_set_netdev(rdev, best);
}

static void roc_port_event(struct roc_dev *rdev, enum ib_event_type type)
{
	struct ib_event event = { .device = &rdev->base, .event = type, .element.port_num = 1 };

	if (rdev->registered)
		ib_dispatch_event(&event);
}

static int roc_netdev_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(data);
	struct roc_dev *rdev;

	mutex_lock(&roc_devices_lock);
	list_for_each_entry(rdev, &roc_devices, node) {
		bool ours = rdev->netdev == ndev;

		switch (event) {
		case NETDEV_REGISTER:
		case NETDEV_CHANGEADDR:
			if (ours && !ether_addr_equal(ndev->dev_addr, rdev->mac))
				roc_set_netdev(rdev, NULL);
			else if (!rdev->netdev && roc_fits(rdev, ndev))
				roc_set_netdev(rdev, ndev);
			break;
		case NETDEV_UNREGISTER:
			if (ours)
				roc_set_netdev(rdev, NULL);
			break;
		case NETDEV_UP:
		case NETDEV_DOWN:
		case NETDEV_CHANGE:
			if (ours)
				roc_port_event(rdev, netif_running(ndev) && netif_carrier_ok(ndev) ?
					       IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR);
			break;
		}
	}
	mutex_unlock(&roc_devices_lock);
	return NOTIFY_DONE;
}

static struct notifier_block roc_netdev_block = {
	.notifier_call = roc_netdev_event,
};

/* Look for an interface, and follow what becomes of it. */
void roc_netdev_add(struct roc_dev *rdev)
{
	rtnl_lock();
	mutex_lock(&roc_devices_lock);
	roc_look_for_netdev(rdev);
	list_add_tail(&rdev->node, &roc_devices);
	mutex_unlock(&roc_devices_lock);
	rtnl_unlock();
}

void roc_netdev_del(struct roc_dev *rdev)
{
	struct net_device *ndev;

	mutex_lock(&roc_devices_lock);
	list_del(&rdev->node);
	mutex_lock(&rdev->netdev_lock);
	ndev = rdev->netdev;
	rdev->netdev = NULL;
	mutex_unlock(&rdev->netdev_lock);
	if (ndev) {
		ib_device_set_netdev(&rdev->base, NULL, 1);
		dev_put(ndev);
	}
	mutex_unlock(&roc_devices_lock);
}

int roc_netdev_init(void)
{
	return register_netdevice_notifier(&roc_netdev_block);
}

void roc_netdev_exit(void)
{
	unregister_netdevice_notifier(&roc_netdev_block);
}
