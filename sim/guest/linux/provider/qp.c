// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs and shared receive queues. */
#include "rocinante.h"

#define ROC_SEND_FIXED	sizeof(struct virtio_rdma_cmd_post_send)
#define ROC_RECV_FIXED	sizeof(struct virtio_rdma_cmd_post_recv)

/* A region of the provider's own, for inline data: an element has the length of its descriptor. */
static int roc_inline_init(struct roc_qp *qp, struct ibv_pd *pd, uint32_t max_inline)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	int ret;

	if (!max_inline)
		return 0;
	qp->max_inline = (max_inline + 15) & ~15u;
	ret = roc_buf_alloc(&qp->inl, (size_t)qp->sq.slots * qp->max_inline);
	if (ret)
		return ret;
	qp->inl_mr = calloc(1, sizeof(*qp->inl_mr));
	if (!qp->inl_mr)
		return ENOMEM;
	ret = ibv_cmd_reg_mr(pd, qp->inl.addr, qp->inl.size, (uintptr_t)qp->inl.addr, 0,
			     qp->inl_mr, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(qp->inl_mr);
		qp->inl_mr = NULL;
	}
	return ret;
}

static void roc_qp_free(struct roc_qp *qp)
{
	if (qp->inl_mr && !ibv_cmd_dereg_mr(qp->inl_mr))
		free(qp->inl_mr);
	roc_buf_free(&qp->inl);
	roc_wq_free(&qp->sq);
	roc_wq_free(&qp->rq);
	free(qp);
}

static int roc_check(struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t target = attr->qp_type == IBV_QPT_XRC_RECV;
	const uint32_t needed = target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
	const uint32_t known = needed | (target ? 0 : IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);

	if (attr->comp_mask & ~known || !(attr->comp_mask & needed))
		return EOPNOTSUPP;
	switch (attr->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		if (!attr->recv_cq)
			return EINVAL;
		break;
	case IBV_QPT_XRC_SEND:
		attr->recv_cq = NULL;
		attr->srq = NULL;
		attr->cap.max_recv_wr = 0;
		attr->cap.max_recv_sge = 0;
		break;
	case IBV_QPT_XRC_RECV:
		memset(&attr->cap, 0, sizeof(attr->cap));
		attr->send_cq = NULL;
		attr->recv_cq = NULL;
		attr->srq = NULL;
		return 0;
	default:
		return EOPNOTSUPP;
	}
	if (!attr->send_cq || attr->cap.max_inline_data > ROC_MAX_INLINE)
		return EINVAL;
	if (attr->cap.max_inline_data && !attr->cap.max_send_sge)
		attr->cap.max_send_sge = 1;
	return 0;
}

