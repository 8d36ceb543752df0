// SPDX-License-Identifier: GPL-2.0
/*
 * Split virtqueues (Virtio 1.2, 2.7) of CQs, QPs, SRQs and events.
 *
 * The table of descriptors is never mapped into a process. What is mapped are pages of their own,
 * and a mapping keeps them: a process may still have it when the queue is gone. As with all memory
 * that processes and devices share, DMA has to be coherent, without bounce buffers.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include "rocinante.h"

/* Memory for a ring of at least so many entries; nothing of the device. */
int roc_ring_init(struct roc_dev *rdev, struct roc_ring *ring, u16 index, u32 entries, u16 vector)
{
	u32 num = roundup_pow_of_two(max(entries, 2u));
	size_t avail = sizeof(struct vring_avail) + num * sizeof(__virtio16) + sizeof(__virtio16);
	size_t used = sizeof(struct vring_used) + num * sizeof(struct vring_used_elem) +
		      sizeof(__virtio16);

	if (num > rdev->max_queue_size)
		return -EINVAL;
	ring->rdev = rdev;
	ring->index = index;
	ring->vector = vector;
	ring->num = num;
	ring->used_offset = ALIGN(avail, 64);
	ring->shared_size = PAGE_ALIGN(ring->used_offset + used);
	ring->desc = dma_alloc_coherent(rdev->dma, num * sizeof(struct vring_desc),
					&ring->desc_dma, GFP_KERNEL);
	ring->shared = alloc_pages_exact(ring->shared_size, GFP_KERNEL | __GFP_ZERO);
	if (!ring->desc || !ring->shared)
		goto fail;
	ring->shared_dma = dma_map_single(rdev->dma, ring->shared, ring->shared_size,
					  DMA_BIDIRECTIONAL);
	if (dma_mapping_error(rdev->dma, ring->shared_dma))
		goto fail;
	ring->avail = ring->shared;
	ring->used = ring->shared + ring->used_offset;
	return 0;
fail:
	if (ring->shared)
		free_pages_exact(ring->shared, ring->shared_size);
	if (ring->desc)
		dma_free_coherent(rdev->dma, num * sizeof(struct vring_desc), ring->desc,
				  ring->desc_dma);
	memset(ring, 0, sizeof(*ring));
	return -ENOMEM;
}

/* Both rings as they are before the first use. */
void roc_ring_clear(struct roc_ring *ring)
{
	memset(ring->shared, 0, ring->shared_size);
	ring->next_avail = 0;
	ring->last_used = 0;
}

int roc_ring_enable(struct roc_ring *ring)
{
	int err = roc_queue_enable(ring);

	if (!err)
		ring->enabled = true;
	return err;
}

/* Empty it: its positions begin at 0 again. */
int roc_ring_restart(struct roc_ring *ring)
{
	int err;

	if (!ring->shared)
		return 0;
	err = roc_queue_reset(ring->rdev, ring->index);
	if (err)
		return err;
	ring->enabled = false;
	roc_ring_clear(ring);
	return roc_ring_enable(ring);
}

/* Give up virtqueue and memory. What is mapped into a process stays until it is unmapped. */
void roc_ring_exit(struct roc_ring *ring)
{
	struct roc_dev *rdev = ring->rdev;

	if (!rdev)
		return;
	if (ring->enabled && roc_queue_reset(rdev, ring->index)) {
		/* It might still write there. */
		dev_err(&rdev->vdev->dev, "virtqueue %u cannot be reset, its memory is lost\n",
			ring->index);
		if (ring->map)
			ring->map->shared = NULL;
	} else if (ring->shared) {
		dma_unmap_single(rdev->dma, ring->shared_dma, ring->shared_size,
				 DMA_BIDIRECTIONAL);
		dma_free_coherent(rdev->dma, ring->num * sizeof(struct vring_desc), ring->desc,
				  ring->desc_dma);
		if (!ring->map)
			free_pages_exact(ring->shared, ring->shared_size);
	}
	if (ring->map)
		rdma_user_mmap_entry_remove(&ring->map->entry);
	memset(ring, 0, sizeof(*ring));
}

/* Make the first elements available, descriptor i at place i: buffers of a new CQ. */
void roc_ring_fill(struct roc_ring *ring, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		ring->avail->ring[i] = (__force __virtio16)cpu_to_le16(i);
	ring->next_avail = count;
	ring->avail->idx = (__force __virtio16)cpu_to_le16(count);
}

void roc_ring_kick(struct roc_ring *ring)
{
	iowrite16(ring->index, ring->rdev->notify + ring->doorbell);
}

/* Arm the CQ of this ring, whose completions are known up to a used index. */
void roc_ring_arm(struct roc_ring *ring, u16 seen, bool solicited)
{
	u16 mask = BIT(VIRTIO_RDMA_ARM_SEEN_BITS) - 1;
	u16 upper = (seen & mask) | (solicited ? BIT(VIRTIO_RDMA_ARM_SEEN_BITS) : 0);

	iowrite32(ring->index | (u32)upper << 16, ring->rdev->notify + ring->doorbell);
}

/* Let a process map available and used ring. From now on they are freed with the mapping. */
int roc_ring_share(struct roc_ring *ring, struct ib_ucontext *ucontext,
		   struct rocinante_ring *told, u32 slots)
{
	struct roc_mmap *map = kzalloc(sizeof(*map), GFP_KERNEL);
	int err;

	if (!map)
		return -ENOMEM;
	map->rdev = ring->rdev;
	map->shared = ring->shared;
	map->size = ring->shared_size;
	err = rdma_user_mmap_entry_insert(ucontext, &map->entry, map->size);
	if (err) {
		kfree(map);
		return err;
	}
	ring->map = map;
	told->key = rdma_user_mmap_get_offset(&map->entry);
	told->size = map->size;
	told->num = ring->num;
	told->used_offset = ring->used_offset;
	told->doorbell = ring->doorbell;
	told->queue = ring->index;
	told->slots = slots;
	return 0;
}

/*
 * Pin the memory of slots that a process has given, and name each slot's address.
 * On success the caller owns the umem.
 */
int roc_umem_slots(struct roc_dev *rdev, u64 addr, u32 slots, u32 stride, struct ib_umem **result,
		   void (*set)(void *owner, u32 slot, dma_addr_t addr), void *owner, int access)
{
	u32 size = rocinante_slots_size(slots, stride);
	u32 page_slots = ROCINANTE_PAGE_SIZE / stride, slot = 0;
	struct ib_block_iter iter;
	struct ib_umem *umem;

	if (addr & (ROCINANTE_PAGE_SIZE - 1))
		return -EINVAL;
	umem = ib_umem_get(&rdev->base, addr, size, access);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	rdma_umem_for_each_dma_block(umem, &iter, ROCINANTE_PAGE_SIZE) {
		dma_addr_t page = rdma_block_iter_dma_address(&iter);
		u32 i;

		for (i = 0; i < page_slots && slot < slots; i++, slot++)
			set(owner, slot, page + i * stride);
	}
	if (slot < slots) {
		ib_umem_release(umem);
		return -EINVAL;
	}
	*result = umem;
	return 0;
}
