// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues.
 *
 * A vector is shared by CQs. Its interrupt looks for armed ones whose used index has moved since
 * they were armed. What a process writes into its ring can at worst cost it an event of its own.
 *
 * With ARM_CQ a CQ is armed by its doorbell, which says what has been seen of it: the device tells
 * at once what has not. Without, arming is a command of the control queue. Kernel code arms CQs
 * where nobody may sleep, so such a command is only posted. A completion that comes before the
 * device has carried it out makes no interrupt; the command's answer therefore looks for one.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include "rocinante.h"

static void roc_cq_slot(void *owner, u32 slot, dma_addr_t addr)
{
	struct roc_cq *cq = owner;
	struct vring_desc *desc = &cq->ring.desc[slot];

	desc->addr = (__force __virtio64)cpu_to_le64(addr);
	desc->len = (__force __virtio32)cpu_to_le32(sizeof(struct virtio_rdma_cq_req));
	desc->flags = (__force __virtio16)cpu_to_le16(VRING_DESC_F_WRITE);
	desc->next = 0;
}

static int roc_cq_kernel_slots(struct roc_dev *rdev, struct roc_cq *cq)
{
	u32 i;

	cq->buf_size = rocinante_slots_size(cq->room, ROCINANTE_CQE_STRIDE);
	cq->buf = dma_alloc_coherent(rdev->dma, cq->buf_size, &cq->buf_dma, GFP_KERNEL);
	if (!cq->buf)
		return -ENOMEM;
	for (i = 0; i < cq->room; i++)
		roc_cq_slot(cq, i, cq->buf_dma + rocinante_slot_offset(i, ROCINANTE_CQE_STRIDE));
	cq->arm = roc_cmd_alloc(sizeof(struct virtio_rdma_cmd_req_notify), 0, GFP_KERNEL);
	return cq->arm ? 0 : -ENOMEM;
}

static void roc_cq_free(struct roc_dev *rdev, struct roc_cq *cq)
{
	roc_ring_exit(&cq->ring);
	if (cq->umem)
		ib_umem_release(cq->umem);
	if (cq->buf)
		dma_free_coherent(rdev->dma, cq->buf_size, cq->buf, cq->buf_dma);
	roc_cmd_free(cq->arm);
	cq->umem = NULL;
	cq->buf = NULL;
	cq->arm = NULL;
}

static int roc_cq_device(struct roc_dev *rdev, struct roc_cq *cq, u32 entries)
{
	struct virtio_rdma_cmd_create_cq cmd = { .cqe = cpu_to_le32(entries) };
	struct virtio_rdma_rsp_create_cq made;
	int err;

	err = roc_call2(rdev, VIRTIO_RDMA_CONTROL_COMMAND_CREATE_CQ, cmd, made);
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	cq->cqn = le32_to_cpu(made.cqn);
	return cq->cqn < rdev->max_cq ? 0 : -EIO;
}

static int roc_cq_undo(struct roc_dev *rdev, struct roc_cq *cq)
{
	struct virtio_rdma_cmd_destroy_cq cmd = { .cqn = cpu_to_le32(cq->cqn) };
	int err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DESTROY_CQ, cmd);

	if (rdev->dead)
		return 0;
	return err == -EINVAL ? -EBUSY : err;
}