static int roc_qp_init(struct roc_context *ctx, struct roc_qp *qp,
		       struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;
	struct roc_create_qp_resp resp = {};
	struct roc_create_qp cmd = {};
	int ret = 0;

	qp->has_sq = attr->qp_type != IBV_QPT_XRC_RECV;
	qp->has_rq = !attr->srq && attr->qp_type != IBV_QPT_XRC_SEND && qp->has_sq;
	if (qp->has_sq)
		ret = roc_wq_alloc(&qp->sq, ROC_SEND_FIXED, cap.max_send_wr, cap.max_send_sge);
	if (!ret && qp->has_rq)
		ret = roc_wq_alloc(&qp->rq, ROC_RECV_FIXED, cap.max_recv_wr, cap.max_recv_sge);
	if (!ret && qp->has_sq)
		ret = roc_inline_init(qp, attr->pd, cap.max_inline_data);
	if (ret)
		return ret;
	qp->sig_all = attr->sq_sig_all;
	cmd.sq_buf = (uintptr_t)qp->sq.buf.addr;
	cmd.rq_buf = (uintptr_t)qp->rq.buf.addr;
	ret = ibv_cmd_create_qp_ex2(&ctx->base.context, &qp->base, attr, &cmd.ibv_cmd, sizeof(cmd),
				    &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	if (qp->has_sq)
		ret = roc_wq_map(ctx, &qp->sq, &resp.sq);
	if (!ret && qp->has_rq)
		ret = roc_wq_map(ctx, &qp->rq, &resp.rq);
	if (ret) {
		ibv_cmd_destroy_qp(&qp->base.qp);
		return ret;
	}
	attr->cap.max_inline_data = qp->max_inline;
	return 0;
}

struct ibv_qp *roc_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct roc_context *ctx = to_rctx(context);
	struct roc_qp *qp;
	int ret;

	ret = roc_check(attr);
	if (ret) {
		errno = ret;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->base.qp.qp_type = attr->qp_type;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		ret = roc_set_send_ops(qp, attr->send_ops_flags, ctx->operations);
	if (!ret)
		ret = roc_qp_init(ctx, qp, attr);
	if (ret) {
		roc_qp_free(qp);
		errno = ret;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->base.comp_mask |= VERBS_QP_EX;
	return &qp->base.qp;
}

struct ibv_qp *roc_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {};
	struct ibv_qp *qp;

	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	qp = roc_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

static void roc_qp_clean(struct ibv_qp *ibqp)
{
	if (ibqp->send_cq)
		roc_cq_clean(to_rcq(ibqp->send_cq), ibqp->qp_num);
	if (ibqp->recv_cq && ibqp->recv_cq != ibqp->send_cq)
		roc_cq_clean(to_rcq(ibqp->recv_cq), ibqp->qp_num);
}

int roc_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct roc_qp *qp = to_rqp(ibqp);
	struct ibv_modify_qp cmd = {};
	int ret;

	ret = ibv_cmd_modify_qp(ibqp, attr, mask, &cmd, sizeof(cmd));
	if (ret || !(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_RESET)
		return ret;
	roc_qp_clean(ibqp);
	if (qp->has_sq)
		roc_wq_restart(&qp->sq);
	if (qp->has_rq)
		roc_wq_restart(&qp->rq);
	return 0;
}

int roc_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct roc_qp *qp = to_rqp(ibqp);
	struct ibv_query_qp cmd;
	int ret;

	ret = ibv_cmd_query_qp(ibqp, attr, mask, init, &cmd, sizeof(cmd));
	if (ret)
		return ret;
	attr->cap.max_inline_data = qp->max_inline;
	init->cap.max_inline_data = qp->max_inline;
	return 0;
}

int roc_destroy_qp(struct ibv_qp *ibqp)
{
	int ret = ibv_cmd_destroy_qp(ibqp);

	if (ret)
		return ret;
	roc_qp_clean(ibqp);
	roc_qp_free(to_rqp(ibqp));
	return 0;
}

/* Shared receive queues ------------------------------------------------------------------------ */

static int roc_srq_init(struct roc_context *ctx, struct roc_srq *srq,
			struct ibv_srq_init_attr_ex *attr)
{
	uint32_t most = ctx->max_cqe / rocinante_classes(attr->attr.max_sge);
	uint32_t max_wr = attr->attr.max_wr, room;
	struct roc_create_srq_resp resp = {};
	struct roc_create_srq cmd = {};
	int ret;

	/* The ring does not move, so it has room for a larger queue from the beginning. */
	room = max_wr * 2 < most ? max_wr * 2 : most;
	room = room > max_wr ? room : max_wr;
	ret = roc_wq_alloc(&srq->wq, ROC_RECV_FIXED, room, attr->attr.max_sge);
	if (ret)
		return ret;
	srq->wq.max_wr = max_wr;
	cmd.room = room;
	cmd.buf = (uintptr_t)srq->wq.buf.addr;
	ret = ibv_cmd_create_srq_ex(&ctx->base.context, &srq->base, attr, &cmd.ibv_cmd,
				    sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	ret = roc_wq_map(ctx, &srq->wq, &resp.ring);
	if (ret)
		ibv_cmd_destroy_srq(&srq->base.srq);
	return ret;
}

struct ibv_srq *roc_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	uint32_t needed = IBV_SRQ_INIT_ATTR_PD;
	struct roc_srq *srq;
	int ret = 0;

	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC)
		needed |= xrc;
	else if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC)
		ret = EOPNOTSUPP;
	if (attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | needed) ||
	    (attr->comp_mask & needed) != needed)
		ret = EOPNOTSUPP;
	else if (!attr->attr.max_wr)
		ret = EINVAL;
	if (ret) {
		errno = ret;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	ret = roc_srq_init(to_rctx(context), srq, attr);
	if (ret) {
		roc_wq_free(&srq->wq);
		free(srq);
		errno = ret;
		return NULL;
	}
	return &srq->base.srq;
}

struct ibv_srq *roc_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_srq *srq = roc_create_srq_ex(pd->context, &ex);

	if (srq)
		attr->attr = ex.attr;
	return srq;
}

int roc_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct roc_srq *srq = to_rsrq(ibsrq);
	struct ibv_modify_srq cmd = {};
	int ret;

	ret = ibv_cmd_modify_srq(ibsrq, attr, mask, &cmd, sizeof(cmd));
	if (ret || !(mask & IBV_SRQ_MAX_WR))
		return ret;
	pthread_spin_lock(&srq->wq.lock);
	srq->wq.max_wr = attr->max_wr;
	pthread_spin_unlock(&srq->wq.lock);
	return 0;
}

int roc_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return ibv_cmd_query_srq(ibsrq, attr, &cmd, sizeof(cmd));
}

int roc_destroy_srq(struct ibv_srq *ibsrq)
{
	struct roc_srq *srq = to_rsrq(ibsrq);
	int ret = ibv_cmd_destroy_srq(ibsrq);

	if (ret)
		return ret;
	roc_wq_free(&srq->wq);
	free(srq);
	return 0;
}
