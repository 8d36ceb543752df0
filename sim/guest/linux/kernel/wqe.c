// SPDX-License-Identifier: GPL-2.0
/*
 * Send queues, receive queues and SRQs, and what kernel code posts to them.
 *
 * Descriptor "class * slots + slot" is that of a slot with as many SGEs as its class has. All of
 * them are written when the queue is made. Of a queue of the kernel only the first "slots"
 * descriptors are used, and are written with each request.
 */
#include <linux/dma-mapping.h>
#include "rocinante.h"

static void roc_wq_slot(void *owner, u32 slot, dma_addr_t addr)
{
	struct roc_wq *wq = owner;
	u32 class;

	for (class = 0; class < wq->classes; class++) {
		struct vring_desc *desc = &wq->ring.desc[class * wq->slots + slot];
		u32 sges = rocinante_class_sges(class, wq->max_sge);

		desc->addr = (__force __virtio64)cpu_to_le64(addr);
		desc->len = (__force __virtio32)cpu_to_le32(wq->fixed +
							    sges * ROCINANTE_SGE_SIZE);
		desc->flags = 0;
		desc->next = 0;
	}
}

/*
 * Sizes of a queue; -EINVAL when no virtqueue is as large as that. "user": of a process, whose
 * slots have a descriptor for each class.
 */
int roc_wq_size(struct roc_dev *rdev, struct roc_wq *wq, u32 fixed, u32 max_wr, u32 max_sge,
		bool user)
{
	wq->fixed = fixed;
	wq->max_wr = max_wr;
	wq->max_sge = max_sge;
	wq->slots = max(max_wr, 1u);
	wq->classes = user ? rocinante_classes(max_sge) : 1;
	wq->stride = rocinante_stride(fixed, max_sge);
	spin_lock_init(&wq->lock);
	if (wq->stride > ROCINANTE_PAGE_SIZE ||
	    (u64)wq->slots * wq->classes > rdev->max_queue_size)
		return -EINVAL;
	return 0;
}

/* Memory, and the virtqueue. "buf": of a process, its memory for the slots. */
int roc_wq_init(struct roc_dev *rdev, struct roc_wq *wq, u16 index, struct ib_udata *udata,
		u64 buf)
{
	int err;

	err = roc_ring_init(rdev, &wq->ring, index, wq->slots * wq->classes, VIRTIO_MSI_NO_VECTOR);
	if (err)
		return err;
	if (udata) {
		err = roc_umem_slots(rdev, buf, wq->slots, wq->stride, &wq->umem, roc_wq_slot,
				     wq, 0);
	} else {
		wq->buf_size = rocinante_slots_size(wq->slots, wq->stride);
		wq->buf = dma_alloc_coherent(rdev->dma, wq->buf_size, &wq->buf_dma, GFP_KERNEL);
		wq->free = kvcalloc(wq->slots, sizeof(*wq->free), GFP_KERNEL);
		if (!wq->buf || !wq->free)
			err = -ENOMEM;
	}
	if (!err) {
		roc_ring_clear(&wq->ring);
		for (wq->num_free = 0; wq->free && wq->num_free < wq->slots; wq->num_free++)
			wq->free[wq->num_free] = wq->num_free;
		err = roc_ring_enable(&wq->ring);
	}
	if (err)
		roc_wq_exit(wq);
	return err;
}

/* In RESET a queue is empty. */
int roc_wq_restart(struct roc_wq *wq)
{
	unsigned long flags;

	spin_lock_irqsave(&wq->lock, flags);
	for (wq->num_free = 0; wq->free && wq->num_free < wq->slots; wq->num_free++)
		wq->free[wq->num_free] = wq->num_free;
	spin_unlock_irqrestore(&wq->lock, flags);
	return roc_ring_restart(&wq->ring);
}

void roc_wq_exit(struct roc_wq *wq)
{
	struct roc_dev *rdev = wq->ring.rdev;

	if (!rdev)
		return;
	roc_ring_exit(&wq->ring);
	if (wq->umem)
		ib_umem_release(wq->umem);
	if (wq->buf)
		dma_free_coherent(rdev->dma, wq->buf_size, wq->buf, wq->buf_dma);
	kvfree(wq->free);
	wq->umem = NULL;
	wq->buf = NULL;
	wq->free = NULL;
}

/* Posting, by kernel code ---------------------------------------------------------------------- */

