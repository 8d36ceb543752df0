// SPDX-License-Identifier: GPL-2.0
/* Memory regions, their page lists, and memory windows. */
#include <linux/dma-mapping.h>
#include <linux/vmalloc.h>
#include "rocinante.h"

#define ROC_LIST_PAGE		VIRTIO_RDMA_TABLE_PAGE_SIZE
#define ROC_LIST_ENTRIES	(ROC_LIST_PAGE / VIRTIO_RDMA_PAGE_ENTRY_SIZE)
#define ROC_PAGE_SHIFT		12

#define ROC_ACCESS		(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
				 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC | \
				 IB_ACCESS_MW_BIND | IB_ZERO_BASED | ROC_ACCESS_FLUSH)

static void roc_list_free(struct roc_dev *rdev, struct roc_list *list)
{
	u32 i;

	for (i = 0; i < list->pages; i++)
		if (list->second[i])
			dma_free_coherent(rdev->dma, ROC_LIST_PAGE, list->second[i],
					  le64_to_cpu(list->first[i]));
	kvfree(list->second);
	if (list->first)
		dma_free_coherent(rdev->dma, list->size, list->first, list->dma);
	memset(list, 0, sizeof(*list));
}

static int roc_list_alloc(struct roc_dev *rdev, struct roc_list *list, u64 npages)
{
	bool two = npages > ROC_LIST_ENTRIES && roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_TWO_LEVEL);
	u64 entries = two ? DIV_ROUND_UP(npages, ROC_LIST_ENTRIES) : npages;
	dma_addr_t dma;
	u32 i;

	list->size = entries * VIRTIO_RDMA_PAGE_ENTRY_SIZE;
	list->first = dma_alloc_coherent(rdev->dma, list->size, &list->dma, GFP_KERNEL);
	if (!list->first)
		return -ENOMEM;
	if (!two)
		return 0;
	list->second = kvcalloc(entries, sizeof(*list->second), GFP_KERNEL);
	if (!list->second)
		goto fail;
	list->pages = entries;
	for (i = 0; i < entries; i++) {
		list->second[i] = dma_alloc_coherent(rdev->dma, ROC_LIST_PAGE, &dma, GFP_KERNEL);
		if (!list->second[i])
			goto fail;
		list->first[i] = cpu_to_le64(dma);
	}
	return 0;
fail:
	roc_list_free(rdev, list);
	return -ENOMEM;
}

static void roc_list_set(struct roc_list *list, u32 i, u64 addr)
{
	if (list->pages)
		list->second[i / ROC_LIST_ENTRIES][i % ROC_LIST_ENTRIES] = cpu_to_le64(addr);
	else
		list->first[i] = cpu_to_le64(addr);
}

/* Pinned memory and its page list, for REG_USER_MR and REREG_MR. */
struct roc_pinned {
	struct ib_umem *umem;
	struct roc_list list;
	u64 npages;
	u32 shift;
};

static void roc_unpin(struct roc_dev *rdev, struct roc_pinned *pinned)
{
	roc_list_free(rdev, &pinned->list);
	if (pinned->umem)
		ib_umem_release(pinned->umem);
	pinned->umem = NULL;
}

static int roc_pin(struct roc_dev *rdev, struct roc_pinned *pinned, u64 start, u64 length,
		   u64 virt_addr, int access)
{
	unsigned long sizes = BIT(ROC_PAGE_SHIFT), size;
	struct ib_block_iter iter;
	u32 i = 0;
	int err;

	if (!length || length > le64_to_cpu(rdev->config.max_mr_size))
		return -EINVAL;
	if (roc_has(rdev, VIRTIO_RDMA_RDMA_FEATURE_PAGE_SIZES))
		sizes |= le64_to_cpu(rdev->config.page_size_cap);
	pinned->umem = ib_umem_get(&rdev->base, start, length, access);
	if (IS_ERR(pinned->umem)) {
		err = PTR_ERR(pinned->umem);
		pinned->umem = NULL;
		return err;
	}
	size = ib_umem_find_best_pgsz(pinned->umem, sizes, virt_addr);
	if (!size) {
		err = -EINVAL;
		goto fail;
	}
	pinned->npages = ib_umem_num_dma_blocks(pinned->umem, size);
	pinned->shift = ilog2(size);
	if (pinned->npages > U32_MAX) {
		err = -EINVAL;
		goto fail;
	}
	err = roc_list_alloc(rdev, &pinned->list, pinned->npages);
	if (err)
		goto fail;
	rdma_umem_for_each_dma_block(pinned->umem, &iter, size)
		roc_list_set(&pinned->list, i++, rdma_block_iter_dma_address(&iter));
	return 0;
fail:
	roc_unpin(rdev, pinned);
	return err;
}

