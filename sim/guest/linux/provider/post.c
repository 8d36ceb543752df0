// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting of work requests. */
#include <unistd.h>
#include "rocinante.h"

/* A doorbell that cannot be mapped is a call without requests. */
static int roc_call(int fd, uint32_t command, uint32_t handle, size_t wqe_size)
{
	struct ib_uverbs_post_send_resp resp;
	struct ibv_post_send cmd = {};

	cmd.hdr.command = command;
	cmd.hdr.in_words = sizeof(cmd) / 4;
	cmd.hdr.out_words = sizeof(resp) / 4;
	cmd.response = (uintptr_t)&resp;
	cmd.qp_handle = handle;
	cmd.wqe_size = wqe_size;
	return write(fd, &cmd, sizeof(cmd)) == (ssize_t)sizeof(cmd) ? 0 : errno;
}

int roc_ring_sq(struct roc_qp *qp)
{
	struct ibv_qp *ibqp = &qp->base.qp;

	if (!roc_ring_publish(&qp->sq.ring))
		return 0;
	return roc_call(ibqp->context->cmd_fd, IB_USER_VERBS_CMD_POST_SEND, ibqp->handle,
			sizeof(struct ib_uverbs_send_wr));
}

bool roc_may_send(const struct ibv_qp *ibqp)
{
	if (ibqp->qp_type == IBV_QPT_XRC_RECV)
		return false;
	return ibqp->state == IBV_QPS_RTS || ibqp->state == IBV_QPS_SQD ||
	       ibqp->state == IBV_QPS_SQE || ibqp->state == IBV_QPS_ERR;
}

/* Whether the service of a queue pair has an operation. */
bool roc_has_opcode(const struct ibv_qp *ibqp, enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return ibqp->qp_type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_SEND_WITH_INV:
		return ibqp->qp_type == IBV_QPT_RC || ibqp->qp_type == IBV_QPT_XRC_SEND;
	default: /* those of builders alone are checked when a queue pair asks for them */
		return false;
	}
}

/* Where the inline data of a slot lie. */
void *roc_inline(struct roc_qp *qp, uint32_t slot)
{
	return (char *)qp->inl.addr + (size_t)slot * qp->max_inline;
}

uint32_t roc_send_flags(struct roc_qp *qp, unsigned int flags)
{
	/* The numbers are libibverbs'. */
	flags &= IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	return htole32(qp->sig_all ? flags | IBV_SEND_SIGNALED : flags);
}

/* A window has remote rights only. Programs say LOCAL_WRITE as they do for a region. */
uint32_t roc_window_access(unsigned int access)
{
	return htole32(access & ~(unsigned int)(IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_OPTIONAL_RANGE));
}

static void roc_sges(struct virtio_rdma_sge *to, const struct ibv_sge *from, int num)
{
	int i;

	for (i = 0; i < num; i++) {
		to[i].addr = htole64(from[i].addr);
		to[i].length = htole32(from[i].length);
		to[i].lkey = htole32(from[i].lkey);
	}
}

static int roc_gather_inline(struct roc_qp *qp, uint32_t slot, struct virtio_rdma_sge *sge,
			     const struct ibv_send_wr *wr)
{
	char *to = roc_inline(qp, slot);
	uint32_t size = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > qp->max_inline - size)
			return -EINVAL;
		memcpy(to + size, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		size += wr->sg_list[i].length;
	}
	if (!size)
		return 0;
	sge->addr = htole64((uintptr_t)to);
	sge->length = htole32(size);
	sge->lkey = htole32(qp->inl_mr->ibv_mr.lkey);
	return 1;
}

static void roc_operands(struct roc_qp *qp, struct virtio_rdma_cmd_post_send *wqe,
			 const struct ibv_send_wr *wr)
{
	union virtio_rdma_wr_u *to = &wqe->wr;

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->rdma.remote_addr = htole64(wr->wr.rdma.remote_addr);
		to->rdma.rkey = htole32(wr->wr.rdma.rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->atomic.remote_addr = htole64(wr->wr.atomic.remote_addr);
		to->atomic.compare_add = htole64(wr->wr.atomic.compare_add);
		to->atomic.swap = htole64(wr->wr.atomic.swap);
		to->atomic.rkey = htole32(wr->wr.atomic.rkey);
		break;
	case IBV_WR_BIND_MW:
		to->bind.addr = htole64(wr->bind_mw.bind_info.addr);
		to->bind.length = htole64(wr->bind_mw.bind_info.length);
		to->bind.access = roc_window_access(wr->bind_mw.bind_info.mw_access_flags);
		to->bind.lkey = htole32(wr->bind_mw.bind_info.mr ?
					wr->bind_mw.bind_info.mr->lkey : 0);
		to->bind.rkey = htole32(wr->bind_mw.rkey);
		break;
	default:
		break;
	}
	if (qp->base.qp.qp_type == IBV_QPT_UD) {
		to->ud.remote_qpn = htole32(wr->wr.ud.remote_qpn);
		to->ud.remote_qkey = htole32(wr->wr.ud.remote_qkey);
		to->ud.av = to_rah(wr->wr.ud.ah)->av;
	}
	if (qp->base.qp.qp_type == IBV_QPT_XRC_SEND)
		to->xrc.remote_srqn = htole32(wr->qp_type.xrc.remote_srqn);
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		memcpy(wqe->ex.imm_data, &wr->imm_data, sizeof(wqe->ex.imm_data));
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		wqe->ex.invalidate_rkey = htole32(wr->invalidate_rkey);
		break;
	default:
		break;
	}
}

