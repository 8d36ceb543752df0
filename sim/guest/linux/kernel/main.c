// SPDX-License-Identifier: GPL-2.0
/* Driver for virtio-rdma devices (virtio device 42): probe and remove. */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include "rocinante.h"

#define ROC_DEVICE_ID		42
#define ROC_CONFIG_WORDS	(offsetof(struct virtio_rdma_config, reserved) / 4)

static void roc_control_interrupt(struct virtqueue *vq)
{
	roc_cmd_interrupt(vq);
}

/* Of a holder; its virtqueue is reset before anything comes. */
static void roc_no_interrupt(struct virtqueue *vq)
{
}

static int roc_find_vqs(struct roc_dev *rdev, struct virtqueue **vqs, int num)
{
#ifdef ROC_HAVE_VQ_INFO
	struct virtqueue_info info[ROC_MAX_VECTORS + 1] = {};
	int i;

	for (i = 0; i < num; i++) {
		info[i].name = i ? "holder" : "control";
		info[i].callback = i ? roc_no_interrupt : roc_control_interrupt;
	}
	return virtio_find_vqs(rdev->vdev, num, vqs, info, NULL);
#else
	vq_callback_t *callbacks[ROC_MAX_VECTORS + 1];
	const char *names[ROC_MAX_VECTORS + 1];
	int i;

	for (i = 0; i < num; i++) {
		names[i] = i ? "holder" : "control";
		callbacks[i] = i ? roc_no_interrupt : roc_control_interrupt;
	}
	return virtio_find_vqs(rdev->vdev, num, vqs, callbacks, names, NULL);
#endif
}

static int roc_read_config(struct roc_dev *rdev)
{
	struct virtio_rdma_config *config = &rdev->config;
	const u8 *guid = config->sys_image_guid;

	/* By words: it has 640 bytes, and each access costs the same. */
	__virtio_cread_many(rdev->vdev, 0, config, ROC_CONFIG_WORDS, sizeof(u32));
	rdev->max_cq = le32_to_cpu(config->max_cq);
	rdev->max_qp = le32_to_cpu(config->max_qp);
	if (le32_to_cpu(config->phys_port_cnt) != 1 || !rdev->max_cq ||
	    rdev->max_cq > VIRTIO_RDMA_MAX_CQ_LIMIT || rdev->max_qp > VIRTIO_RDMA_MAX_QP_LIMIT ||
	    rdev->max_qp <= VIRTIO_RDMA_FIRST_USER_QP_INDEX) {
		dev_err(&rdev->vdev->dev, "%u ports, %u CQs, %u queue pairs\n",
			le32_to_cpu(config->phys_port_cnt), rdev->max_cq, rdev->max_qp);
		return -EINVAL;
	}
	/* The port's MAC address is in its EUI-64. */
	memcpy(rdev->mac, guid, 3);
	memcpy(rdev->mac + 3, guid + 5, 3);
	return 0;
}

/* The control queue and the holders of vectors. */
static int roc_init_vqs(struct roc_dev *rdev)
{
	struct virtqueue *vqs[ROC_MAX_VECTORS + 1];
	/* Configuration, control, events, and at least one for CQs. */
	int most = min(pci_msix_vec_count(rdev->pdev) - 2, ROC_MAX_VECTORS);
	int num = min3((int)num_online_cpus() + 1, most, (int)rdev->max_cq);
	int err;

	if (num < 2)
		return -ENOSPC;
	err = roc_find_vqs(rdev, vqs, num + 1);
	if (err)
		return err;
	rdev->cvq = vqs[0];
	/* Without a vector for each, their interrupts cannot be told apart. */
	if (!rdev->pdev->msix_enabled || pci_irq_vector(rdev->pdev, num + 1) < 0) {
		dev_err(&rdev->vdev->dev, "there are less than %d interrupt vectors\n", num + 2);
		return -ENOSPC;
	}
	rdev->max_queue_size = virtqueue_get_vring_size(vqs[0]);
	return roc_own_vectors(rdev, vqs + 1, num);
}