/* A free slot, or NULL. The queue's lock is held. */
static void *roc_wq_take(struct roc_wq *wq, u32 *slot)
{
	struct roc_ring *ring = &wq->ring;

	while (roc_ring_used(ring) != ring->last_used) {
		u32 id;

		dma_rmb();
		id = le32_to_cpu((__force __le32)ring->used->ring[ring->last_used++ &
								  (ring->num - 1)].id);
		if (id < wq->slots && wq->num_free < wq->slots)
			wq->free[wq->num_free++] = id;
	}
	if (!wq->num_free || wq->slots - wq->num_free >= wq->max_wr)
		return NULL;
	*slot = wq->free[--wq->num_free];
	return wq->buf + rocinante_slot_offset(*slot, wq->stride);
}

static void roc_wq_give(struct roc_wq *wq, u32 slot, u32 size)
{
	struct roc_ring *ring = &wq->ring;
	struct vring_desc *desc = &ring->desc[slot];

	desc->addr = (__force __virtio64)cpu_to_le64(wq->buf_dma +
						     rocinante_slot_offset(slot, wq->stride));
	desc->len = (__force __virtio32)cpu_to_le32(size);
	desc->flags = 0;
	ring->avail->ring[ring->next_avail++ & (ring->num - 1)] =
		(__force __virtio16)cpu_to_le16(slot);
}

static void roc_wq_publish(struct roc_wq *wq)
{
	struct roc_ring *ring = &wq->ring;

	dma_wmb();
	WRITE_ONCE(ring->avail->idx, (__force __virtio16)cpu_to_le16(ring->next_avail));
	/* The device reads the index when it has seen the doorbell, behind writing its flags. */
	mb();
	if (!(READ_ONCE(ring->used->flags) &
	      (__force __virtio16)cpu_to_le16(VRING_USED_F_NO_NOTIFY)))
		roc_ring_kick(ring);
}

static void roc_sges(struct virtio_rdma_sge *to, const struct ib_sge *from, int num)
{
	int i;

	for (i = 0; i < num; i++) {
		to[i].addr = cpu_to_le64(from[i].addr);
		to[i].length = cpu_to_le32(from[i].length);
		to[i].lkey = cpu_to_le32(from[i].lkey);
	}
}

/* Data of the request in the element itself; its bytes, or an error. */
static int roc_inline(struct roc_qp *qp, void *to, const struct ib_send_wr *wr)
{
	u32 size = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > qp->cap.max_inline_data - size)
			return -EINVAL;
		memcpy(to + size, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		size += wr->sg_list[i].length;
	}
	return size;
}

static int roc_opcode(struct roc_qp *qp, struct virtio_rdma_cmd_post_send *wqe,
		      const struct ib_send_wr *wr)
{
	union virtio_rdma_wr_u *to = &wqe->wr;
	u32 opcode = wr->opcode;

	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_READ_WITH_INV:
		to->rdma.remote_addr = cpu_to_le64(rdma_wr(wr)->remote_addr);
		to->rdma.rkey = cpu_to_le32(rdma_wr(wr)->rkey);
		break;
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		if (qp->base.qp_type != IB_QPT_UD && qp->base.qp_type != IB_QPT_GSI)
			break;
		to->ud.remote_qpn = cpu_to_le32(ud_wr(wr)->remote_qpn);
		to->ud.remote_qkey = cpu_to_le32(ud_wr(wr)->remote_qkey);
		to->ud.av = to_rah(ud_wr(wr)->ah)->av;
		break;
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		to->atomic.remote_addr = cpu_to_le64(atomic_wr(wr)->remote_addr);
		to->atomic.compare_add = cpu_to_le64(atomic_wr(wr)->compare_add);
		to->atomic.swap = cpu_to_le64(atomic_wr(wr)->swap);
		to->atomic.rkey = cpu_to_le32(atomic_wr(wr)->rkey);
		break;
	case IB_WR_REG_MR:
		to->reg.mrn = cpu_to_le32(to_rmr(reg_wr(wr)->mr)->mrn);
		to->reg.key = cpu_to_le32(reg_wr(wr)->key);
		to->reg.access = cpu_to_le32(reg_wr(wr)->access &
					     ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB));
		opcode = VIRTIO_RDMA_WR_OPCODE_REG_MR;
		break;
	default:
		return -EINVAL;
	}
	wqe->opcode = cpu_to_le32(opcode);
	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_SEND_WITH_IMM:
		memcpy(wqe->ex.imm_data, &wr->ex.imm_data, sizeof(wqe->ex.imm_data));
		break;
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
	case IB_WR_RDMA_READ_WITH_INV:
		wqe->ex.invalidate_rkey = cpu_to_le32(wr->ex.invalidate_rkey);
		break;
	default:
		break;
	}
	return 0;
}

