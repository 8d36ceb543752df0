// SPDX-License-Identifier: GPL-2.0
/* Device attributes, contexts of processes, protection domains, and the list of operations. */
#include <linux/mm.h>
#include <rdma/ib_mad.h>
#include "rocinante.h"

/* Two descriptors of the largest virtqueue are needed for each request with an SGE. */
#define ROC_DESCS_PER_WR	2

/* Hand a response to the process, as much of it as the process knows. */
int roc_respond(struct ib_udata *udata, void *response, size_t size)
{
	return ib_copy_to_udata(udata, response, min(size, udata->outlen));
}

static int roc_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibdev);
	const struct virtio_rdma_config *config = &rdev->config;
	u64 flags = le64_to_cpu(config->device_cap_flags);

	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;
	memset(attr, 0, sizeof(*attr));
	memcpy(&attr->sys_image_guid, config->sys_image_guid, sizeof(config->sys_image_guid));
	attr->fw_ver = le32_to_cpu(config->hw_ver);
	attr->vendor_id = le32_to_cpu(config->vendor_id);
	attr->vendor_part_id = le32_to_cpu(config->vendor_part_id);
	attr->hw_ver = le32_to_cpu(config->hw_ver);
	attr->max_mr_size = le64_to_cpu(config->max_mr_size);
	attr->page_size_cap = le64_to_cpu(config->page_size_cap);
	/* Pair 0 is never used, and pair 1 is the GSI's. */
	attr->max_qp = rdev->max_qp - VIRTIO_RDMA_FIRST_USER_QP_INDEX;
	attr->max_qp_wr = min(le32_to_cpu(config->max_qp_wr),
			      rdev->max_queue_size / ROC_DESCS_PER_WR);
	attr->max_send_sge = le32_to_cpu(config->max_send_sge);
	attr->max_recv_sge = le32_to_cpu(config->max_recv_sge);
	attr->max_sge_rd = le32_to_cpu(config->max_sge_rd);
	attr->max_cq = rdev->max_cq;
	attr->max_cqe = min(le32_to_cpu(config->max_cqe), rdev->max_queue_size);
	attr->max_mr = le32_to_cpu(config->max_mr);
	attr->max_pd = le32_to_cpu(config->max_pd);
	attr->max_qp_rd_atom = le32_to_cpu(config->max_qp_rd_atom);
	attr->max_res_rd_atom = le32_to_cpu(config->max_res_rd_atom);
	attr->max_qp_init_rd_atom = le32_to_cpu(config->max_qp_init_rd_atom);
	switch (config->atomic_cap) {
	case VIRTIO_RDMA_ATOMIC_CAP_HCA:
		attr->atomic_cap = IB_ATOMIC_HCA;
		break;
	case VIRTIO_RDMA_ATOMIC_CAP_GLOB:
		attr->atomic_cap = IB_ATOMIC_GLOB;
		break;
	default:
		attr->atomic_cap = IB_ATOMIC_NONE;
	}
	attr->masked_atomic_cap = IB_ATOMIC_NONE;
	attr->max_ah = le32_to_cpu(config->max_ah);
	attr->max_fast_reg_page_list_len = le32_to_cpu(config->max_fast_reg_page_list_len);
	attr->max_pkeys = le16_to_cpu(config->max_pkeys);
	attr->local_ca_ack_delay = config->local_ca_ack_delay;
	/* The numbers are those of libibverbs, without what kernels call by other numbers. */
	attr->device_cap_flags = flags & (IB_DEVICE_BAD_PKEY_CNTR | IB_DEVICE_BAD_QKEY_CNTR |
					  IB_DEVICE_CHANGE_PHY_PORT | IB_DEVICE_SYS_IMAGE_GUID |
					  IB_DEVICE_RC_RNR_NAK_GEN |
					  IB_DEVICE_MEM_MGT_EXTENSIONS);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_MW)) {
		attr->max_mw = le32_to_cpu(config->max_mw);
		attr->device_cap_flags |= flags & (IB_DEVICE_MEM_WINDOW |
						   IB_DEVICE_MEM_WINDOW_TYPE_2A |
						   IB_DEVICE_MEM_WINDOW_TYPE_2B);
		/* A device with both makes windows of type 2B. */
		if (attr->device_cap_flags & IB_DEVICE_MEM_WINDOW_TYPE_2B)
			attr->device_cap_flags &= ~(u64)IB_DEVICE_MEM_WINDOW_TYPE_2A;
	}
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_SRQ)) {
		attr->max_srq = le32_to_cpu(config->max_srq);
		attr->max_srq_wr = min(le32_to_cpu(config->max_srq_wr),
				       rdev->max_queue_size / ROC_DESCS_PER_WR);
		attr->max_srq_sge = le32_to_cpu(config->max_srq_sge);
		if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_RESIZE))
			attr->device_cap_flags |= IB_DEVICE_SRQ_RESIZE;
	}
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_XRC))
		attr->device_cap_flags |= flags & IB_DEVICE_XRC;
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_PLACEMENT))
		attr->device_cap_flags |= flags & ROC_CAP_PLACEMENT;
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_MCAST)) {
		attr->max_mcast_grp = le32_to_cpu(config->max_mcast_grp);
		attr->max_mcast_qp_attach = le32_to_cpu(config->max_mcast_qp_attach);
		attr->max_total_mcast_qp_attach = le32_to_cpu(config->max_total_mcast_qp_attach);
	}
	return 0;
}

