// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The builders of work requests, ibv_wr_*: from wr_start to wr_complete the send queue is held. */
#include "rocinante.h"

static struct roc_qp *roc_ex(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct roc_qp, base.qp_ex);
}

static struct virtio_rdma_sge *roc_cur_sges(struct roc_qp *qp)
{
	return (void *)(qp->cur + 1);
}

/* The request that was being built is complete. */
static void roc_finish(struct roc_qp *qp)
{
	if (!qp->cur || qp->err)
		return;
	qp->cur->num_sge = htole32(rocinante_class_sges(rocinante_class_of(qp->cur_sges),
							qp->sq.max_sge));
	roc_wq_give(&qp->sq, qp->cur_slot, roc_cur_sges(qp), qp->cur_sges);
	qp->cur = NULL;
}

/* The next request, in a free slot. */
static struct virtio_rdma_cmd_post_send *roc_take(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct roc_qp *qp = roc_ex(ex);

	roc_finish(qp);
	if (qp->err)
		return NULL;
	qp->cur = roc_wq_take(&qp->sq, &qp->cur_slot);
	if (!qp->cur) {
		qp->err = ENOMEM;
		return NULL;
	}
	memset(qp->cur, 0, sizeof(*qp->cur));
	qp->cur_sges = 0;
	qp->cur->opcode = htole32(opcode);
	qp->cur->wr_id = htole64(ex->wr_id);
	qp->cur->send_flags = roc_send_flags(qp, ex->wr_flags);
	return qp->cur;
}

/* The same, of an operation that the service of the queue pair must have. */
static struct virtio_rdma_cmd_post_send *roc_begin(struct ibv_qp_ex *ex,
						   enum ibv_wr_opcode opcode)
{
	struct roc_qp *qp = roc_ex(ex);

	if (!qp->err && !roc_has_opcode(&qp->base.qp, opcode)) {
		roc_finish(qp);
		qp->err = EINVAL;
		return NULL;
	}
	return roc_take(ex, opcode);
}

static void roc_wr_start(struct ibv_qp_ex *ex)
{
	struct roc_qp *qp = roc_ex(ex);

	pthread_spin_lock(&qp->sq.lock);
	qp->err = roc_may_send(&qp->base.qp) ? 0 : EINVAL;
	qp->cur = NULL;
	qp->begin_avail = qp->sq.ring.next_avail;
}

/* Slots that were taken since wr_start go back: those that are in the ring, and the current one. */
static void roc_undo(struct roc_qp *qp)
{
	struct roc_ring *ring = &qp->sq.ring;

	if (qp->cur)
		qp->sq.free[qp->sq.num_free++] = qp->cur_slot;
	qp->cur = NULL;
	while (ring->next_avail != qp->begin_avail) {
		uint16_t id = le16toh(ring->avail->ring[--ring->next_avail & ring->mask]);

		qp->sq.free[qp->sq.num_free++] = id % qp->sq.slots;
	}
}

static int roc_wr_complete(struct ibv_qp_ex *ex)
{
	struct roc_qp *qp = roc_ex(ex);
	int ret;

	roc_finish(qp);
	ret = qp->err;
	if (ret)
		roc_undo(qp);
	else if (qp->sq.ring.next_avail != qp->begin_avail)
		ret = roc_ring_sq(qp);
	pthread_spin_unlock(&qp->sq.lock);
	return ret;
}

static void roc_wr_abort(struct ibv_qp_ex *ex)
{
	struct roc_qp *qp = roc_ex(ex);

	roc_undo(qp);
	pthread_spin_unlock(&qp->sq.lock);
}

static void roc_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		     uint64_t addr, const __be32 *imm)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_begin(ex, opcode);

	if (!wqe)
		return;
	wqe->wr.rdma.remote_addr = htole64(addr);
	wqe->wr.rdma.rkey = htole32(rkey);
	if (imm)
		memcpy(wqe->ex.imm_data, imm, sizeof(wqe->ex.imm_data));
}

static void roc_wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	roc_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, NULL);
}

static void roc_wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	roc_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, &imm);
}

static void roc_wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	roc_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, NULL);
}

static void roc_wr_send(struct ibv_qp_ex *ex)
{
	roc_begin(ex, IBV_WR_SEND);
}

static void roc_wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_begin(ex, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		memcpy(wqe->ex.imm_data, &imm, sizeof(wqe->ex.imm_data));
}

static void roc_key(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_begin(ex, opcode);

	if (wqe)
		wqe->ex.invalidate_rkey = htole32(rkey);
}

static void roc_wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	roc_key(ex, IBV_WR_SEND_WITH_INV, rkey);
}

static void roc_wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	roc_key(ex, IBV_WR_LOCAL_INV, rkey);
}

static void roc_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		       uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_begin(ex, opcode);

	if (!wqe)
		return;
	wqe->wr.atomic.remote_addr = htole64(addr);
	wqe->wr.atomic.rkey = htole32(rkey);
	wqe->wr.atomic.compare_add = htole64(compare_add);
	wqe->wr.atomic.swap = htole64(swap);
}

static void roc_wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
			   uint64_t swap)
{
	roc_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void roc_wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	roc_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void roc_wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *info)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_begin(ex, IBV_WR_BIND_MW);

	if (!wqe)
		return;
	wqe->wr.bind.addr = htole64(info->addr);
	wqe->wr.bind.length = htole64(info->length);
	wqe->wr.bind.access = roc_window_access(info->mw_access_flags);
	wqe->wr.bind.lkey = htole32(info->mr ? info->mr->lkey : 0);
	wqe->wr.bind.rkey = htole32(rkey);
}