/* One send request; the bytes of its element, or an error. */
static int roc_send_wqe(struct roc_qp *qp, struct virtio_rdma_cmd_post_send *wqe,
			const struct ib_send_wr *wr)
{
	u32 flags = wr->send_flags & (IB_SEND_FENCE | IB_SEND_SIGNALED | IB_SEND_SOLICITED |
				      IB_SEND_INLINE);
	int err;

	if (wr->num_sge > qp->sq.max_sge)
		return -EINVAL;
	memset(wqe, 0, sizeof(*wqe));
	err = roc_opcode(qp, wqe, wr);
	if (err)
		return err;
	wqe->send_flags = cpu_to_le32(flags);
	wqe->wr_id = cpu_to_le64(wr->wr_id);
	if (flags & IB_SEND_INLINE) {
		err = roc_inline(qp, wqe + 1, wr);
		return err < 0 ? err : err + (int)sizeof(*wqe);
	}
	wqe->num_sge = cpu_to_le32(wr->num_sge);
	roc_sges((void *)(wqe + 1), wr->sg_list, wr->num_sge);
	return sizeof(*wqe) + wr->num_sge * sizeof(struct virtio_rdma_sge);
}

int roc_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct roc_qp *qp = to_rqp(ibqp);
	struct roc_wq *wq = &qp->sq;
	unsigned long flags;
	bool posted = false;
	int size = 0;
	u32 slot;

	if (wq->umem) {
		/* A process without a mapped doorbell calls with no request. */
		if (wr) {
			*bad = wr;
			return -EINVAL;
		}
		roc_ring_kick(&wq->ring);
		return 0;
	}
	spin_lock_irqsave(&wq->lock, flags);
	if (qp->state != IB_QPS_RTS && qp->state != IB_QPS_SQD && qp->state != IB_QPS_SQE &&
	    qp->state != IB_QPS_ERR)
		size = -EINVAL;
	for (; wr && size >= 0; wr = wr->next) {
		void *wqe = roc_wq_take(wq, &slot);

		if (!wqe) {
			size = -ENOMEM;
			break;
		}
		size = roc_send_wqe(qp, wqe, wr);
		if (size < 0) {
			wq->free[wq->num_free++] = slot;
			break;
		}
		roc_wq_give(wq, slot, size);
		posted = true;
	}
	if (posted)
		roc_wq_publish(wq);
	spin_unlock_irqrestore(&wq->lock, flags);
	if (size >= 0)
		return 0;
	*bad = wr; /* of a list that was posted nobody expects it to be written */
	return size;
}

static int roc_post_receives(struct roc_wq *wq, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad)
{
	unsigned long flags;
	bool posted = false;
	int err = 0;

	if (wq->umem) {
		if (wr) {
			*bad = wr;
			return -EINVAL;
		}
		roc_ring_kick(&wq->ring);
		return 0;
	}
	spin_lock_irqsave(&wq->lock, flags);
	for (; wr; wr = wr->next) {
		struct virtio_rdma_cmd_post_recv *wqe;
		u32 slot;

		if (wr->num_sge > wq->max_sge) {
			err = -EINVAL;
			break;
		}
		wqe = roc_wq_take(wq, &slot);
		if (!wqe) {
			err = -ENOMEM;
			break;
		}
		wqe->num_sge = cpu_to_le32(wr->num_sge);
		wqe->wr_id = cpu_to_le64(wr->wr_id);
		roc_sges((void *)(wqe + 1), wr->sg_list, wr->num_sge);
		roc_wq_give(wq, slot, sizeof(*wqe) +
			    wr->num_sge * sizeof(struct virtio_rdma_sge));
		posted = true;
	}
	if (posted)
		roc_wq_publish(wq);
	spin_unlock_irqrestore(&wq->lock, flags);
	if (err)
		*bad = wr;
	return err;
}

int roc_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct roc_qp *qp = to_rqp(ibqp);

	if (ibqp->srq || (!qp->rq.umem && qp->state == IB_QPS_RESET)) {
		*bad = wr;
		return -EINVAL;
	}
	return roc_post_receives(&qp->rq, wr, bad);
}

int roc_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	return roc_post_receives(&to_rsrq(ibsrq)->wq, wr, bad);
}
