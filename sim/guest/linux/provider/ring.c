// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Rings as the kernel module shares them, and queues of requests in them. */
#include <sched.h>
#include <sys/mman.h>
#include "rocinante.h"

/* An element comes back a little later than its completion: a full queue looks so often. */
#define ROC_LOOKS	20000

int roc_buf_alloc(struct roc_buf *buf, size_t size)
{
	void *addr;

	size = (size + ROCINANTE_PAGE_SIZE - 1) & ~(size_t)(ROCINANTE_PAGE_SIZE - 1);
	addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return ENOMEM;
	if (ibv_dontfork_range(addr, size)) {
		munmap(addr, size);
		return ENOMEM;
	}
	buf->addr = addr;
	buf->size = size;
	return 0;
}

void roc_buf_free(struct roc_buf *buf)
{
	if (!buf->addr)
		return;
	ibv_dofork_range(buf->addr, buf->size);
	munmap(buf->addr, buf->size);
	buf->addr = NULL;
}

int roc_ring_map(struct roc_context *ctx, struct roc_ring *ring,
		 const struct rocinante_ring *told)
{
	void *map = mmap(NULL, told->size, PROT_READ | PROT_WRITE, MAP_SHARED,
			 ctx->base.context.cmd_fd, told->key);

	if (map == MAP_FAILED)
		return errno;
	ring->map = map;
	ring->size = told->size;
	ring->avail = map;
	ring->used = (void *)((char *)map + told->used_offset);
	ring->mask = told->num - 1;
	ring->queue = told->queue;
	if (ctx->doorbells && told->doorbell + 2 <= ctx->doorbell_size)
		ring->doorbell = (void *)((char *)ctx->doorbells + told->doorbell);
	return 0;
}

void roc_ring_unmap(struct roc_ring *ring)
{
	if (ring->map)
		munmap(ring->map, ring->size);
	ring->map = NULL;
}

/* Show the device what was made available; whether it wants to be told. */
bool roc_ring_publish(struct roc_ring *ring)
{
	udma_to_device_barrier();
	atomic_store_explicit(&ring->avail->idx, htole16(ring->next_avail), memory_order_release);
	/* Its flags are read behind that. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&ring->used->flags, memory_order_relaxed) &
	    htole16(ROC_USED_NO_NOTIFY))
		return false;
	if (!ring->doorbell)
		return true;
	*ring->doorbell = htole16(ring->queue);
	return false;
}

/* Memory of the slots, before the kernel is asked. */
int roc_wq_alloc(struct roc_wq *wq, uint32_t fixed, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t i;

	wq->fixed = fixed;
	wq->max_wr = max_wr;
	wq->max_sge = max_sge;
	wq->slots = max_wr ? max_wr : 1;
	wq->stride = rocinante_stride(fixed, max_sge);
	if (wq->stride > ROCINANTE_PAGE_SIZE || wq->slots > UINT16_MAX)
		return EINVAL;
	wq->free = calloc(wq->slots, sizeof(*wq->free));
	if (!wq->free)
		return ENOMEM;
	for (i = 0; i < wq->slots; i++)
		wq->free[i] = wq->slots - 1 - i;
	wq->num_free = wq->slots;
	pthread_spin_init(&wq->lock, PTHREAD_PROCESS_PRIVATE);
	return roc_buf_alloc(&wq->buf, rocinante_slots_size(wq->slots, wq->stride));
}

int roc_wq_map(struct roc_context *ctx, struct roc_wq *wq, const struct rocinante_ring *told)
{
	if (told->slots != wq->slots)
		return EINVAL;
	return roc_ring_map(ctx, &wq->ring, told);
}

/* The queue pair is in RESET: the kernel has emptied the ring. */
void roc_wq_restart(struct roc_wq *wq)
{
	uint32_t i;

	pthread_spin_lock(&wq->lock);
	for (i = 0; i < wq->slots; i++)
		wq->free[i] = wq->slots - 1 - i;
	wq->num_free = wq->slots;
	wq->ring.next_avail = 0;
	wq->ring.last_used = 0;
	pthread_spin_unlock(&wq->lock);
}

void roc_wq_free(struct roc_wq *wq)
{
	roc_ring_unmap(&wq->ring);
	roc_buf_free(&wq->buf);
	free(wq->free);
	wq->free = NULL;
}

static void roc_wq_reap(struct roc_wq *wq)
{
	struct roc_ring *ring = &wq->ring;
	uint16_t used = le16toh(atomic_load_explicit(&ring->used->idx, memory_order_acquire));

	udma_from_device_barrier();
	while (ring->last_used != used) {
		uint32_t id = le32toh(ring->used->ring[ring->last_used++ & ring->mask].id);

		if (wq->num_free < wq->slots)
			wq->free[wq->num_free++] = id % wq->slots;
	}
}

/* A free slot, or NULL. */
void *roc_wq_take(struct roc_wq *wq, uint32_t *slot)
{
	uint32_t looks;

	if (!wq->max_wr)
		return NULL;
	for (looks = 0; wq->slots - wq->num_free >= wq->max_wr; looks++) {
		if (looks == ROC_LOOKS)
			return NULL;
		roc_wq_reap(wq);
	}
	*slot = wq->free[--wq->num_free];
	return (char *)wq->buf.addr + rocinante_slot_offset(*slot, wq->stride);
}

/*
 * Make a slot with so many SGEs available. There are descriptors for some numbers of SGEs only:
 * empty ones fill up to the next. The caller writes the number, which is that of the descriptor.
 */
void roc_wq_give(struct roc_wq *wq, uint32_t slot, struct virtio_rdma_sge *sges, uint32_t num)
{
	uint32_t class = rocinante_class_of(num);
	uint32_t most = rocinante_class_sges(class, wq->max_sge);
	struct roc_ring *ring = &wq->ring;

	if (num < most)
		memset(sges + num, 0, (most - num) * sizeof(*sges));
	ring->avail->ring[ring->next_avail++ & ring->mask] = htole16(class * wq->slots + slot);
}
