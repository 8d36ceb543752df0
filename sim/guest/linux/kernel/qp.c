// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs. An initiator of XRC has no receive side, and a target has no queue, PD or CQ at all.
 */
#include <rdma/ib_addr.h>
#include "rocinante.h"

#define ROC_SEND_FIXED		sizeof(struct virtio_rdma_cmd_post_send)
#define ROC_RECV_FIXED		sizeof(struct virtio_rdma_cmd_post_recv)
/* Of a QP of the kernel: elements may come back a little later than their completions. */
#define ROC_SLACK		16
#define ROC_MAX_INLINE		256

static int roc_qp_type(enum ib_qp_type type)
{
	switch (type) {
	case IB_QPT_GSI:
		return VIRTIO_RDMA_QP_TYPE_GSI;
	case IB_QPT_RC:
		return VIRTIO_RDMA_QP_TYPE_RC;
	case IB_QPT_UC:
		return VIRTIO_RDMA_QP_TYPE_UC;
	case IB_QPT_UD:
		return VIRTIO_RDMA_QP_TYPE_UD;
	case IB_QPT_XRC_INI:
		return VIRTIO_RDMA_QP_TYPE_XRC_INI;
	case IB_QPT_XRC_TGT:
		return VIRTIO_RDMA_QP_TYPE_XRC_TGT;
	default:
		return -EOPNOTSUPP;
	}
}

static bool roc_sends(const struct ib_qp_init_attr *attr)
{
	return attr->qp_type != IB_QPT_XRC_TGT;
}

/* Whether it has a receive queue of its own. */
static bool roc_receives(const struct ib_qp_init_attr *attr)
{
	return !attr->srq && attr->qp_type != IB_QPT_XRC_INI && attr->qp_type != IB_QPT_XRC_TGT;
}

static int roc_qp_check(struct roc_dev *rdev, struct ib_qp_init_attr *attr, bool user)
{
	struct ib_device_attr *most = &rdev->base.attrs;
	struct ib_qp_cap *cap = &attr->cap;

	if (roc_qp_type(attr->qp_type) < 0 || attr->create_flags)
		return -EOPNOTSUPP;
	if (user && attr->qp_type == IB_QPT_GSI)
		return -EOPNOTSUPP;
	if ((attr->qp_type == IB_QPT_XRC_INI || attr->qp_type == IB_QPT_XRC_TGT) &&
	    !roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_XRC))
		return -EOPNOTSUPP;
	/* The kernel itself posts no requests of XRC. A target is never told whose it is. */
	if (!user && attr->qp_type == IB_QPT_XRC_INI)
		return -EOPNOTSUPP;
	if (!roc_sends(attr))
		return 0;
	if (cap->max_send_wr > most->max_qp_wr || cap->max_send_sge > most->max_send_sge ||
	    cap->max_send_sge > most->max_sge_rd)
		return -EINVAL;
	if (roc_receives(attr) && (cap->max_recv_wr > most->max_qp_wr ||
				   cap->max_recv_sge > most->max_recv_sge))
		return -EINVAL;
	if (!user && cap->max_inline_data > ROC_MAX_INLINE)
		return -EINVAL;
	return 0;
}

static int roc_qp_device(struct roc_dev *rdev, struct roc_qp *qp, struct ib_pd *ibpd,
			 struct ib_qp_init_attr *attr, bool user)
{
	struct virtio_rdma_cmd_create_qp cmd = {
		.qp_type = roc_qp_type(attr->qp_type),
		.sq_sig_type = attr->sq_sig_type == IB_SIGNAL_ALL_WR ?
			       VIRTIO_RDMA_SIG_TYPE_ALL_WR : VIRTIO_RDMA_SIG_TYPE_REQ_WR,
	};
	struct virtio_rdma_rsp_create_qp made;
	int err;

