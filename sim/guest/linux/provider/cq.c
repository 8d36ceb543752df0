// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues. */
#include "rocinante.h"

#define ROC_WC_FLAGS	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_DLID_PATH_BITS)
/* Small ones can grow to this. */
#define ROC_ROOM	256

static void roc_cq_lock(struct roc_cq *cq)
{
	if (!cq->single)
		pthread_spin_lock(&cq->lock);
}

static void roc_cq_unlock(struct roc_cq *cq)
{
	if (!cq->single)
		pthread_spin_unlock(&cq->lock);
}

/* Completions that nobody has read. */
static uint16_t roc_cq_unread(struct roc_cq *cq)
{
	return le16toh(atomic_load_explicit(&cq->ring.used->idx, memory_order_acquire)) -
	       cq->ring.last_used;
}

/* The next completion, or NULL. It has to be given back. */
static const struct virtio_rdma_cq_req *roc_cq_next(struct roc_cq *cq, uint32_t *id)
{
	struct roc_ring *ring = &cq->ring;

	if (!roc_cq_unread(cq))
		return NULL;
	udma_from_device_barrier();
	*id = le32toh(ring->used->ring[ring->last_used & ring->mask].id);
	ring->last_used++;
	cq->given--;
	return (void *)((char *)cq->buf.addr + rocinante_slot_offset(*id, ROCINANTE_CQE_STRIDE));
}

static void roc_cq_give(struct roc_cq *cq, uint32_t id)
{
	struct roc_ring *ring = &cq->ring;

	if (cq->given >= cq->cqe) {
		cq->spare[cq->num_spare++] = id;
		return;
	}
	ring->avail->ring[ring->next_avail++ & ring->mask] = htole16(id);
	cq->given++;
}

/* The device looks at the index when it needs a buffer: there is no doorbell. */
static void roc_cq_publish(struct roc_cq *cq)
{
	udma_to_device_barrier();
	atomic_store_explicit(&cq->ring.avail->idx, htole16(cq->ring.next_avail),
			      memory_order_release);
}

/*
 * Drop the completions of a queue pair that nobody has read: it is in RESET, or is gone. Those of
 * others move up in the used ring, which the device does not read.
 */
void roc_cq_clean(struct roc_cq *cq, uint32_t qpn)
{
	struct roc_ring *ring = &cq->ring;
	uint16_t gone = 0, at, unread;

	roc_cq_lock(cq);
	unread = roc_cq_unread(cq);
	udma_from_device_barrier();
	for (at = ring->last_used + unread; at != ring->last_used;) {
		struct roc_used_elem *elem = &ring->used->ring[--at & ring->mask];
		const struct virtio_rdma_cq_req *cqe = (void *)((char *)cq->buf.addr +
			rocinante_slot_offset(le32toh(elem->id), ROCINANTE_CQE_STRIDE));

		if (le32toh(cqe->qp_num) == qpn) {
			gone++;
			cq->given--;
			roc_cq_give(cq, le32toh(elem->id));
		} else if (gone) {
			ring->used->ring[(uint16_t)(at + gone) & ring->mask] = *elem;
		}
	}
	ring->last_used += gone;
	if (gone)
		roc_cq_publish(cq);
	roc_cq_unlock(cq);
}

static void roc_wc(const struct virtio_rdma_cq_req *cqe, struct ibv_wc *wc)
{
	wc->wr_id = le64toh(cqe->wr_id);
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = le32toh(cqe->vendor_err);
	wc->byte_len = le32toh(cqe->byte_len);
	/* Raw bytes of an immediate, or a key. */
	if (cqe->wc_flags & htole32(VIRTIO_RDMA_WC_FLAGS_WITH_INV))
		wc->invalidated_rkey = le32toh(cqe->ex.invalidate_rkey);
	else
		memcpy(&wc->imm_data, cqe->ex.imm_data, sizeof(wc->imm_data));
	wc->qp_num = le32toh(cqe->qp_num);
	wc->src_qp = le32toh(cqe->src_qp);
	wc->wc_flags = le32toh(cqe->wc_flags);
	wc->pkey_index = le16toh(cqe->pkey_index);
	wc->slid = 0;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = 0;
}