static int roc_post_one(struct roc_qp *qp, const struct ibv_send_wr *wr)
{
	struct virtio_rdma_cmd_post_send *wqe;
	struct virtio_rdma_sge *sges;
	int num = wr->num_sge;
	uint32_t slot;

	if (num < 0 || (uint32_t)num > qp->sq.max_sge || !roc_has_opcode(&qp->base.qp, wr->opcode))
		return EINVAL;
	if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV)
		num = 0;
	wqe = roc_wq_take(&qp->sq, &slot);
	if (!wqe)
		return ENOMEM;
	memset(wqe, 0, sizeof(*wqe));
	sges = (void *)(wqe + 1);
	if (wr->send_flags & IBV_SEND_INLINE)
		num = roc_gather_inline(qp, slot, sges, wr);
	else
		roc_sges(sges, wr->sg_list, num);
	if (num < 0) {
		qp->sq.free[qp->sq.num_free++] = slot;
		return EINVAL;
	}
	wqe->num_sge = htole32(rocinante_class_sges(rocinante_class_of(num), qp->sq.max_sge));
	wqe->send_flags = roc_send_flags(qp, wr->send_flags);
	wqe->opcode = htole32(wr->opcode);
	wqe->wr_id = htole64(wr->wr_id);
	roc_operands(qp, wqe, wr);
	roc_wq_give(&qp->sq, slot, sges, num);
	return 0;
}

int roc_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct roc_qp *qp = to_rqp(ibqp);
	bool posted = false;
	int ret = 0, err;

	if (!roc_may_send(ibqp)) {
		*bad = wr;
		return EINVAL;
	}
	pthread_spin_lock(&qp->sq.lock);
	for (; wr; wr = wr->next) {
		ret = roc_post_one(qp, wr);
		if (ret) {
			*bad = wr;
			break;
		}
		posted = true;
	}
	if (posted) {
		err = roc_ring_sq(qp);
		ret = ret ? ret : err;
	}
	pthread_spin_unlock(&qp->sq.lock);
	return ret;
}

/* Give receive requests to a queue; whether its doorbell is a call. */
static int roc_receives(struct roc_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad,
			bool *call)
{
	bool posted = false;
	int ret = 0;

	*call = false;
	pthread_spin_lock(&wq->lock);
	for (; wr; wr = wr->next) {
		struct virtio_rdma_cmd_post_recv *wqe = NULL;
		struct virtio_rdma_sge *sges;
		uint32_t slot;

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > wq->max_sge)
			ret = EINVAL;
		else if (!(wqe = roc_wq_take(wq, &slot)))
			ret = ENOMEM;
		if (ret) {
			*bad = wr;
			break;
		}
		sges = (void *)(wqe + 1);
		wqe->num_sge = htole32(rocinante_class_sges(rocinante_class_of(wr->num_sge),
							    wq->max_sge));
		wqe->wr_id = htole64(wr->wr_id);
		roc_sges(sges, wr->sg_list, wr->num_sge);
		roc_wq_give(wq, slot, sges, wr->num_sge);
		posted = true;
	}
	if (posted)
		*call = roc_ring_publish(&wq->ring);
	pthread_spin_unlock(&wq->lock);
	return ret;
}

int roc_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct roc_qp *qp = to_rqp(ibqp);
	int ret, err = 0;
	bool call;

	if (!qp->has_rq || ibqp->state == IBV_QPS_RESET) {
		*bad = wr;
		return EINVAL;
	}
	ret = roc_receives(&qp->rq, wr, bad, &call);
	if (call)
		err = roc_call(ibqp->context->cmd_fd, IB_USER_VERBS_CMD_POST_RECV, ibqp->handle,
			       sizeof(struct ib_uverbs_recv_wr));
	return ret ? ret : err;
}

int roc_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	bool call;
	int ret = roc_receives(&to_rsrq(ibsrq)->wq, wr, bad, &call), err = 0;

	if (call)
		err = roc_call(ibsrq->context->cmd_fd, IB_USER_VERBS_CMD_POST_SRQ_RECV,
			       ibsrq->handle, sizeof(struct ib_uverbs_recv_wr));
	return ret ? ret : err;
}

/* A window of type 1 gets another key with each binding. */
int roc_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
	}, *bad;
	int ret;

	if (mw->type != IBV_MW_TYPE_1)
		return EINVAL;
	if (bind->bind_info.length && (!bind->bind_info.mr || bind->bind_info.mr->pd != mw->pd))
		return EPERM;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	ret = roc_post_send(ibqp, &wr, &bad);
	if (!ret)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}