/* What the device is asked for; optional flags are hints. */
static int roc_access(int access, u32 *flags)
{
	if (access & IB_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if (access & ~(ROC_ACCESS | IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB))
		return -EOPNOTSUPP;
	*flags = access & ROC_ACCESS;
	return 0;
}

/*
 * A region has one key. The device says it as the remote one only while peers have rights, but
 * programs tell it their peers before ibv_rereg_mr gives them some.
 */
static void roc_user_keys(struct ib_mr *mr, __le32 lkey, __le32 rkey)
{
	mr->lkey = le32_to_cpu(lkey);
	mr->rkey = rkey ? le32_to_cpu(rkey) : mr->lkey;
}

/*
 * The device takes the offset in the first page from "start", and a page's address is as far from
 * a multiple of its size as the region's address is.
 */
static int roc_register(struct roc_dev *rdev, struct roc_mr *mr, struct roc_pinned *pinned,
			u32 pdn, u64 virt_addr, u64 length, u32 access)
{
	bool two = pinned->list.pages;
	struct virtio_rdma_cmd_reg_user_mr_table cmd = {
		.pdn = cpu_to_le32(pdn),
		.access_flags = cpu_to_le32(access),
		.start = cpu_to_le64(virt_addr),
		.length = cpu_to_le64(length),
		.virt_addr = cpu_to_le64(virt_addr),
		.pages = cpu_to_le64(pinned->list.dma),
		.npages = cpu_to_le32(pinned->npages),
		.page_shift = cpu_to_le32(pinned->shift == ROC_PAGE_SHIFT ? 0 : pinned->shift),
		.levels = cpu_to_le32(two ? 2 : 1),
	};
	struct virtio_rdma_rsp_reg_user_mr made;
	size_t size = sizeof(cmd);
	u8 command;
	int err;

	/* Each of these commands has the fields of those before. */
	BUILD_BUG_ON(offsetof(typeof(cmd), page_shift) !=
		     sizeof(struct virtio_rdma_cmd_reg_user_mr));
	BUILD_BUG_ON(offsetof(typeof(cmd), levels) !=
		     sizeof(struct virtio_rdma_cmd_reg_user_mr_pages));
	if (two) {
		command = VIRTIO_RDMA_EXTENSION_COMMAND_REG_USER_MR_TABLE;
	} else if (cmd.page_shift) {
		command = VIRTIO_RDMA_EXTENSION_COMMAND_REG_USER_MR_PAGES;
		size = sizeof(struct virtio_rdma_cmd_reg_user_mr_pages);
	} else {
		command = VIRTIO_RDMA_CONTROL_COMMAND_REG_USER_MR;
		size = sizeof(struct virtio_rdma_cmd_reg_user_mr);
	}
	err = roc_exec(rdev, command, &cmd, size, &made, sizeof(made));
	if (err)
		return err;
	mr->mrn = le32_to_cpu(made.mrn);
	roc_user_keys(&mr->base, made.lkey, made.rkey);
	return 0;
}

static void roc_keep(struct roc_mr *mr, struct roc_pinned *pinned)
{
	mr->umem = pinned->umem;
	mr->list = pinned->list;
}

struct ib_mr *roc_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr, int access,
			      struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibpd->device);
	struct roc_pinned pinned = {};
	struct roc_mr *mr;
	u32 flags;
	int err;

	err = roc_access(access, &flags);
	if (err)
		return ERR_PTR(err);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = roc_pin(rdev, &pinned, start, length, virt_addr, access);
	if (err)
		goto free;
	err = roc_register(rdev, mr, &pinned, to_rpd(ibpd)->pdn, virt_addr, length, flags);
	if (err)
		goto unpin;
	roc_keep(mr, &pinned);
	return &mr->base;
unpin:
	roc_unpin(rdev, &pinned);
free:
	kfree(mr);
	return ERR_PTR(err);
}

