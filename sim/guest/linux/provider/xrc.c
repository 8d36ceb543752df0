// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XRC: domains, numbers of their receive queues, and targets that another process has made. The
 * kernel shares domains and targets between processes.
 */
#include "rocinante.h"

struct ibv_xrcd *roc_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct roc_xrcd *xrcd = calloc(1, sizeof(*xrcd));
	struct ib_uverbs_open_xrcd_resp resp = {};
	struct ibv_open_xrcd cmd = {};
	int ret;

	if (!xrcd)
		return NULL;
	ret = ibv_cmd_open_xrcd(context, &xrcd->base, sizeof(xrcd->base), attr, &cmd, sizeof(cmd),
				&resp, sizeof(resp));
	if (ret) {
		free(xrcd);
		errno = ret;
		return NULL;
	}
	return &xrcd->base.xrcd;
}

int roc_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct roc_xrcd *xrcd = container_of(ibxrcd, struct roc_xrcd, base.xrcd);
	int ret = ibv_cmd_close_xrcd(&xrcd->base);

	if (!ret)
		free(xrcd);
	return ret;
}

struct ibv_qp *roc_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp = {};
	struct ibv_open_qp cmd = {};
	struct roc_qp *qp = calloc(1, sizeof(*qp));
	int ret;

	if (!qp)
		return NULL;
	ret = ibv_cmd_open_qp(context, &qp->base, sizeof(qp->base), attr, &cmd, sizeof(cmd), &resp,
			      sizeof(resp));
	if (ret) {
		free(qp);
		errno = ret;
		return NULL;
	}
	return &qp->base.qp;
}

int roc_get_srq_num(struct ibv_srq *ibsrq, uint32_t *number)
{
	struct roc_srq *srq = to_rsrq(ibsrq);

	if (srq->base.srq_type != IBV_SRQT_XRC)
		return EINVAL;
	*number = srq->base.srq_num;
	return 0;
}