int roc_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct roc_cq *cq = to_rcq(ibcq);
	const struct virtio_rdma_cq_req *cqe;
	uint32_t id;
	int i;

	roc_cq_lock(cq);
	for (i = 0; i < num && (cqe = roc_cq_next(cq, &id)); i++) {
		roc_wc(cqe, wc + i);
		roc_cq_give(cq, id);
	}
	if (i)
		roc_cq_publish(cq);
	roc_cq_unlock(cq);
	return i;
}

/* Extended polling ----------------------------------------------------------------------------- */

static struct roc_cq *roc_ex(struct ibv_cq_ex *current)
{
	return container_of(current, struct roc_cq, base.cq_ex);
}

static int roc_take(struct roc_cq *cq)
{
	cq->cur = roc_cq_next(cq, &cq->cur_id);
	if (!cq->cur)
		return ENOENT;
	cq->base.cq_ex.status = cq->cur->status;
	cq->base.cq_ex.wr_id = le64toh(cq->cur->wr_id);
	return 0;
}

static int roc_start_poll(struct ibv_cq_ex *current, struct ibv_poll_cq_attr *attr)
{
	struct roc_cq *cq = roc_ex(current);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	roc_cq_lock(cq);
	ret = roc_take(cq);
	if (ret)
		roc_cq_unlock(cq);
	return ret;
}

static int roc_next_poll(struct ibv_cq_ex *current)
{
	struct roc_cq *cq = roc_ex(current);

	if (cq->cur)
		roc_cq_give(cq, cq->cur_id);
	return roc_take(cq);
}

static void roc_end_poll(struct ibv_cq_ex *current)
{
	struct roc_cq *cq = roc_ex(current);

	if (cq->cur)
		roc_cq_give(cq, cq->cur_id);
	cq->cur = NULL;
	roc_cq_publish(cq);
	roc_cq_unlock(cq);
}

static enum ibv_wc_opcode roc_read_opcode(struct ibv_cq_ex *current)
{
	return roc_ex(current)->cur->opcode;
}

static uint32_t roc_read_vendor_err(struct ibv_cq_ex *current)
{
	return le32toh(roc_ex(current)->cur->vendor_err);
}

static unsigned int roc_read_wc_flags(struct ibv_cq_ex *current)
{
	return le32toh(roc_ex(current)->cur->wc_flags);
}

static uint32_t roc_read_byte_len(struct ibv_cq_ex *current)
{
	return le32toh(roc_ex(current)->cur->byte_len);
}

static __be32 roc_read_imm_data(struct ibv_cq_ex *current)
{
	const struct virtio_rdma_cq_req *cqe = roc_ex(current)->cur;
	__be32 data;

	/* libibverbs reads an invalidated key by this call, too, and swaps it back. */
	if (cqe->wc_flags & htole32(VIRTIO_RDMA_WC_FLAGS_WITH_INV))
		return (__force __be32)le32toh(cqe->ex.invalidate_rkey);
	memcpy(&data, cqe->ex.imm_data, sizeof(data));
	return data;
}

static uint32_t roc_read_qp_num(struct ibv_cq_ex *current)
{
	return le32toh(roc_ex(current)->cur->qp_num);
}

static uint32_t roc_read_src_qp(struct ibv_cq_ex *current)
{
	return le32toh(roc_ex(current)->cur->src_qp);
}

static uint32_t roc_read_slid(struct ibv_cq_ex *current)
{
	return 0;
}

static uint8_t roc_read_sl(struct ibv_cq_ex *current)
{
	return roc_ex(current)->cur->sl;
}

static uint8_t roc_read_dlid_path_bits(struct ibv_cq_ex *current)
{
	return 0;
}