int roc_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibcq->device);
	struct roc_cq *cq = to_rcq(ibcq);
	u32 most = min(le32_to_cpu(rdev->config.max_cqe), rdev->max_queue_size);
	struct roc_vector *vector = &rdev->vectors[attr->comp_vector % rdev->num_vectors];
	struct rocinante_create_cq_resp resp = {};
	struct rocinante_create_cq_req req = {};
	int err;

	if (attr->flags || attr->cqe < 1 || attr->cqe > most)
		return attr->flags ? -EOPNOTSUPP : -EINVAL;
	if (udata) {
		err = ib_copy_from_udata(&req, udata, min(sizeof(req), udata->inlen));
		if (err)
			return err;
		if (req.room < attr->cqe || req.room > most || req.reserved)
			return -EINVAL;
	}
	cq->room = udata ? req.room : attr->cqe;
	spin_lock_init(&cq->lock);
	INIT_LIST_HEAD(&cq->node);
	err = roc_cq_device(rdev, cq, attr->cqe);
	if (err)
		return err;
	err = roc_ring_init(rdev, &cq->ring, VIRTIO_RDMA_CQ_QUEUE(cq->cqn), cq->room,
			    vector - rdev->vectors + 2);
	if (err)
		goto undo;
	if (udata)
		err = roc_umem_slots(rdev, req.buf, cq->room, ROCINANTE_CQE_STRIDE, &cq->umem,
				     roc_cq_slot, cq, IB_ACCESS_LOCAL_WRITE);
	else
		err = roc_cq_kernel_slots(rdev, cq);
	if (err)
		goto free;
	roc_ring_clear(&cq->ring);
	roc_ring_fill(&cq->ring, attr->cqe);
	err = roc_ring_enable(&cq->ring);
	if (err)
		goto free;
	ibcq->cqe = attr->cqe;
	if (udata) {
		struct roc_ucontext *ctx = rdma_udata_to_drv_context(udata, struct roc_ucontext,
								     base);

		err = roc_ring_share(&cq->ring, &ctx->base, &resp.ring, cq->room);
		if (err)
			goto free;
		resp.cqn = cq->cqn;
		err = roc_respond(udata, &resp, sizeof(resp));
		if (err)
			goto free;
	}
	err = xa_err(xa_store_irq(&rdev->cqs, cq->cqn, cq, GFP_KERNEL));
	if (err)
		goto free;
	spin_lock_irq(&vector->lock);
	list_add_tail(&cq->node, &vector->cqs);
	spin_unlock_irq(&vector->lock);
	return 0;
free:
	/* The device must not write there any more. */
	roc_cq_undo(rdev, cq);
	roc_cq_free(rdev, cq);
	return err;
undo:
	roc_cq_undo(rdev, cq);
	return err;
}

static struct roc_vector *roc_cq_vector(struct roc_cq *cq)
{
	return &cq->ring.rdev->vectors[cq->ring.vector - 2];
}

/* No event of it comes any more and none is told, and no answer to a command that arms it. */
static void roc_cq_quiet(struct roc_cq *cq)
{
	struct roc_vector *vector = roc_cq_vector(cq);
	bool busy;

	for (;;) {
		spin_lock_irq(&vector->lock);
		list_del_init(&cq->node);
		cq->armed = false;
		cq->arm_again = 0;
		busy = cq->arming || cq->telling;
		spin_unlock_irq(&vector->lock);
		if (!busy)
			break;
		usleep_range(1000, 2000);
	}
}

int roc_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibcq->device);
	struct roc_cq *cq = to_rcq(ibcq);
	int err;

	err = roc_cq_undo(rdev, cq);
	if (err)
		return err;
	xa_erase_irq(&rdev->cqs, cq->cqn);
	roc_cq_quiet(cq);
	roc_cq_free(rdev, cq);
	return 0;
}

int roc_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct virtio_rdma_cmd_resize_cq cmd = {};
	struct roc_dev *rdev = to_rdev(ibcq->device);
	struct roc_cq *cq = to_rcq(ibcq);
	int err;

	/* The process looks after the buffers; the kernel's own users have no such call. */
	if (!udata)
		return -EOPNOTSUPP;
	if (cqe < 1 || cqe > cq->room)
		return -EINVAL;
	cmd.cqn = cpu_to_le32(cq->cqn);
	cmd.cqe = cpu_to_le32(cqe);
	err = roc_call(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_RESIZE_CQ, cmd);
	if (!err)
		ibcq->cqe = cqe;
	return err;
}

/* Interrupts and arming ------------------------------------------------------------------------ */

static bool roc_cq_moved(const struct roc_cq *cq)
{
	return cq->armed && roc_ring_used(&cq->ring) != cq->armed_at;
}

/*
 * Tell its user if a completion has come since it was armed. The vector's lock is held, but not
 * while he is told: he may arm the CQ again. Whoever finds something meanwhile leaves it to the
 * one who tells. True if the lock was not held for a while.
 */
