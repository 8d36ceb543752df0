// SPDX-License-Identifier: GPL-2.0
/* Asynchronous events of the device, and what becomes of one that cannot go on. */
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include "rocinante.h"

static void roc_port_told(struct roc_dev *rdev, enum ib_event_type type)
{
	struct ib_event event = { .device = &rdev->base, .event = type, .element.port_num = 1 };

	if (rdev->registered)
		ib_dispatch_event(&event);
}

static void roc_qp_told(struct roc_dev *rdev, u32 qpn, enum ib_event_type type)
{
	struct ib_event event = { .device = &rdev->base, .event = type };
	unsigned long flags;
	struct roc_qp *qp;

	xa_lock_irqsave(&rdev->qps, flags);
	qp = xa_load(&rdev->qps, roc_pair(rdev, qpn));
	if (qp && (qp->qpn != qpn || !refcount_inc_not_zero(&qp->ref)))
		qp = NULL;
	xa_unlock_irqrestore(&rdev->qps, flags);
	if (!qp)
		return;
	if (type == IB_EVENT_QP_FATAL)
		qp->state = IB_QPS_ERR;
	event.element.qp = &qp->base;
	if (qp->base.event_handler)
		qp->base.event_handler(&event, qp->base.qp_context);
	if (refcount_dec_and_test(&qp->ref))
		complete(&qp->unused);
}

static void roc_cq_told(struct roc_dev *rdev, u32 cqn)
{
	struct ib_event event = { .device = &rdev->base, .event = IB_EVENT_CQ_ERR };
	unsigned long flags;
	struct roc_cq *cq;

	xa_lock_irqsave(&rdev->cqs, flags);
	cq = xa_load(&rdev->cqs, cqn);
	event.element.cq = cq ? &cq->base : NULL;
	if (cq && cq->base.event_handler)
		cq->base.event_handler(&event, cq->base.cq_context);
	xa_unlock_irqrestore(&rdev->cqs, flags);
}

static void roc_srq_told(struct roc_dev *rdev, u32 srqn, enum ib_event_type type)
{
	struct ib_event event = { .device = &rdev->base, .event = type };
	unsigned long flags;
	struct roc_srq *srq;

	xa_lock_irqsave(&rdev->srqs, flags);
	srq = xa_load(&rdev->srqs, srqn);
	event.element.srq = srq ? &srq->base : NULL;
	if (srq && srq->base.event_handler)
		srq->base.event_handler(&event, srq->base.srq_context);
	xa_unlock_irqrestore(&rdev->srqs, flags);
}

static void roc_event(struct roc_dev *rdev, const struct virtio_rdma_event *event)
{
	u32 number = le32_to_cpu(event->number);

	if (event->lost)
		dev_warn_ratelimited(&rdev->vdev->dev, "%u events were lost\n",
				     le32_to_cpu(event->lost));
	switch (event->event) {
	case VIRTIO_RDMA_EVENT_TYPE_CQ_ERR:
		roc_cq_told(rdev, number);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_QP_FATAL:
		roc_qp_told(rdev, number, IB_EVENT_QP_FATAL);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_SQ_DRAINED:
		roc_qp_told(rdev, number, IB_EVENT_SQ_DRAINED);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_QP_LAST_WQE_REACHED:
		roc_qp_told(rdev, number, IB_EVENT_QP_LAST_WQE_REACHED);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_SRQ_LIMIT_REACHED:
		roc_srq_told(rdev, number, IB_EVENT_SRQ_LIMIT_REACHED);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_SRQ_ERR:
		roc_srq_told(rdev, number, IB_EVENT_SRQ_ERR);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_PORT_ACTIVE:
		roc_port_told(rdev, IB_EVENT_PORT_ACTIVE);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_PORT_ERR:
		roc_port_told(rdev, IB_EVENT_PORT_ERR);
		break;
	case VIRTIO_RDMA_EVENT_TYPE_PKEY_CHANGE:
		roc_port_told(rdev, IB_EVENT_PKEY_CHANGE);
		break;
	/* The core tells of its GIDs itself. */
	case VIRTIO_RDMA_EVENT_TYPE_GID_CHANGE:
		break;
	default:
		dev_warn_ratelimited(&rdev->vdev->dev, "event %u is not known\n", event->event);
	}
}