static void roc_set_poll_ops(struct roc_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->base.cq_ex;

	ex->start_poll = roc_start_poll;
	ex->next_poll = roc_next_poll;
	ex->end_poll = roc_end_poll;
	ex->read_opcode = roc_read_opcode;
	ex->read_vendor_err = roc_read_vendor_err;
	ex->read_wc_flags = roc_read_wc_flags;
	ex->read_byte_len = roc_read_byte_len;
	ex->read_imm_data = roc_read_imm_data;
	ex->read_qp_num = roc_read_qp_num;
	ex->read_src_qp = roc_read_src_qp;
	ex->read_slid = roc_read_slid;
	ex->read_sl = roc_read_sl;
	ex->read_dlid_path_bits = roc_read_dlid_path_bits;
}

/* Life ----------------------------------------------------------------------------------------- */

static int roc_cq_init(struct roc_context *ctx, struct roc_cq *cq,
		       struct ibv_cq_init_attr_ex *attr)
{
	struct roc_create_cq_resp resp = {};
	struct roc_create_cq cmd = {};
	uint32_t room = attr->cqe > ROC_ROOM / 2 ? attr->cqe * 2 : ROC_ROOM, i;
	int ret;

	if (room > ctx->max_cqe)
		room = ctx->max_cqe;
	ret = roc_buf_alloc(&cq->buf, rocinante_slots_size(room, ROCINANTE_CQE_STRIDE));
	if (ret)
		return ret;
	cq->spare = calloc(room, sizeof(*cq->spare));
	if (!cq->spare) {
		ret = ENOMEM;
		goto free;
	}
	cmd.buf = (uintptr_t)cq->buf.addr;
	cmd.room = room;
	ret = ibv_cmd_create_cq_ex(&ctx->base.context, attr, &cq->base, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp), 0);
	if (ret)
		goto free;
	ret = roc_ring_map(ctx, &cq->ring, &resp.ring);
	if (ret) {
		ibv_cmd_destroy_cq(&cq->base.cq);
		goto free;
	}
	/* The kernel has made the first buffers available. */
	cq->cqe = attr->cqe;
	cq->given = attr->cqe;
	cq->ring.next_avail = attr->cqe;
	for (i = attr->cqe; i < room; i++)
		cq->spare[cq->num_spare++] = i;
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	roc_set_poll_ops(cq);
	return 0;
free:
	free(cq->spare);
	roc_buf_free(&cq->buf);
	return ret;
}

struct ibv_cq_ex *roc_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct roc_context *ctx = to_rctx(context);
	struct roc_cq *cq;
	int ret = 0;

	if (attr->wc_flags & ~(uint64_t)ROC_WC_FLAGS ||
	    attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	     attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		ret = EOPNOTSUPP;
	else if (!attr->cqe || attr->cqe > ctx->max_cqe)
		ret = EINVAL;
	if (ret) {
		errno = ret;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		cq->single = attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	ret = roc_cq_init(ctx, cq, attr);
	if (ret) {
		free(cq);
		errno = ret;
		return NULL;
	}
	return &cq->base.cq_ex;
}

struct ibv_cq *roc_create_cq(struct ibv_context *context, int cqe,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *cq = roc_create_cq_ex(context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

int roc_destroy_cq(struct ibv_cq *ibcq)
{
	struct roc_cq *cq = to_rcq(ibcq);
	int ret = ibv_cmd_destroy_cq(ibcq);

	if (ret)
		return ret;
	roc_ring_unmap(&cq->ring);
	roc_buf_free(&cq->buf);
	free(cq->spare);
	free(cq);
	return 0;
}

int roc_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct ib_uverbs_resize_cq_resp resp;
	struct roc_cq *cq = to_rcq(ibcq);
	struct ibv_resize_cq cmd;
	int ret = EINVAL;

	if (cqe < 1)
		return EINVAL;
	roc_cq_lock(cq);
	if (roc_cq_unread(cq) <= (uint32_t)cqe)
		ret = ibv_cmd_resize_cq(ibcq, cqe, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (!ret) {
		cq->cqe = cqe;
		while (cq->given < cq->cqe && cq->num_spare)
			roc_cq_give(cq, cq->spare[--cq->num_spare]);
		roc_cq_publish(cq);
	}
	roc_cq_unlock(cq);
	return ret;
}