static void roc_set_optional(struct roc_dev *rdev)
{
	static const struct ib_device_ops srq = {
		.create_srq = roc_create_srq,
		.destroy_srq = roc_destroy_srq,
		.modify_srq = roc_modify_srq,
		.post_srq_recv = roc_post_srq_recv,
		.query_srq = roc_query_srq,
		INIT_RDMA_OBJ_SIZE(ib_srq, roc_srq, base),
	};
	static const struct ib_device_ops mw = {
		.alloc_mw = roc_alloc_mw,
		.dealloc_mw = roc_dealloc_mw,
		INIT_RDMA_OBJ_SIZE(ib_mw, roc_mw, base),
	};
	static const struct ib_device_ops mcast = {
		.attach_mcast = roc_attach_mcast,
		.detach_mcast = roc_detach_mcast,
	};
	static const struct ib_device_ops xrc = {
		.alloc_xrcd = roc_alloc_xrcd,
		.dealloc_xrcd = roc_dealloc_xrcd,
		INIT_RDMA_OBJ_SIZE(ib_xrcd, roc_xrcd, base),
	};
	static const struct ib_device_ops resize = { .resize_cq = roc_resize_cq };
	static const struct ib_device_ops rereg = { .rereg_user_mr = roc_rereg_user_mr };
	struct ib_device *ibdev = &rdev->base;

	ib_set_device_ops(ibdev, &roc_ops);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_SRQ))
		ib_set_device_ops(ibdev, &srq);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_MW))
		ib_set_device_ops(ibdev, &mw);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_MCAST))
		ib_set_device_ops(ibdev, &mcast);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_XRC))
		ib_set_device_ops(ibdev, &xrc);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_RESIZE))
		ib_set_device_ops(ibdev, &resize);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_REREG_MR))
		ib_set_device_ops(ibdev, &rereg);
}

static int roc_register_device(struct roc_dev *rdev)
{
	struct ib_device *ibdev = &rdev->base;
	int err;

	roc_set_optional(rdev);
	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = rdev->num_vectors;
	ibdev->dev.parent = &rdev->vdev->dev;
	memcpy(&ibdev->node_guid, rdev->config.sys_image_guid, sizeof(ibdev->node_guid));
	strscpy(ibdev->node_desc, "Rocinante virtio-rdma", sizeof(ibdev->node_desc));
	/* Processes post through rings that they map, and call for what the kernel must do. */
	ibdev->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ) |
				  BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				  BIT_ULL(IB_USER_VERBS_CMD_POST_RECV) |
				  BIT_ULL(IB_USER_VERBS_CMD_POST_SRQ_RECV);
	roc_netdev_add(rdev);
	err = ib_register_device(ibdev, "rocinante%d", rdev->dma);
	if (err) {
		roc_netdev_del(rdev);
		return err;
	}
	rdev->registered = true;
	return 0;
}

/* What probe and restore do: the device is as it is after its reset. */
static int roc_start(struct roc_dev *rdev)
{
	int err;

	err = roc_pci_init(rdev);
	if (err)
		return err;
	err = roc_read_config(rdev);
	if (err)
		goto exit_pci;
	err = roc_init_vqs(rdev);
	if (err)
		goto del_vqs;
	virtio_device_ready(rdev->vdev);
	err = roc_events_init(rdev);
	if (err)
		goto reset;
	err = roc_register_device(rdev);
	if (err)
		goto reset;
	return 0;
reset:
	WRITE_ONCE(rdev->dead, true);
	virtio_reset_device(rdev->vdev);
	roc_cmd_exit(rdev);
	roc_events_exit(rdev);
del_vqs:
	roc_return_vectors(rdev);
	rdev->vdev->config->del_vqs(rdev->vdev);
exit_pci:
	roc_pci_exit(rdev);
	return err;
}

static void roc_stop(struct roc_dev *rdev)
{
	/* All objects of clients and processes go here, with commands to the device. */
	rdev->registered = false;
	ib_unregister_device(&rdev->base);
	roc_netdev_del(rdev);
	flush_work(&rdev->fatal_work);
	roc_events_exit(rdev);
	WRITE_ONCE(rdev->dead, true);
	if (pci_device_is_present(rdev->pdev))
		virtio_reset_device(rdev->vdev);
	roc_cmd_exit(rdev);
	roc_return_vectors(rdev);
	rdev->vdev->config->del_vqs(rdev->vdev);
	roc_pci_exit(rdev);
}