static void roc_event_work(struct work_struct *work)
{
	struct roc_dev *rdev = container_of(work, struct roc_dev, event_work);
	struct roc_ring *ring = &rdev->events;
	bool any = false;

	while (roc_ring_used(ring) != ring->last_used) {
		u32 id;

		dma_rmb();
		id = le32_to_cpu((__force __le32)ring->used->ring[ring->last_used++ &
								  (ring->num - 1)].id);
		if (id >= ROC_EVENTS)
			continue;
		roc_event(rdev, &rdev->event_buf[id]);
		ring->avail->ring[ring->next_avail++ & (ring->num - 1)] =
			(__force __virtio16)cpu_to_le16(id);
		dma_wmb();
		WRITE_ONCE(ring->avail->idx, (__force __virtio16)cpu_to_le16(ring->next_avail));
		any = true;
	}
	if (any)
		roc_ring_kick(ring);
}

irqreturn_t roc_event_interrupt(int irq, void *data)
{
	struct roc_vector *vector = data;
	struct roc_dev *rdev = vector->rdev;

	if (READ_ONCE(rdev->events_up))
		schedule_work(&rdev->event_work);
	return IRQ_HANDLED;
}

int roc_events_init(struct roc_dev *rdev)
{
	struct roc_ring *ring = &rdev->events;
	int i, err;

	INIT_WORK(&rdev->event_work, roc_event_work);
	if (!roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_EVENTS))
		return 0;
	err = roc_ring_init(rdev, ring, VIRTIO_RDMA_EVENT_QUEUE(rdev->max_cq, rdev->max_qp),
			    ROC_EVENTS, rdev->event_vector + 2);
	if (err)
		return err;
	rdev->event_buf = dma_alloc_coherent(rdev->dma, ROC_EVENTS * sizeof(*rdev->event_buf),
					     &rdev->event_dma, GFP_KERNEL);
	if (!rdev->event_buf) {
		roc_ring_exit(ring);
		return -ENOMEM;
	}
	roc_ring_clear(ring);
	for (i = 0; i < ROC_EVENTS; i++) {
		struct vring_desc *desc = &ring->desc[i];

		desc->addr = (__force __virtio64)cpu_to_le64(rdev->event_dma +
							     i * sizeof(*rdev->event_buf));
		desc->len = (__force __virtio32)cpu_to_le32(sizeof(*rdev->event_buf));
		desc->flags = (__force __virtio16)cpu_to_le16(VRING_DESC_F_WRITE);
		desc->next = 0;
	}
	roc_ring_fill(ring, ROC_EVENTS);
	rdev->events_up = true;
	err = roc_ring_enable(ring);
	if (err)
		roc_events_exit(rdev);
	return err;
}

void roc_events_exit(struct roc_dev *rdev)
{
	if (!rdev->event_buf)
		return;
	WRITE_ONCE(rdev->events_up, false);
	if (rdev->vectors[rdev->event_vector].own)
		synchronize_irq(rdev->vectors[rdev->event_vector].irq);
	cancel_work_sync(&rdev->event_work);
	roc_ring_exit(&rdev->events);
	dma_free_coherent(rdev->dma, ROC_EVENTS * sizeof(*rdev->event_buf), rdev->event_buf,
			  rdev->event_dma);
	rdev->event_buf = NULL;
}

/* Device errors -------------------------------------------------------------------------------- */

/* Reset the device, so that it uses no memory any more, and end all commands. */
void roc_fatal_work(struct work_struct *work)
{
	struct roc_dev *rdev = container_of(work, struct roc_dev, fatal_work);
	struct ib_event event = { .device = &rdev->base, .event = IB_EVENT_DEVICE_FATAL };

	if (pci_device_is_present(rdev->pdev))
		virtio_reset_device(rdev->vdev);
	roc_cmd_exit(rdev);
	if (rdev->registered)
		ib_dispatch_event(&event);
}

/* The device needs a reset, or does not answer. May be called anywhere. */
void roc_fatal(struct roc_dev *rdev)
{
	bool was = xchg(&rdev->dead, true);

	if (was)
		return;
	dev_err(&rdev->vdev->dev, "the device has stopped, it is of no use until it is bound again\n");
	schedule_work(&rdev->fatal_work);
}