static bool roc_cq_look(struct roc_cq *cq, unsigned long *flags)
{
	struct roc_vector *vector = roc_cq_vector(cq);

	if (!roc_cq_moved(cq))
		return false;
	if (cq->telling) {
		cq->missed = true;
		return false;
	}
	do {
		cq->armed = false;
		cq->missed = false;
		if (!cq->base.comp_handler)
			return false;
		cq->telling = true;
		spin_unlock_irqrestore(&vector->lock, *flags);
		cq->base.comp_handler(&cq->base, cq->base.cq_context);
		spin_lock_irqsave(&vector->lock, *flags);
		cq->telling = false;
	} while (cq->missed && roc_cq_moved(cq));
	return true;
}

irqreturn_t roc_cq_interrupt(int irq, void *data)
{
	struct roc_vector *vector = data;
	unsigned long flags;
	struct roc_cq *cq;

	spin_lock_irqsave(&vector->lock, flags);
	vector->pass++;
again:
	list_for_each_entry(cq, &vector->cqs, node) {
		if (cq->pass == vector->pass)
			continue;
		cq->pass = vector->pass;
		if (roc_cq_look(cq, &flags))
			goto again; /* the list may be another one */
	}
	spin_unlock_irqrestore(&vector->lock, flags);
	return IRQ_HANDLED;
}

static int roc_arm_post(struct roc_cq *cq, u32 flags);

/* The device has armed a CQ of the kernel. */
static void roc_armed(void *owner, int result)
{
	struct roc_cq *cq = owner;
	struct roc_vector *vector = roc_cq_vector(cq);
	unsigned long flags;
	u32 again;

	spin_lock_irqsave(&vector->lock, flags);
	cq->arming = false;
	again = cq->arm_again;
	cq->arm_again = 0;
	if (again && !result) {
		cq->arming = true;
		if (roc_arm_post(cq, again))
			cq->arming = false;
	}
	/* What has come before the device was armed makes no interrupt. */
	roc_cq_look(cq, &flags);
	spin_unlock_irqrestore(&vector->lock, flags);
}

static int roc_arm_post(struct roc_cq *cq, u32 flags)
{
	struct virtio_rdma_cmd_req_notify cmd = {
		.cqn = cpu_to_le32(cq->cqn), .flags = cpu_to_le32(flags),
	};

	return roc_cmd_post(cq->ring.rdev, cq->arm, VIRTIO_RDMA_CONTROL_COMMAND_REQ_NOTIFY_CQ,
			    &cmd, sizeof(cmd), roc_armed, cq);
}

static void roc_arm_ring(struct roc_cq *cq, u32 what)
{
	roc_ring_arm(&cq->ring, cq->armed_at, what == VIRTIO_RDMA_NOTIFY_FLAGS_SOLICITED);
}

static int roc_arm_kernel(struct roc_cq *cq, u32 what)
{
	struct roc_vector *vector = roc_cq_vector(cq);
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&vector->lock, flags);
	cq->armed = true;
	cq->armed_at = READ_ONCE(cq->ring.last_used);
	if (roc_has(cq->ring.rdev, VIRTIO_RDMA_RDMA_FEATURE_ARM_CQ)) {
		roc_arm_ring(cq, what);
	} else if (cq->arming) {
		cq->arm_again |= what;
	} else {
		cq->arming = true;
		err = roc_arm_post(cq, what);
		if (err) {
			cq->arming = false;
			cq->armed = false;
		}
	}
	spin_unlock_irqrestore(&vector->lock, flags);
	return err;
}

static int roc_arm_user(struct roc_cq *cq, u32 what)
{
	struct virtio_rdma_cmd_req_notify cmd = {
		.cqn = cpu_to_le32(cq->cqn), .flags = cpu_to_le32(what),
	};
	struct roc_vector *vector = roc_cq_vector(cq);
	bool by_doorbell;

	spin_lock_irq(&vector->lock);
	cq->armed = true;
	cq->armed_at = roc_ring_used(&cq->ring);
	by_doorbell = roc_has(cq->ring.rdev, VIRTIO_RDMA_RDMA_FEATURE_ARM_CQ);
	if (by_doorbell)
		roc_arm_ring(cq, what);
	spin_unlock_irq(&vector->lock);
	if (by_doorbell)
		return 0;
	return roc_call(cq->ring.rdev, VIRTIO_RDMA_CONTROL_COMMAND_REQ_NOTIFY_CQ, cmd);
}