#ifdef ROC_HAVE_PLACEMENT
static void roc_wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t len,
			 uint8_t type, uint8_t level)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_take(ex, IBV_WR_FLUSH);

	if (!wqe)
		return;
	if (len > UINT32_MAX) {
		roc_ex(ex)->err = EINVAL;
		return;
	}
	wqe->wr.flush.remote_addr = htole64(addr);
	wqe->wr.flush.rkey = htole32(rkey);
	wqe->wr.flush.length = htole32(len);
	wqe->wr.flush.type = type;
	wqe->wr.flush.level = level;
}

static void roc_wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
				const void *data)
{
	struct virtio_rdma_cmd_post_send *wqe = roc_take(ex, IBV_WR_ATOMIC_WRITE);

	if (!wqe)
		return;
	wqe->wr.atomic_write.remote_addr = htole64(addr);
	wqe->wr.atomic_write.rkey = htole32(rkey);
	memcpy(wqe->wr.atomic_write.data, data, sizeof(wqe->wr.atomic_write.data));
}

/* What a card has beyond the operations of all. */
static uint64_t roc_placement(struct roc_qp *qp, uint32_t operations)
{
	struct ibv_qp_ex *ex = &qp->base.qp_ex;
	uint64_t flags = 0;

	if (operations & ROCINANTE_HAS_FLUSH) {
		flags |= IBV_QP_EX_WITH_FLUSH;
		ex->wr_flush = roc_wr_flush;
	}
	if (operations & ROCINANTE_HAS_ATOMIC_WRITE) {
		flags |= IBV_QP_EX_WITH_ATOMIC_WRITE;
		ex->wr_atomic_write = roc_wr_atomic_write;
	}
	return flags;
}
#else /* this libibverbs does not know them */
static uint64_t roc_placement(struct roc_qp *qp, uint32_t operations)
{
	return 0;
}
#endif

/* Setters -------------------------------------------------------------------------------------- */

static void roc_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct roc_qp *qp = roc_ex(ex);

	if (qp->err || !qp->cur)
		return;
	qp->cur->wr.ud.remote_qpn = htole32(qpn);
	qp->cur->wr.ud.remote_qkey = htole32(qkey);
	qp->cur->wr.ud.av = to_rah(ah)->av;
}

static void roc_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	struct roc_qp *qp = roc_ex(ex);

	if (!qp->err && qp->cur)
		qp->cur->wr.xrc.remote_srqn = htole32(remote_srqn);
}

static void roc_set_sge_list(struct ibv_qp_ex *ex, size_t num, const struct ibv_sge *list)
{
	struct roc_qp *qp = roc_ex(ex);
	struct virtio_rdma_sge *to;
	size_t i;

	if (qp->err || !qp->cur)
		return;
	if (num > qp->sq.max_sge) {
		qp->err = EINVAL;
		return;
	}
	to = roc_cur_sges(qp);
	for (i = 0; i < num; i++) {
		to[i].addr = htole64(list[i].addr);
		to[i].length = htole32(list[i].length);
		to[i].lkey = htole32(list[i].lkey);
	}
	qp->cur_sges = num;
}

static void roc_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	roc_set_sge_list(ex, 1, &sge);
}

static void roc_set_inline_data_list(struct ibv_qp_ex *ex, size_t num,
				     const struct ibv_data_buf *list)
{
	struct roc_qp *qp = roc_ex(ex);
	size_t size = 0, i;
	char *to;

	if (qp->err || !qp->cur)
		return;
	to = roc_inline(qp, qp->cur_slot);
	for (i = 0; i < num; i++) {
		if (list[i].length > qp->max_inline - size) {
			qp->err = EINVAL;
			return;
		}
		memcpy(to + size, list[i].addr, list[i].length);
		size += list[i].length;
	}
	if (size)
		roc_set_sge(ex, qp->inl_mr->ibv_mr.lkey, (uintptr_t)to, size);
}

static void roc_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	roc_set_inline_data_list(ex, 1, &buf);
}

/* The operations that a queue pair shall have; EOPNOTSUPP if its service lacks one of them. */
int roc_set_send_ops(struct roc_qp *qp, uint64_t flags, uint32_t operations)
{
	const uint64_t ud = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t uc = ud | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	const uint64_t rc = uc | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct ibv_qp_ex *ex = &qp->base.qp_ex;
	enum ibv_qp_type type = qp->base.qp.qp_type;
	bool reliable = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	uint64_t has = reliable ? rc : type == IBV_QPT_UC ? uc : ud;

	if (type == IBV_QPT_RC)
		has |= roc_placement(qp, operations);
	if (flags & ~has)
		return EOPNOTSUPP;
	ex->wr_start = roc_wr_start;
	ex->wr_complete = roc_wr_complete;
	ex->wr_abort = roc_wr_abort;
	ex->wr_rdma_write = roc_wr_rdma_write;
	ex->wr_rdma_write_imm = roc_wr_rdma_write_imm;
	ex->wr_rdma_read = roc_wr_rdma_read;
	ex->wr_send = roc_wr_send;
	ex->wr_send_imm = roc_wr_send_imm;
	ex->wr_send_inv = roc_wr_send_inv;
	ex->wr_local_inv = roc_wr_local_inv;
	ex->wr_atomic_cmp_swp = roc_wr_cmp_swp;
	ex->wr_atomic_fetch_add = roc_wr_fetch_add;
	ex->wr_bind_mw = roc_wr_bind_mw;
	ex->wr_set_ud_addr = roc_set_ud_addr;
	ex->wr_set_xrc_srqn = roc_set_xrc_srqn;
	ex->wr_set_sge = roc_set_sge;
	ex->wr_set_sge_list = roc_set_sge_list;
	ex->wr_set_inline_data = roc_set_inline_data;
	ex->wr_set_inline_data_list = roc_set_inline_data_list;
	return 0;
}