static int roc_get_port_immutable(struct ib_device *ibdev, u32 port,
				  struct ib_port_immutable *immutable)
{
	struct ib_port_attr attr;
	int err;

	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	err = ib_query_port(ibdev, port, &attr);
	if (err)
		return err;
	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer roc_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static void roc_get_fw_str(struct ib_device *ibdev, char *text)
{
	snprintf(text, IB_FW_VERSION_NAME_MAX, "%u", le32_to_cpu(to_rdev(ibdev)->config.hw_ver));
}

static struct roc_mmap *roc_share_doorbells(struct roc_dev *rdev, struct ib_ucontext *ibctx)
{
	struct roc_mmap *map = kzalloc(sizeof(*map), GFP_KERNEL);
	int err;

	if (!map)
		return ERR_PTR(-ENOMEM);
	map->rdev = rdev;
	map->doorbells = true;
	map->size = PAGE_ALIGN(rdev->notify_len);
	err = rdma_user_mmap_entry_insert(ibctx, &map->entry, map->size);
	if (err) {
		kfree(map);
		return ERR_PTR(err);
	}
	return map;
}

int roc_alloc_ucontext(struct ib_ucontext *ibctx, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibctx->device);
	struct roc_ucontext *ctx = to_rctx(ibctx);
	struct rocinante_alloc_ucontext_resp resp = {};
	int err;

	if (rdev->notify_mappable) {
		ctx->doorbells = roc_share_doorbells(rdev, ibctx);
		if (IS_ERR(ctx->doorbells))
			return PTR_ERR(ctx->doorbells);
		resp.doorbell_key = rdma_user_mmap_get_offset(&ctx->doorbells->entry);
		resp.doorbell_size = ctx->doorbells->size;
	}
	resp.max_sge = min3(le32_to_cpu(rdev->config.max_send_sge),
			    le32_to_cpu(rdev->config.max_recv_sge),
			    le32_to_cpu(rdev->config.max_sge_rd));
	resp.max_cqe = min(le32_to_cpu(rdev->config.max_cqe), rdev->max_queue_size);
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_PLACEMENT)) {
		resp.operations = ROCINANTE_HAS_ATOMIC_WRITE;
		if (ROC_ACCESS_FLUSH)
			resp.operations |= ROCINANTE_HAS_FLUSH;
	}
	err = roc_respond(udata, &resp, sizeof(resp));
	if (err)
		roc_dealloc_ucontext(ibctx);
	return err;
}

void roc_dealloc_ucontext(struct ib_ucontext *ibctx)
{
	struct roc_ucontext *ctx = to_rctx(ibctx);

	if (ctx->doorbells)
		rdma_user_mmap_entry_remove(&ctx->doorbells->entry);
}

