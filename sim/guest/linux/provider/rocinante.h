/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Provider for virtio-rdma devices: what its files share. */
#ifndef ROCINANTE_H
#define ROCINANTE_H

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/driver.h>
#include <infiniband/kern-abi.h>
#include <infiniband/verbs.h>
#include <util/udma_barrier.h>

#include "virtio_rdma.h"
#include "rocinante-abi.h"
#include <kernel-abi/rocinante-abi.h>

DECLARE_DRV_CMD(roc_get_context, IB_USER_VERBS_CMD_GET_CONTEXT, empty,
		rocinante_alloc_ucontext_resp);
DECLARE_DRV_CMD(roc_alloc_pd, IB_USER_VERBS_CMD_ALLOC_PD, empty, rocinante_alloc_pd_resp);
DECLARE_DRV_CMD(roc_create_cq, IB_USER_VERBS_EX_CMD_CREATE_CQ, rocinante_create_cq_req,
		rocinante_create_cq_resp);
DECLARE_DRV_CMD(roc_create_qp, IB_USER_VERBS_EX_CMD_CREATE_QP, rocinante_create_qp_req,
		rocinante_create_qp_resp);
DECLARE_DRV_CMD(roc_create_srq, IB_USER_VERBS_CMD_CREATE_XSRQ, rocinante_create_srq_req,
		rocinante_create_srq_resp);
DECLARE_DRV_CMD(roc_create_ah, IB_USER_VERBS_CMD_CREATE_AH, empty, rocinante_create_ah_resp);

/* Inline data lie beside the queue, in a region of the provider's own. */
#define ROC_MAX_INLINE	1024

/* Available ring and used ring (Virtio 1.2, 2.7); the device is little-endian, and so are these. */
struct roc_avail {
	uint16_t flags;
	_Atomic uint16_t idx;
	uint16_t ring[];
};

struct roc_used_elem {
	uint32_t id;
	uint32_t len;
};

struct roc_used {
	_Atomic uint16_t flags;
	_Atomic uint16_t idx;
	struct roc_used_elem ring[];
};

#define ROC_USED_NO_NOTIFY	1

struct roc_ring {
	void *map;
	size_t size;
	struct roc_avail *avail;
	struct roc_used *used;
	uint32_t mask;
	uint16_t next_avail;
	uint16_t last_used;
	/* NULL: doorbells are calls. */
	volatile uint16_t *doorbell;
	uint16_t queue;
};

struct roc_context {
	struct verbs_context base;
	void *doorbells;
	size_t doorbell_size;
	uint32_t max_cqe;
	uint32_t operations; /* ROCINANTE_HAS_* */
};

struct roc_pd {
	struct ibv_pd base;
	uint32_t pdn;
};

struct roc_ah {
	struct ibv_ah base;
	struct virtio_rdma_av av;
};

/* Memory that the device uses, and a child of fork() does not get. */
struct roc_buf {
	void *addr;
	size_t size;
};

struct roc_cq {
	struct verbs_cq base;
	struct roc_ring ring;
	struct roc_buf buf;
	pthread_spinlock_t lock;
	bool single;
	/* Buffers that the device has, how many it may have, and those that it has not. */
	uint32_t given;
	uint32_t cqe;
	uint16_t *spare;
	uint32_t num_spare;
	/* Of start_poll. */
	const struct virtio_rdma_cq_req *cur;
	uint32_t cur_id;
};

struct roc_wq {
	struct roc_ring ring;
	struct roc_buf buf;
	pthread_spinlock_t lock;
	uint32_t fixed;
	uint32_t stride;
	uint32_t slots;
	uint32_t max_wr;
	uint32_t max_sge;
	uint16_t *free;
	uint32_t num_free;
};

struct roc_xrcd {
	struct verbs_xrcd base;
};

struct roc_srq {
	struct verbs_srq base;
	struct roc_wq wq;
};

struct roc_qp {
	struct verbs_qp base;
	struct roc_wq sq;
	struct roc_wq rq;
	bool has_sq;
	bool has_rq;
	bool sig_all;
	/* Inline data of each slot. */
	struct roc_buf inl;
	struct verbs_mr *inl_mr;
	uint32_t max_inline;
	/* Between wr_start and wr_complete. */
	struct virtio_rdma_cmd_post_send *cur;
	uint32_t cur_slot;
	uint32_t cur_sges;
	uint16_t begin_avail;
	int err;
};

#define to_rctx(c) container_of(c, struct roc_context, base.context)
#define to_rpd(p) container_of(p, struct roc_pd, base)
#define to_rah(a) container_of(a, struct roc_ah, base)
#define to_rcq(c) container_of(c, struct roc_cq, base.cq)
#define to_rsrq(s) container_of(s, struct roc_srq, base.srq)
#define to_rqp(q) container_of(q, struct roc_qp, base.qp)

/* ring.c */
int roc_buf_alloc(struct roc_buf *buf, size_t size);
void roc_buf_free(struct roc_buf *buf);
int roc_ring_map(struct roc_context *ctx, struct roc_ring *ring,
		 const struct rocinante_ring *told);
void roc_ring_unmap(struct roc_ring *ring);
int roc_wq_alloc(struct roc_wq *wq, uint32_t fixed, uint32_t max_wr, uint32_t max_sge);
int roc_wq_map(struct roc_context *ctx, struct roc_wq *wq, const struct rocinante_ring *told);
void roc_wq_restart(struct roc_wq *wq);
void roc_wq_free(struct roc_wq *wq);
void *roc_wq_take(struct roc_wq *wq, uint32_t *slot);
void roc_wq_give(struct roc_wq *wq, uint32_t slot, struct virtio_rdma_sge *sges, uint32_t num);
bool roc_ring_publish(struct roc_ring *ring);

/* cq.c */
struct ibv_cq *roc_create_cq(struct ibv_context *context, int cqe,
			     struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *roc_create_cq_ex(struct ibv_context *context,
				   struct ibv_cq_init_attr_ex *attr);
int roc_destroy_cq(struct ibv_cq *ibcq);
int roc_resize_cq(struct ibv_cq *ibcq, int cqe);
void roc_cq_clean(struct roc_cq *cq, uint32_t qpn);
int roc_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc);

/* qp.c */
struct ibv_qp *roc_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *roc_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int roc_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask);
int roc_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init);
int roc_destroy_qp(struct ibv_qp *ibqp);
struct ibv_srq *roc_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *roc_create_srq_ex(struct ibv_context *context,
				  struct ibv_srq_init_attr_ex *attr);
int roc_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask);
int roc_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int roc_destroy_srq(struct ibv_srq *ibsrq);

/* xrc.c */
struct ibv_xrcd *roc_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int roc_close_xrcd(struct ibv_xrcd *ibxrcd);
struct ibv_qp *roc_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int roc_get_srq_num(struct ibv_srq *ibsrq, uint32_t *number);

/* post.c */
int roc_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int roc_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int roc_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int roc_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int roc_ring_sq(struct roc_qp *qp);
void *roc_inline(struct roc_qp *qp, uint32_t slot);
uint32_t roc_window_access(unsigned int access);
uint32_t roc_send_flags(struct roc_qp *qp, unsigned int flags);
bool roc_may_send(const struct ibv_qp *ibqp);
bool roc_has_opcode(const struct ibv_qp *ibqp, enum ibv_wr_opcode opcode);

/* wr.c */
int roc_set_send_ops(struct roc_qp *qp, uint64_t flags, uint32_t operations);

#endif /* ROCINANTE_H */
