// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: the receive virtqueue of a pair that is no queue pair's. Those of a domain
 * of XRC have a number besides, by which requests name them.
 */
#include "rocinante.h"

static int roc_srq_undo(struct roc_dev *rdev, struct roc_srq *srq)
{
	struct virtio_rdma_cmd_destroy_srq cmd = { .srqn = cpu_to_le32(srq->srqn) };
	int err = roc_call(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_DESTROY_SRQ, cmd);

	if (rdev->dead)
		return 0;
	return err == -EINVAL ? -EBUSY : err;
}

static int roc_srq_device(struct roc_dev *rdev, struct roc_srq *srq,
			  const struct ib_srq_init_attr *init)
{
	const struct ib_srq_attr *attr = &init->attr;
	struct virtio_rdma_cmd_create_srq cmd = {
		.pdn = cpu_to_le32(to_rpd(srq->base.pd)->pdn),
		.max_wr = cpu_to_le32(attr->max_wr),
		.max_sge = cpu_to_le32(attr->max_sge),
		.srq_limit = cpu_to_le32(attr->srq_limit),
	};
	struct virtio_rdma_rsp_create_srq made;
	int err;

	err = roc_call2(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_CREATE_SRQ, cmd, made);
	if (!err)
		srq->srqn = le32_to_cpu(made.srqn);
	return err;
}

static int roc_xrc_srq_device(struct roc_dev *rdev, struct roc_srq *srq,
			      const struct ib_srq_init_attr *init)
{
	const struct ib_srq_attr *attr = &init->attr;
	struct virtio_rdma_cmd_create_xrc_srq cmd = {
		.pdn = cpu_to_le32(to_rpd(srq->base.pd)->pdn),
		.max_wr = cpu_to_le32(attr->max_wr),
		.max_sge = cpu_to_le32(attr->max_sge),
		.srq_limit = cpu_to_le32(attr->srq_limit),
		.xrcdn = cpu_to_le32(to_rxrcd(init->ext.xrc.xrcd)->xrcdn),
		.cqn = cpu_to_le32(to_rcq(init->ext.cq)->cqn),
	};
	struct virtio_rdma_rsp_create_xrc_srq made;
	int err;

	err = roc_call2(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_CREATE_XRC_SRQ, cmd, made);
	if (!err) {
		srq->srqn = le32_to_cpu(made.srqn);
		srq->base.ext.xrc.srq_num = le32_to_cpu(made.srq_num);
	}
	return err;
}

int roc_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibsrq->device);
	struct ib_srq_attr *attr = &init->attr;
	struct roc_srq *srq = to_rsrq(ibsrq);
	struct rocinante_create_srq_resp resp = {};
	struct rocinante_create_srq_req req = {};
	bool xrc = init->srq_type == IB_SRQT_XRC;
	int err;

	if (init->srq_type != IB_SRQT_BASIC &&
	    !(xrc && udata && roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_XRC)))
		return -EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > rdev->base.attrs.max_srq_wr ||
	    attr->max_sge > rdev->base.attrs.max_srq_sge)
		return -EINVAL;
	if (udata) {
		err = ib_copy_from_udata(&req, udata, min(sizeof(req), udata->inlen));
		if (err)
			return err;
		if (req.room < attr->max_wr || req.room > rdev->max_queue_size || req.reserved)
			return -EINVAL;
	}
	err = roc_wq_size(rdev, &srq->wq, sizeof(struct virtio_rdma_cmd_post_recv),
			  udata ? req.room : attr->max_wr, attr->max_sge, udata);
	if (err)
		return err;
	srq->wq.max_wr = attr->max_wr;
	err = xrc ? roc_xrc_srq_device(rdev, srq, init) : roc_srq_device(rdev, srq, init);
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	if (srq->srqn >= rdev->max_qp) {
		err = -EIO;
		goto undo;
	}
	err = roc_wq_init(rdev, &srq->wq, VIRTIO_RDMA_RQ_QUEUE(srq->srqn, rdev->max_cq), udata,
			  req.buf);
	if (err)
		goto undo;
	if (udata) {
		struct roc_ucontext *ctx = rdma_udata_to_drv_context(udata, struct roc_ucontext,
								     base);

		err = roc_ring_share(&srq->wq.ring, &ctx->base, &resp.ring, srq->wq.slots);
		resp.srqn = srq->srqn;
		if (!err)
			err = roc_respond(udata, &resp, sizeof(resp));
	}
	if (!err)
		err = xa_err(xa_store_irq(&rdev->srqs, srq->srqn, srq, GFP_KERNEL));
	if (!err)
		return 0;