int roc_mmap(struct ib_ucontext *ibctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(ibctx, vma);
	unsigned long size = vma->vm_end - vma->vm_start;
	struct roc_mmap *map;
	int err;

	if (!entry)
		return -EINVAL;
	map = container_of(entry, struct roc_mmap, entry);
	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		err = -EINVAL;
	else if (map->doorbells)
		err = rdma_user_mmap_io(ibctx, vma, map->rdev->notify_pa >> PAGE_SHIFT, size,
					pgprot_noncached(vma->vm_page_prot), entry);
	else
		err = rdma_user_mmap_io(ibctx, vma, virt_to_phys(map->shared) >> PAGE_SHIFT, size,
					vma->vm_page_prot, entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

void roc_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct roc_mmap *map = container_of(entry, struct roc_mmap, entry);

	if (map->shared)
		free_pages_exact(map->shared, map->size);
	kfree(map);
}

/* The core takes all mappings away. */
static void roc_disassociate_ucontext(struct ib_ucontext *ibctx)
{
}

static int roc_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibpd->device);
	struct roc_pd *pd = to_rpd(ibpd);
	struct virtio_rdma_rsp_create_pd made;
	int err;

	err = roc_exec(rdev, VIRTIO_RDMA_CONTROL_COMMAND_CREATE_PD, NULL, 0, &made, sizeof(made));
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	pd->pdn = le32_to_cpu(made.pdn);
	if (udata) {
		struct rocinante_alloc_pd_resp resp = { .pdn = pd->pdn };

		err = roc_respond(udata, &resp, sizeof(resp));
		if (err) {
			struct virtio_rdma_cmd_destroy_pd gone = { .pdn = made.pdn };

			roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DESTROY_PD, gone);
		}
	}
	return err;
}

static int roc_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct virtio_rdma_cmd_destroy_pd gone = { .pdn = cpu_to_le32(to_rpd(ibpd)->pdn) };
	struct roc_dev *rdev = to_rdev(ibpd->device);
	int err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DESTROY_PD, gone);

	if (rdev->dead)
		return 0;
	return err == -EINVAL ? -EBUSY : err;
}

#ifdef ROC_HAVE_CQ_ATTRS
static int roc_create_cq_attrs(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
			       struct uverbs_attr_bundle *attrs)
{
	return roc_create_cq(ibcq, attr, attrs ? &attrs->driver_udata : NULL);
}
#else
#define roc_create_cq_attrs roc_create_cq
#endif

const struct ib_device_ops roc_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = ROCINANTE_UVERBS_ABI_VERSION,

	.add_gid = roc_add_gid,
	.alloc_hw_port_stats = roc_alloc_port_stats,
	.alloc_mr = roc_alloc_mr,
	.alloc_pd = roc_alloc_pd,
	.alloc_ucontext = roc_alloc_ucontext,
	.create_ah = roc_create_ah,
	.create_cq = roc_create_cq_attrs,
	.create_qp = roc_create_qp,
	.create_user_ah = roc_create_ah,
	.dealloc_pd = roc_dealloc_pd,
	.dealloc_ucontext = roc_dealloc_ucontext,
	.del_gid = roc_del_gid,
	.dereg_mr = roc_dereg_mr,
	.destroy_ah = roc_destroy_ah,
	.destroy_cq = roc_destroy_cq,
	.destroy_qp = roc_destroy_qp,
	.disassociate_ucontext = roc_disassociate_ucontext,
	.get_dev_fw_str = roc_get_fw_str,
	.get_dma_mr = roc_get_dma_mr,
	.get_hw_stats = roc_get_hw_stats,
	.get_link_layer = roc_get_link_layer,
	.get_port_immutable = roc_get_port_immutable,
	.map_mr_sg = roc_map_mr_sg,
	.mmap = roc_mmap,
	.mmap_free = roc_mmap_free,
	.modify_qp = roc_modify_qp,
	.poll_cq = roc_poll_cq,
	.post_recv = roc_post_recv,
	.post_send = roc_post_send,
	.query_ah = roc_query_ah,
	.query_device = roc_query_device,
	.query_pkey = roc_query_pkey,
	.query_port = roc_query_port,
	.query_qp = roc_query_qp,
	.reg_user_mr = roc_reg_user_mr,
	.req_notify_cq = roc_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, roc_ah, base),
	INIT_RDMA_OBJ_SIZE(ib_cq, roc_cq, base),
	INIT_RDMA_OBJ_SIZE(ib_pd, roc_pd, base),
	INIT_RDMA_OBJ_SIZE(ib_qp, roc_qp, base),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, roc_ucontext, base),
};