struct ib_mr *roc_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length,
				u64 virt_addr, int access, struct ib_pd *ibpd,
				struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibmr->device);
	struct virtio_rdma_cmd_rereg_mr cmd = {};
	struct virtio_rdma_rsp_rereg_mr made;
	struct roc_pinned pinned = {}, old = {};
	struct roc_mr *mr = to_rmr(ibmr);
	u32 what = 0, wanted = 0;
	int err;

	if (!mr->umem || flags & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS))
		return ERR_PTR(-EOPNOTSUPP);
	if (flags & IB_MR_REREG_ACCESS) {
		err = roc_access(access, &wanted);
		if (err)
			return ERR_PTR(err);
		/* Memory that was pinned to be read only cannot be written now. */
		if (!(flags & IB_MR_REREG_TRANS) && ib_access_writable(access) &&
		    !mr->umem->writable)
			return ERR_PTR(-EOPNOTSUPP);
		what |= VIRTIO_RDMA_REREG_FLAGS_ACCESS;
		cmd.access_flags = cpu_to_le32(wanted);
	}
	if (flags & IB_MR_REREG_PD) {
		what |= VIRTIO_RDMA_REREG_FLAGS_PD;
		cmd.pdn = cpu_to_le32(to_rpd(ibpd)->pdn);
	}
	if (flags & IB_MR_REREG_TRANS) {
		err = roc_pin(rdev, &pinned, start, length, virt_addr,
			      flags & IB_MR_REREG_ACCESS ? access : IB_ACCESS_LOCAL_WRITE);
		if (err)
			return ERR_PTR(err);
		what |= VIRTIO_RDMA_REREG_FLAGS_TRANSLATION;
		if (pinned.list.pages)
			what |= VIRTIO_RDMA_REREG_FLAGS_TWO_LEVEL;
		cmd.start = cpu_to_le64(virt_addr);
		cmd.length = cpu_to_le64(length);
		cmd.virt_addr = cpu_to_le64(virt_addr);
		cmd.pages = cpu_to_le64(pinned.list.dma);
		cmd.npages = cpu_to_le32(pinned.npages);
		if (pinned.shift != ROC_PAGE_SHIFT)
			cmd.page_shift = cpu_to_le32(pinned.shift);
	}
	cmd.mrn = cpu_to_le32(mr->mrn);
	cmd.flags = cpu_to_le32(what);
	err = roc_call2(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_REREG_MR, cmd, made);
	if (err) {
		if (flags & IB_MR_REREG_TRANS)
			roc_unpin(rdev, &pinned);
		return ERR_PTR(err);
	}
	roc_user_keys(ibmr, made.lkey, made.rkey);
	if (flags & IB_MR_REREG_TRANS) {
		old.umem = mr->umem;
		old.list = mr->list;
		roc_keep(mr, &pinned);
		roc_unpin(rdev, &old);
	}
	return NULL;
}

struct ib_mr *roc_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct virtio_rdma_cmd_get_dma_mr cmd = { .pdn = cpu_to_le32(to_rpd(ibpd)->pdn) };
	struct virtio_rdma_rsp_get_dma_mr made;
	struct roc_mr *mr;
	u32 flags;
	int err;

	err = roc_access(access, &flags);
	if (err)
		return ERR_PTR(err);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	cmd.access_flags = cpu_to_le32(flags);
	err = roc_call2(to_rdev(ibpd->device), VIRTIO_RDMA_CONTROL_COMMAND_GET_DMA_MR, cmd, made);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	mr->mrn = le32_to_cpu(made.mrn);
	mr->base.lkey = le32_to_cpu(made.lkey);
	mr->base.rkey = le32_to_cpu(made.rkey);
	return &mr->base;
}

int roc_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct roc_mr *mr = to_rmr(ibmr);
	struct roc_dev *rdev = to_rdev(ibmr->device);
	struct virtio_rdma_cmd_dereg_mr cmd = { .mrn = cpu_to_le32(mr->mrn) };
	struct roc_pinned pinned = { .umem = mr->umem, .list = mr->list };
	int err = roc_call(rdev, VIRTIO_RDMA_CONTROL_COMMAND_DEREG_MR, cmd);

	if (rdev->dead)
		flush_work(&rdev->fatal_work);
	else if (err)
		return err == -EINVAL ? -EBUSY : err;
	roc_unpin(rdev, &pinned);
	kfree(mr);
	return 0;
}

/* Fast registration ---------------------------------------------------------------------------- */