undo:
	roc_srq_undo(rdev, srq);
	roc_wq_exit(&srq->wq);
	return err;
}

int roc_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		   struct ib_udata *udata)
{
	struct roc_srq *srq = to_rsrq(ibsrq);
	struct virtio_rdma_cmd_modify_srq cmd = { .srqn = cpu_to_le32(srq->srqn) };
	int err;

	/* No more than there are slots: the ring does not move. */
	if (mask & IB_SRQ_MAX_WR && (!attr->max_wr || attr->max_wr > srq->wq.slots))
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR)
		cmd.attr_mask |= cpu_to_le32(VIRTIO_RDMA_SRQ_ATTR_MASK_MAX_WR);
	if (mask & IB_SRQ_LIMIT)
		cmd.attr_mask |= cpu_to_le32(VIRTIO_RDMA_SRQ_ATTR_MASK_LIMIT);
	cmd.max_wr = cpu_to_le32(attr->max_wr);
	cmd.srq_limit = cpu_to_le32(attr->srq_limit);
	err = roc_call(to_rdev(ibsrq->device), VIRTIO_RDMA_EXTENSION_COMMAND_MODIFY_SRQ, cmd);
	if (!err && mask & IB_SRQ_MAX_WR)
		srq->wq.max_wr = attr->max_wr;
	return err;
}

int roc_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct virtio_rdma_cmd_query_srq ask = { .srqn = cpu_to_le32(to_rsrq(ibsrq)->srqn) };
	struct virtio_rdma_rsp_query_srq told;
	int err;

	err = roc_call2(to_rdev(ibsrq->device), VIRTIO_RDMA_EXTENSION_COMMAND_QUERY_SRQ, ask, told);
	if (err)
		return err;
	attr->max_wr = le32_to_cpu(told.max_wr);
	attr->max_sge = le32_to_cpu(told.max_sge);
	attr->srq_limit = le32_to_cpu(told.srq_limit);
	return 0;
}

int roc_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibsrq->device);
	struct roc_srq *srq = to_rsrq(ibsrq);
	int err;

	err = roc_srq_undo(rdev, srq);
	if (err)
		return err;
	/* Events are dispatched under the lock of the table. */
	xa_erase_irq(&rdev->srqs, srq->srqn);
	roc_wq_exit(&srq->wq);
	return 0;
}

/* Domains of XRC ------------------------------------------------------------------------------- */

int roc_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibxrcd->device);
	struct virtio_rdma_cmd_alloc_xrcd cmd = {};
	struct virtio_rdma_rsp_alloc_xrcd made;
	int err;

	err = roc_call2(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_ALLOC_XRCD, cmd, made);
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	to_rxrcd(ibxrcd)->xrcdn = le32_to_cpu(made.xrcdn);
	return 0;
}

int roc_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct virtio_rdma_cmd_dealloc_xrcd cmd = {
		.xrcdn = cpu_to_le32(to_rxrcd(ibxrcd)->xrcdn),
	};
	struct roc_dev *rdev = to_rdev(ibxrcd->device);
	int err = roc_call(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_DEALLOC_XRCD, cmd);

	if (rdev->dead)
		return 0;
	return err == -EINVAL ? -EBUSY : err;
}