	if (roc_sends(attr)) {
		cmd.pdn = cpu_to_le32(to_rpd(ibpd)->pdn);
		cmd.max_send_wr = cpu_to_le32(attr->cap.max_send_wr);
		cmd.max_send_sge = cpu_to_le32(attr->cap.max_send_sge);
		cmd.send_cqn = cpu_to_le32(to_rcq(attr->send_cq)->cqn);
	} else {
		cmd.xrcdn = cpu_to_le32(to_rxrcd(attr->xrcd)->xrcdn);
	}
	/* The descriptors of a process have fixed lengths: its inline data are no element's. */
	if (!user && roc_sends(attr))
		cmd.max_inline_data = cpu_to_le32(attr->cap.max_inline_data);
	if (attr->recv_cq && attr->qp_type != IB_QPT_XRC_INI)
		cmd.recv_cqn = cpu_to_le32(to_rcq(attr->recv_cq)->cqn);
	if (attr->srq) {
		cmd.srqn = cpu_to_le32(to_rsrq(attr->srq)->srqn);
	} else if (roc_receives(attr)) {
		cmd.max_recv_wr = cpu_to_le32(attr->cap.max_recv_wr);
		cmd.max_recv_sge = cpu_to_le32(attr->cap.max_recv_sge);
	}
	err = roc_call2(rdev, VIRTIO_RDMA_CONTROL_COMMAND_CREATE_QP, cmd, made);
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	qp->qpn = le32_to_cpu(made.qpn);
	return roc_pair(rdev, qp->qpn) < rdev->max_qp ? 0 : -EIO;
}

static int roc_qp_undo(struct roc_dev *rdev, struct roc_qp *qp)
{
	struct virtio_rdma_cmd_destroy_qp cmd = { .qpn = cpu_to_le32(qp->qpn) };
	int err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DESTROY_QP, cmd);

	if (rdev->dead)
		return 0;
	return err == -EINVAL ? -EBUSY : err;
}

static int roc_qp_queues(struct roc_dev *rdev, struct roc_qp *qp, struct ib_qp_init_attr *attr,
			 const struct rocinante_create_qp_req *req, struct ib_udata *udata)
{
	u32 pair = roc_pair(rdev, qp->qpn);
	int err = 0;

	if (roc_sends(attr))
		err = roc_wq_init(rdev, &qp->sq, VIRTIO_RDMA_SQ_QUEUE(pair, rdev->max_cq), udata,
				  req->sq_buf);
	if (err || !roc_receives(attr))
		return err;
	err = roc_wq_init(rdev, &qp->rq, VIRTIO_RDMA_RQ_QUEUE(pair, rdev->max_cq), udata,
			  req->rq_buf);
	if (err)
		roc_wq_exit(&qp->sq);
	return err;
}

static int roc_qp_tell(struct roc_qp *qp, struct ib_udata *udata)
{
	struct roc_ucontext *ctx = rdma_udata_to_drv_context(udata, struct roc_ucontext, base);
	struct rocinante_create_qp_resp resp = {};
	int err = 0;

	if (qp->sq.ring.rdev)
		err = roc_ring_share(&qp->sq.ring, &ctx->base, &resp.sq, qp->sq.slots);
	if (!err && qp->rq.ring.rdev)
		err = roc_ring_share(&qp->rq.ring, &ctx->base, &resp.rq, qp->rq.slots);
	return err ?: roc_respond(udata, &resp, sizeof(resp));
}