struct ib_mr *roc_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_num_sg)
{
	struct roc_dev *rdev = to_rdev(ibpd->device);
	struct virtio_rdma_cmd_create_mr cmd = {
		.pdn = cpu_to_le32(to_rpd(ibpd)->pdn),
		.max_num_sg = cpu_to_le32(max_num_sg),
	};
	struct virtio_rdma_rsp_create_mr made;
	struct roc_mr *mr;
	int err;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > le32_to_cpu(rdev->config.max_fast_reg_page_list_len))
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* Lists of regions of CREATE_MR have one level. */
	mr->list.size = max_num_sg * VIRTIO_RDMA_PAGE_ENTRY_SIZE;
	mr->list.first = dma_alloc_coherent(rdev->dma, mr->list.size, &mr->list.dma, GFP_KERNEL);
	if (!mr->list.first) {
		err = -ENOMEM;
		goto free;
	}
	err = roc_call2(rdev, VIRTIO_RDMA_CONTROL_COMMAND_CREATE_MR, cmd, made);
	if (err)
		goto free_list;
	mr->max_pages = max_num_sg;
	mr->mrn = le32_to_cpu(made.mrn);
	mr->base.lkey = le32_to_cpu(made.lkey);
	mr->base.rkey = le32_to_cpu(made.rkey);
	return &mr->base;
free_list:
	roc_list_free(rdev, &mr->list);
free:
	kfree(mr);
	return ERR_PTR(err);
}

static int roc_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct roc_mr *mr = to_rmr(ibmr);

	if (mr->npages == mr->max_pages)
		return -ENOMEM;
	mr->list.first[mr->npages++] = cpu_to_le64(addr);
	return 0;
}

/* Block layers call this where nobody may sleep. */
int roc_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents, unsigned int *offset)
{
	struct roc_mr *mr = to_rmr(ibmr);
	struct virtio_rdma_cmd_map_mr_sg cmd = {};
	struct virtio_rdma_rsp_map_mr_sg made;
	int mapped, err;

	mr->npages = 0;
	/* The device's pages are of 4 KiB, whatever those of the kernel are. */
	ibmr->page_size = BIT(ROC_PAGE_SHIFT);
	mapped = ib_sg_to_pages(ibmr, sg, nents, offset, roc_set_page);
	if (mapped <= 0)
		return mapped;
	cmd.mrn = cpu_to_le32(mr->mrn);
	cmd.npages = cpu_to_le32(mr->npages);
	cmd.start = cpu_to_le64(ibmr->iova);
	cmd.length = cpu_to_le64(ibmr->length);
	cmd.pages = cpu_to_le64(mr->list.dma);
	err = roc_exec_atomic(to_rdev(ibmr->device), VIRTIO_RDMA_CONTROL_COMMAND_MAP_MR_SG, &cmd,
			      sizeof(cmd), &made, sizeof(made));
	return err ?: mapped;
}

/* Memory windows ------------------------------------------------------------------------------- */

int roc_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct roc_dev *rdev = to_rdev(ibmw->device);
	u64 flags = le64_to_cpu(rdev->config.device_cap_flags);
	struct virtio_rdma_cmd_alloc_mw cmd = { .pdn = cpu_to_le32(to_rpd(ibmw->pd)->pdn) };
	struct virtio_rdma_rsp_alloc_mw made;
	int err;

	switch (ibmw->type) {
	case IB_MW_TYPE_1:
		cmd.type = cpu_to_le32(VIRTIO_RDMA_MW_TYPE_TYPE_1);
		break;
	case IB_MW_TYPE_2:
		cmd.type = cpu_to_le32(flags & VIRTIO_RDMA_DEVICE_CAP_MEM_WINDOW_TYPE_2B ?
				       VIRTIO_RDMA_MW_TYPE_TYPE_2 : VIRTIO_RDMA_MW_TYPE_TYPE_2A);
		break;
	default:
		return -EINVAL;
	}
	err = roc_call2(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_ALLOC_MW, cmd, made);
	if (err)
		return err == -EINVAL ? -ENOMEM : err;
	to_rmw(ibmw)->mwn = le32_to_cpu(made.mwn);
	ibmw->rkey = le32_to_cpu(made.rkey);
	return 0;
}

int roc_dealloc_mw(struct ib_mw *ibmw)
{
	struct virtio_rdma_cmd_dealloc_mw cmd = { .mwn = cpu_to_le32(to_rmw(ibmw)->mwn) };
	struct roc_dev *rdev = to_rdev(ibmw->device);
	int err = roc_call(rdev, VIRTIO_RDMA_EXTENSION_COMMAND_DEALLOC_MW, cmd);

	return rdev->dead ? 0 : err;
}