static int roc_probe(struct virtio_device *vdev)
{
	struct roc_dev *rdev;
	int err;

	if (!vdev->dev.parent || !dev_is_pci(vdev->dev.parent)) {
		dev_err(&vdev->dev, "only devices on PCI are supported\n");
		return -ENODEV;
	}
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1) ||
	    !virtio_has_feature(vdev, VIRTIO_F_RING_RESET)) {
		dev_err(&vdev->dev, "VERSION_1 and RING_RESET are needed\n");
		return -ENODEV;
	}
	rdev = ib_alloc_device(roc_dev, base);
	if (!rdev)
		return -ENOMEM;
	rdev->vdev = vdev;
	rdev->pdev = to_pci_dev(vdev->dev.parent);
	rdev->dma = vdev->dev.parent;
	mutex_init(&rdev->netdev_lock);
	mutex_init(&rdev->select_lock);
	INIT_WORK(&rdev->fatal_work, roc_fatal_work);
	xa_init_flags(&rdev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&rdev->cqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&rdev->srqs, XA_FLAGS_LOCK_IRQ);
	roc_cmd_init(rdev);
	vdev->priv = rdev;
	err = roc_start(rdev);
	if (err) {
		vdev->priv = NULL;
		ib_dealloc_device(&rdev->base);
	}
	return err;
}

static void roc_remove(struct virtio_device *vdev)
{
	struct roc_dev *rdev = vdev->priv;

	roc_stop(rdev);
	xa_destroy(&rdev->qps);
	xa_destroy(&rdev->cqs);
	xa_destroy(&rdev->srqs);
	vdev->priv = NULL;
	ib_dealloc_device(&rdev->base);
}

static void roc_config_changed(struct virtio_device *vdev)
{
	struct roc_dev *rdev = vdev->priv;

	if (rdev && vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_NEEDS_RESET)
		roc_fatal(rdev);
}

/*
 * Doorbells with data would tell the device where a ring ends, and a page of doorbells is mapped
 * into processes. Rings that processes use have neither event indices nor an order.
 */
static int roc_validate(struct virtio_device *vdev)
{
	__virtio_clear_bit(vdev, VIRTIO_RING_F_EVENT_IDX);
	__virtio_clear_bit(vdev, VIRTIO_F_RING_PACKED);
	__virtio_clear_bit(vdev, 35); /* IN_ORDER */
	__virtio_clear_bit(vdev, 38); /* NOTIFICATION_DATA */
	return 0;
}

static const struct virtio_device_id roc_ids[] = {
	{ ROC_DEVICE_ID, VIRTIO_DEV_ANY_ID },
	{ 0 },
};

static const unsigned int roc_features[] = {
	VIRTIO_RDMA_RDMA_FEATURE_SRQ,
	VIRTIO_RDMA_RDMA_FEATURE_XRC,
	VIRTIO_RDMA_RDMA_FEATURE_EVENTS,
	VIRTIO_RDMA_RDMA_FEATURE_RESIZE,
	VIRTIO_RDMA_RDMA_FEATURE_REREG_MR,
	VIRTIO_RDMA_RDMA_FEATURE_PAGE_SIZES,
	VIRTIO_RDMA_RDMA_FEATURE_MW,
	VIRTIO_RDMA_RDMA_FEATURE_MCAST,
	VIRTIO_RDMA_RDMA_FEATURE_TWO_LEVEL,
	VIRTIO_RDMA_RDMA_FEATURE_QUEUE_ERROR,
	VIRTIO_RDMA_RDMA_FEATURE_PLACEMENT,
	VIRTIO_RDMA_RDMA_FEATURE_ARM_CQ,
};

static struct virtio_driver roc_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = roc_ids,
	.feature_table = roc_features,
	.feature_table_size = ARRAY_SIZE(roc_features),
	.validate = roc_validate,
	.probe = roc_probe,
	.remove = roc_remove,
	.config_changed = roc_config_changed,
};

static int __init roc_init(void)
{
	int err = roc_netdev_init();

	if (err)
		return err;
	err = register_virtio_driver(&roc_driver);
	if (err)
		roc_netdev_exit();
	return err;
}

static void __exit roc_exit(void)
{
	unregister_virtio_driver(&roc_driver);
	roc_netdev_exit();
}

module_init(roc_init);
module_exit(roc_exit);

MODULE_DEVICE_TABLE(virtio, roc_ids);
MODULE_DESCRIPTION("Driver for virtio-rdma devices");
MODULE_LICENSE("GPL");