int roc_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibqp->device);
	struct rocinante_create_qp_req req = {};
	struct roc_qp *qp = to_rqp(ibqp);
	struct ib_qp_cap *cap = &attr->cap;
	u32 slack = udata ? 0 : ROC_SLACK;
	int err;

	err = roc_qp_check(rdev, attr, udata);
	if (err)
		return err;
	if (udata) {
		err = ib_copy_from_udata(&req, udata, min(sizeof(req), udata->inlen));
		if (err)
			return err;
	}
	if (roc_sends(attr))
		err = roc_wq_size(rdev, &qp->sq, ROC_SEND_FIXED, cap->max_send_wr + slack,
				  cap->max_send_sge, udata);
	if (!err && roc_receives(attr))
		err = roc_wq_size(rdev, &qp->rq, ROC_RECV_FIXED, cap->max_recv_wr + slack,
				  cap->max_recv_sge, udata);
	if (err)
		return err;
	if (!udata)
		qp->sq.stride = rocinante_stride(ROC_SEND_FIXED,
						 max(cap->max_send_sge,
						     DIV_ROUND_UP(cap->max_inline_data,
								  ROCINANTE_SGE_SIZE)));
	err = roc_qp_device(rdev, qp, ibqp->pd, attr, udata);
	if (err)
		return err;
	err = roc_qp_queues(rdev, qp, attr, &req, udata);
	if (err)
		goto undo;
	qp->state = IB_QPS_RESET;
	qp->sig_type = attr->sq_sig_type;
	qp->cap = *cap;
	refcount_set(&qp->ref, 1);
	init_completion(&qp->unused);
	ibqp->qp_num = attr->qp_type == IB_QPT_GSI ? 1 : qp->qpn;
	err = udata ? roc_qp_tell(qp, udata) : 0;
	if (!err)
		err = xa_err(xa_store_irq(&rdev->qps, roc_pair(rdev, qp->qpn), qp, GFP_KERNEL));
	if (!err)
		return 0;
undo:
	roc_qp_undo(rdev, qp);
	roc_wq_exit(&qp->sq);
	roc_wq_exit(&qp->rq);
	return err;
}

/* Nobody polls a completion of it after this. */
static void roc_qp_leave(struct ib_cq *ibcq)
{
	struct roc_cq *cq = to_rcq(ibcq);

	if (!ibcq)
		return;
	spin_lock_irq(&cq->lock);
	spin_unlock_irq(&cq->lock);
}

int roc_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibqp->device);
	struct roc_qp *qp = to_rqp(ibqp);
	int err;

	err = roc_qp_undo(rdev, qp);
	if (err)
		return err;
	xa_erase_irq(&rdev->qps, roc_pair(rdev, qp->qpn));
	roc_qp_leave(ibqp->send_cq);
	roc_qp_leave(ibqp->recv_cq);
	if (!refcount_dec_and_test(&qp->ref))
		wait_for_completion(&qp->unused);
	roc_wq_exit(&qp->sq);
	roc_wq_exit(&qp->rq);
	return 0;
}

/* Attributes ----------------------------------------------------------------------------------- */

static void roc_attr_to_device(const struct ib_qp_attr *from, int mask,
			       struct virtio_rdma_qp_attr *to)
{
	to->qp_state = from->qp_state;
	to->cur_qp_state = from->cur_qp_state;
	to->path_mtu = from->path_mtu;
	to->qkey = cpu_to_le32(from->qkey);
	to->rq_psn = cpu_to_le32(from->rq_psn);
	to->sq_psn = cpu_to_le32(from->sq_psn);
	to->dest_qp_num = cpu_to_le32(from->dest_qp_num);
	to->qp_access_flags = cpu_to_le32(from->qp_access_flags);
	to->pkey_index = cpu_to_le16(from->pkey_index);
	to->en_sqd_async_notify = from->en_sqd_async_notify;
	to->max_rd_atomic = from->max_rd_atomic;
	to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	to->min_rnr_timer = from->min_rnr_timer;
	to->port_num = from->port_num;
	to->timeout = from->timeout;
	to->retry_cnt = from->retry_cnt;
	to->rnr_retry = from->rnr_retry;
	if (mask & IB_QP_AV)
		roc_ah_to_device(&from->ah_attr, &to->ah_attr);
}

