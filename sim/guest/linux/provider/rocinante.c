// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Provider for virtio-rdma devices: contexts, protection domains, regions, windows, addresses. */
#include <stdio.h>
#include <sys/mman.h>
#include "rocinante.h"

static int roc_query_device_ex(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, size, &resp, &resp_size);
	if (ret)
		return ret;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%llu",
		 (unsigned long long)resp.base.fw_ver);
	return 0;
}

static int roc_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static struct ibv_pd *roc_alloc_pd(struct ibv_context *context)
{
	struct roc_alloc_pd_resp resp = {};
	struct ibv_alloc_pd cmd;
	struct roc_pd *pd = calloc(1, sizeof(*pd));
	int ret;

	if (!pd)
		return NULL;
	ret = ibv_cmd_alloc_pd(context, &pd->base, &cmd, sizeof(cmd), &resp.ibv_resp,
			       sizeof(resp));
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	pd->pdn = resp.pdn;
	return &pd->base;
}

static int roc_dealloc_pd(struct ibv_pd *pd)
{
	int ret = ibv_cmd_dealloc_pd(pd);

	if (!ret)
		free(to_rpd(pd));
	return ret;
}

static struct ibv_mr *roc_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
				 int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int ret;

	if (!mr)
		return NULL;
	ret = ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, &cmd, sizeof(cmd), &resp,
			     sizeof(resp));
	if (ret) {
		free(mr);
		errno = ret;
		return NULL;
	}
	return &mr->ibv_mr;
}

static int roc_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;

	return ibv_cmd_rereg_mr(mr, flags, addr, length, (uintptr_t)addr, access, pd, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
}

static int roc_dereg_mr(struct verbs_mr *mr)
{
	int ret = ibv_cmd_dereg_mr(mr);

	if (!ret)
		free(mr);
	return ret;
}

static struct ibv_mw *roc_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp = {};
	struct ibv_alloc_mw cmd = {};
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	int ret;

	if (!mw)
		return NULL;
	ret = ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(mw);
		errno = ret;
		return NULL;
	}
	return mw;
}

static int roc_dealloc_mw(struct ibv_mw *mw)
{
	int ret = ibv_cmd_dealloc_mw(mw);

	if (!ret)
		free(mw);
	return ret;
}

static struct ibv_ah *roc_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct roc_create_ah_resp resp = {};
	struct roc_ah *ah = calloc(1, sizeof(*ah));
	int ret;

	if (!ah)
		return NULL;
	ret = ibv_cmd_create_ah(pd, &ah->base, attr, &resp.ibv_resp, sizeof(resp));
	if (ret) {
		free(ah);
		errno = ret;
		return NULL;
	}
	memcpy(&ah->av, resp.av, sizeof(ah->av));
	return &ah->base;
}

static int roc_destroy_ah(struct ibv_ah *ibah)
{
	int ret = ibv_cmd_destroy_ah(ibah);

	if (!ret)
		free(to_rah(ibah));
	return ret;
}

static void roc_free_context(struct ibv_context *context)
{
	struct roc_context *ctx = to_rctx(context);

	if (ctx->doorbells)
		munmap(ctx->doorbells, ctx->doorbell_size);
	verbs_uninit_context(&ctx->base);
	free(ctx);
}

static const struct verbs_context_ops roc_ops = {
	.alloc_mw = roc_alloc_mw,
	.alloc_pd = roc_alloc_pd,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = roc_bind_mw,
	.close_xrcd = roc_close_xrcd,
	.create_ah = roc_create_ah,
	.create_cq = roc_create_cq,
	.create_cq_ex = roc_create_cq_ex,
	.create_qp = roc_create_qp,
	.create_qp_ex = roc_create_qp_ex,
	.create_srq = roc_create_srq,
	.create_srq_ex = roc_create_srq_ex,
	.dealloc_mw = roc_dealloc_mw,
	.dealloc_pd = roc_dealloc_pd,
	.dereg_mr = roc_dereg_mr,
	.destroy_ah = roc_destroy_ah,
	.destroy_cq = roc_destroy_cq,
	.destroy_qp = roc_destroy_qp,
	.destroy_srq = roc_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = roc_free_context,
	.get_srq_num = roc_get_srq_num,
	.modify_qp = roc_modify_qp,
	.modify_srq = roc_modify_srq,
	.open_qp = roc_open_qp,
	.open_xrcd = roc_open_xrcd,
	.poll_cq = roc_poll_cq,
	.post_recv = roc_post_recv,
	.post_send = roc_post_send,
	.post_srq_recv = roc_post_srq_recv,
	.query_device_ex = roc_query_device_ex,
	.query_port = roc_query_port,
	.query_qp = roc_query_qp,
	.query_srq = roc_query_srq,
	.reg_mr = roc_reg_mr,
	.req_notify_cq = ibv_cmd_req_notify_cq,
	.rereg_mr = roc_rereg_mr,
	.resize_cq = roc_resize_cq,
};

static struct verbs_context *roc_alloc_context(struct ibv_device *device, int cmd_fd,
					       void *private_data)
{
	struct roc_get_context_resp resp = {};
	struct ibv_get_context cmd;
	struct roc_context *ctx;

	ctx = verbs_init_and_alloc_context(device, cmd_fd, ctx, base, RDMA_DRIVER_UNKNOWN);
	if (!ctx)
		return NULL;
	if (ibv_cmd_get_context(&ctx->base, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp)))
		goto fail;
	ctx->max_cqe = resp.max_cqe;
	ctx->operations = resp.operations;
	if (resp.doorbell_size) {
		void *map = mmap(NULL, resp.doorbell_size, PROT_WRITE, MAP_SHARED, cmd_fd,
				 resp.doorbell_key);

		if (map == MAP_FAILED)
			goto fail;
		ctx->doorbells = map;
		ctx->doorbell_size = resp.doorbell_size;
	}
	verbs_set_ops(&ctx->base, &roc_ops);
	return &ctx->base;
fail:
	verbs_uninit_context(&ctx->base);
	free(ctx);
	return NULL;
}

static struct verbs_device *roc_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void roc_uninit_device(struct verbs_device *device)
{
	free(device);
}

/* The parent of its device is a virtio device of type 42, whatever its vendor is. */
static const struct verbs_match_ent roc_table[] = {
	VERBS_MODALIAS_MATCH("virtio:d0000002Av*", NULL),
	{},
};

static const struct verbs_device_ops roc_device_ops = {
	.name = "rocinante",
	.match_min_abi_version = ROCINANTE_UVERBS_ABI_VERSION,
	.match_max_abi_version = ROCINANTE_UVERBS_ABI_VERSION,
	.match_table = roc_table,
	.alloc_device = roc_alloc_device,
	.uninit_device = roc_uninit_device,
	.alloc_context = roc_alloc_context,
};
PROVIDER_DRIVER(rocinante, roc_device_ops);