int roc_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct roc_cq *cq = to_rcq(ibcq);
	u32 what = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED ?
		   VIRTIO_RDMA_NOTIFY_FLAGS_SOLICITED : VIRTIO_RDMA_NOTIFY_FLAGS_NEXT_COMPLETION;
	int err;

	if (cq->umem)
		return roc_arm_user(cq, what);
	err = roc_arm_kernel(cq, what);
	if (err)
		return err;
	return flags & IB_CQ_REPORT_MISSED_EVENTS &&
	       roc_ring_used(&cq->ring) != READ_ONCE(cq->ring.last_used);
}

/* Polling, of CQs of the kernel ---------------------------------------------------------------- */

static int roc_wc(struct roc_dev *rdev, const struct virtio_rdma_cq_req *cqe, struct ib_wc *wc)
{
	u32 flags = le32_to_cpu(cqe->wc_flags);
	u32 qpn = le32_to_cpu(cqe->qp_num);
	struct roc_qp *qp;

	/* It may have gone already. */
	qp = xa_load(&rdev->qps, roc_pair(rdev, qpn));
	if (!qp)
		return -ENOENT;
	memset(wc, 0, sizeof(*wc));
	wc->qp = &qp->base;
	wc->wr_id = le64_to_cpu(cqe->wr_id);
	wc->status = cqe->status;
	wc->opcode = cqe->opcode == VIRTIO_RDMA_WC_OPCODE_REG_MR ? IB_WC_REG_MR : cqe->opcode;
	wc->vendor_err = le32_to_cpu(cqe->vendor_err);
	wc->byte_len = le32_to_cpu(cqe->byte_len);
	wc->src_qp = le32_to_cpu(cqe->src_qp);
	wc->pkey_index = le16_to_cpu(cqe->pkey_index);
	wc->sl = cqe->sl;
	wc->port_num = cqe->port_num ?: 1;
	if (flags & VIRTIO_RDMA_WC_FLAGS_GRH)
		wc->wc_flags |= IB_WC_GRH;
	if (flags & VIRTIO_RDMA_WC_FLAGS_IP_CSUM_OK)
		wc->wc_flags |= IB_WC_IP_CSUM_OK;
	if (flags & VIRTIO_RDMA_WC_FLAGS_WITH_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		memcpy(&wc->ex.imm_data, cqe->ex.imm_data, sizeof(wc->ex.imm_data));
	} else if (flags & VIRTIO_RDMA_WC_FLAGS_WITH_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = le32_to_cpu(cqe->ex.invalidate_rkey);
	}
	return 0;
}

int roc_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct roc_cq *cq = to_rcq(ibcq);
	struct roc_ring *ring = &cq->ring;
	unsigned long flags;
	int found = 0;

	if (!cq->buf)
		return -EINVAL;
	spin_lock_irqsave(&cq->lock, flags);
	while (found < count && roc_ring_used(ring) != ring->last_used) {
		u32 id;

		dma_rmb();
		id = le32_to_cpu((__force __le32)ring->used->ring[ring->last_used &
								  (ring->num - 1)].id);
		WRITE_ONCE(ring->last_used, ring->last_used + 1);
		if (id >= cq->room) {
			dev_err_ratelimited(&ring->rdev->vdev->dev, "CQ %u: element %u\n",
					    cq->cqn, id);
			continue;
		}
		if (!roc_wc(ring->rdev, cq->buf + rocinante_slot_offset(id, ROCINANTE_CQE_STRIDE),
			    wc + found))
			found++;
		ring->avail->ring[ring->next_avail & (ring->num - 1)] =
			(__force __virtio16)cpu_to_le16(id);
		ring->next_avail++;
		dma_wmb();
		WRITE_ONCE(ring->avail->idx, (__force __virtio16)cpu_to_le16(ring->next_avail));
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return found;
}