int roc_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibqp->device);
	struct virtio_rdma_cmd_modify_qp cmd = {};
	struct roc_qp *qp = to_rqp(ibqp);
	enum ib_qp_state now, next;
	int err;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE))
		return -EOPNOTSUPP;
	now = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	next = mask & IB_QP_STATE ? attr->qp_state : now;
	if (!ib_modify_qp_is_ok(now, next, ibqp->qp_type, mask))
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > rdev->base.attrs.max_qp_init_rd_atom)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > rdev->base.attrs.max_qp_rd_atom)
		return -EINVAL;
	cmd.qpn = cpu_to_le32(qp->qpn);
	cmd.attr_mask = cpu_to_le32(mask);
	roc_attr_to_device(attr, mask, &cmd.attrs);
	err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_MODIFY_QP, cmd);
	if (rdev->dead && (next == IB_QPS_ERR || next == IB_QPS_RESET))
		err = 0;
	if (err)
		return err;
	if (next == IB_QPS_RESET && mask & IB_QP_STATE) {
		if (qp->sq.ring.rdev)
			err = roc_wq_restart(&qp->sq);
		if (!err && qp->rq.ring.rdev)
			err = roc_wq_restart(&qp->rq);
		if (rdev->dead)
			err = 0;
	}
	qp->state = next;
	return err;
}

int roc_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init)
{
	struct roc_qp *qp = to_rqp(ibqp);
	struct virtio_rdma_cmd_query_qp ask = {
		.qpn = cpu_to_le32(qp->qpn), .attr_mask = cpu_to_le32(mask),
	};
	struct virtio_rdma_rsp_query_qp told;
	struct virtio_rdma_qp_attr *from = &told.attr;
	int err;

	err = roc_call2(to_rdev(ibqp->device), VIRTIO_RDMA_CONTROL_COMMAND_QUERY_QP, ask, told);
	if (err)
		return err;
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = from->qp_state;
	attr->cur_qp_state = from->cur_qp_state;
	attr->path_mtu = from->path_mtu;
	attr->path_mig_state = from->path_mig_state;
	attr->qkey = le32_to_cpu(from->qkey);
	attr->rq_psn = le32_to_cpu(from->rq_psn);
	attr->sq_psn = le32_to_cpu(from->sq_psn);
	attr->dest_qp_num = le32_to_cpu(from->dest_qp_num);
	attr->qp_access_flags = le32_to_cpu(from->qp_access_flags);
	attr->pkey_index = le16_to_cpu(from->pkey_index);
	attr->en_sqd_async_notify = from->en_sqd_async_notify;
	attr->sq_draining = from->sq_draining;
	attr->max_rd_atomic = from->max_rd_atomic;
	attr->max_dest_rd_atomic = from->max_dest_rd_atomic;
	attr->min_rnr_timer = from->min_rnr_timer;
	attr->port_num = from->port_num;
	attr->timeout = from->timeout;
	attr->retry_cnt = from->retry_cnt;
	attr->rnr_retry = from->rnr_retry;
	roc_ah_from_device(ibqp->device, &from->ah_attr, &attr->ah_attr);
	attr->cap = qp->cap;
	qp->state = attr->qp_state;
	memset(init, 0, sizeof(*init));
	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->sig_type;
	init->qp_type = ibqp->qp_type;
	return 0;
}

static int roc_mcast(struct ib_qp *ibqp, union ib_gid *gid, u8 command)
{
	struct virtio_rdma_cmd_attach_mcast cmd = { .qpn = cpu_to_le32(to_rqp(ibqp)->qpn) };
	struct roc_dev *rdev = to_rdev(ibqp->device);
	int err;

	BUILD_BUG_ON(sizeof(cmd) != sizeof(struct virtio_rdma_cmd_detach_mcast));
	memcpy(cmd.gid, gid->raw, sizeof(cmd.gid));
	err = roc_call(rdev, command, cmd);
	return rdev->dead && command == VIRTIO_RDMA_EXTENSION_COMMAND_DETACH_MCAST ? 0 : err;
}

int roc_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return roc_mcast(ibqp, gid, VIRTIO_RDMA_EXTENSION_COMMAND_ATTACH_MCAST);
}

int roc_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return roc_mcast(ibqp, gid, VIRTIO_RDMA_EXTENSION_COMMAND_DETACH_MCAST);
}
