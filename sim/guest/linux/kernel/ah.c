// SPDX-License-Identifier: GPL-2.0
/* Address handles. They are the driver's own; the device gets an address vector in each request. */
#include <rdma/ib_addr.h>
#include "rocinante.h"

/* As MODIFY_QP takes it. */
void roc_ah_to_device(const struct rdma_ah_attr *from, struct virtio_rdma_ah_attr *to)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(from);

	memcpy(to->grh.dgid, grh->dgid.raw, sizeof(to->grh.dgid));
	to->grh.flow_label = cpu_to_le32(grh->flow_label);
	to->grh.sgid_index = grh->sgid_index;
	to->grh.hop_limit = grh->hop_limit;
	to->grh.traffic_class = grh->traffic_class;
	to->sl = rdma_ah_get_sl(from);
	to->static_rate = rdma_ah_get_static_rate(from);
	to->port_num = rdma_ah_get_port_num(from);
	to->ah_flags = VIRTIO_RDMA_AH_FLAGS_GRH;
	memcpy(to->roce_dmac, from->roce.dmac, sizeof(to->roce_dmac));
}

void roc_ah_from_device(struct ib_device *ibdev, const struct virtio_rdma_ah_attr *from,
			struct rdma_ah_attr *to)
{
	union ib_gid dgid;

	to->type = RDMA_AH_ATTR_TYPE_ROCE;
	memcpy(dgid.raw, from->grh.dgid, sizeof(dgid.raw));
	rdma_ah_set_grh(to, &dgid, le32_to_cpu(from->grh.flow_label), from->grh.sgid_index,
			from->grh.hop_limit, from->grh.traffic_class);
	rdma_ah_set_sl(to, from->sl);
	rdma_ah_set_static_rate(to, from->static_rate);
	rdma_ah_set_port_num(to, from->port_num ?: 1);
	memcpy(to->roce.dmac, from->roce_dmac, sizeof(to->roce.dmac));
}

int roc_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	const struct rdma_ah_attr *attr = init->ah_attr;
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	struct virtio_rdma_av *av = &to_rah(ibah)->av;
	struct rocinante_create_ah_resp resp = {};

	BUILD_BUG_ON(sizeof(resp.av) != sizeof(*av));
	if (attr->type != RDMA_AH_ATTR_TYPE_ROCE || !(rdma_ah_get_ah_flags(attr) & IB_AH_GRH))
		return -EINVAL;
	if (grh->flow_label >> 20 || rdma_ah_get_sl(attr) >> 4)
		return -EINVAL;
	av->port = cpu_to_le32(rdma_ah_get_port_num(attr));
	av->pdn = cpu_to_le32(to_rpd(ibah->pd)->pdn);
	av->sl_tclass_flowlabel = cpu_to_le32(grh->flow_label | (u32)grh->traffic_class << 20 |
					      (u32)rdma_ah_get_sl(attr) << 28);
	memcpy(av->dgid, grh->dgid.raw, sizeof(av->dgid));
	av->gid_index = grh->sgid_index;
	av->static_rate = rdma_ah_get_static_rate(attr);
	av->hop_limit = grh->hop_limit;
	memcpy(av->dmac, attr->roce.dmac, sizeof(av->dmac));
	if (!udata)
		return 0;
	memcpy(resp.av, av, sizeof(resp.av));
	return roc_respond(udata, &resp, sizeof(resp));
}

int roc_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	const struct virtio_rdma_av *av = &to_rah(ibah)->av;
	u32 packed = le32_to_cpu(av->sl_tclass_flowlabel);
	union ib_gid dgid;

	memset(attr, 0, sizeof(*attr));
	attr->type = RDMA_AH_ATTR_TYPE_ROCE;
	memcpy(dgid.raw, av->dgid, sizeof(dgid.raw));
	rdma_ah_set_grh(attr, &dgid, packed & 0xfffff, av->gid_index, av->hop_limit,
			packed >> 20 & 0xff);
	rdma_ah_set_sl(attr, packed >> 28);
	rdma_ah_set_static_rate(attr, av->static_rate);
	rdma_ah_set_port_num(attr, le32_to_cpu(av->port));
	memcpy(attr->roce.dmac, av->dmac, sizeof(attr->roce.dmac));
	return 0;
}

int roc_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}
