// SPDX-License-Identifier: GPL-2.0
/*
 * Registers and interrupts beside those that the kernel's virtio-pci driver uses.
 *
 * virtio-pci sets up all virtqueues at once. A device has hundreds of them, and they come and go
 * with CQs and QPs, so this driver enables and resets them by itself. Nobody else uses the
 * register that selects a queue between probe and remove.
 *
 * MSI-X vectors belong to virtio-pci, which makes one for each virtqueue that it sets up. It is
 * asked for a few, the "holders". Their virtqueues are reset at once, and their interrupts are
 * taken over.
 */
#include <linux/interrupt.h>
#include <linux/delay.h>
#include "rocinante.h"

#define ROC_RESET_TRIES		100000

struct roc_window {
	u8 bar;
	u32 offset;
	u32 length;
};

static int roc_find_cap(struct pci_dev *pdev, u8 type, struct roc_window *window)
{
	int pos;

	for (pos = pci_find_capability(pdev, PCI_CAP_ID_VNDR); pos > 0;
	     pos = pci_find_next_capability(pdev, pos, PCI_CAP_ID_VNDR)) {
		u8 found, bar;

		pci_read_config_byte(pdev, pos + offsetof(struct virtio_pci_cap, cfg_type), &found);
		pci_read_config_byte(pdev, pos + offsetof(struct virtio_pci_cap, bar), &bar);
		if (found != type || bar >= PCI_STD_NUM_BARS)
			continue;
		window->bar = bar;
		pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_cap, offset),
				      &window->offset);
		pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_cap, length),
				      &window->length);
		if (!(pci_resource_flags(pdev, bar) & IORESOURCE_MEM) ||
		    window->offset + (u64)window->length > pci_resource_len(pdev, bar))
			continue;
		return pos;
	}
	return 0;
}

/* Nothing but doorbells may be in the pages that processes map. */
static bool roc_mappable(struct pci_dev *pdev, const struct roc_window *notify)
{
	static const u8 types[] = {
		VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_ISR_CFG, VIRTIO_PCI_CAP_DEVICE_CFG,
	};
	struct roc_window other;
	u32 table;
	int i;

	if (!PAGE_ALIGNED(pci_resource_start(pdev, notify->bar) + notify->offset) ||
	    pci_resource_len(pdev, notify->bar) - notify->offset < PAGE_ALIGN(notify->length))
		return false;
	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (roc_find_cap(pdev, types[i], &other) && other.bar == notify->bar)
			return false;
	if (pdev->msix_cap) {
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_TABLE, &table);
		if ((table & PCI_MSIX_TABLE_BIR) == notify->bar)
			return false;
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_PBA, &table);
		if ((table & PCI_MSIX_PBA_BIR) == notify->bar)
			return false;
	}
	return true;
}

static void roc_find_counters(struct roc_dev *rdev)
{
	struct pci_dev *pdev = rdev->pdev;
	u32 size = VIRTIO_RDMA_QP_COUNTER_OFFSET - VIRTIO_RDMA_COUNTER_OFFSET;
	u32 __iomem *words;

	if (pci_resource_len(pdev, VIRTIO_RDMA_COUNTER_BAR) < VIRTIO_RDMA_COUNTER_OFFSET + size)
		return;
	words = pci_iomap_range(pdev, VIRTIO_RDMA_COUNTER_BAR, VIRTIO_RDMA_COUNTER_OFFSET, size);
	if (!words)
		return;
	if (ioread32(words) != VIRTIO_RDMA_COUNTER_MAGIC ||
	    ioread32(words + 1) != VIRTIO_RDMA_COUNTER_VERSION) {
		pci_iounmap(pdev, words);
		return;
	}
	rdev->counters = words;
	rdev->num_counters = min_t(u32, ioread32(words + 2),
				   (size - sizeof(struct virtio_rdma_counter_window)) / 4);
}

int roc_pci_init(struct roc_dev *rdev)
{
	struct pci_dev *pdev = rdev->pdev;
	struct roc_window common, notify;
	int pos;

	/* The register of a queue's reset lies behind what all devices have. */
	if (!roc_find_cap(pdev, VIRTIO_PCI_CAP_COMMON_CFG, &common) ||
	    common.length < sizeof(struct virtio_pci_common_cfg) + 4)
		return -ENODEV;
	pos = roc_find_cap(pdev, VIRTIO_PCI_CAP_NOTIFY_CFG, &notify);
	if (!pos)
		return -ENODEV;
	pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_notify_cap,
						   notify_off_multiplier),
			      &rdev->notify_multiplier);
	rdev->common = pci_iomap_range(pdev, common.bar, common.offset, common.length);
	rdev->notify = pci_iomap_range(pdev, notify.bar, notify.offset, notify.length);
	if (!rdev->common || !rdev->notify) {
		roc_pci_exit(rdev);
		return -ENOMEM;
	}
	rdev->queue_reset = (void __iomem *)rdev->common + sizeof(struct virtio_pci_common_cfg) + 2;
	rdev->notify_pa = pci_resource_start(pdev, notify.bar) + notify.offset;
	rdev->notify_len = notify.length;
	rdev->notify_mappable = roc_mappable(pdev, &notify);
	roc_find_counters(rdev);
	return 0;
}

void roc_pci_exit(struct roc_dev *rdev)
{
	if (rdev->counters)
		pci_iounmap(rdev->pdev, rdev->counters);
	if (rdev->notify)
		pci_iounmap(rdev->pdev, rdev->notify);
	if (rdev->common)
		pci_iounmap(rdev->pdev, rdev->common);
	rdev->counters = NULL;
	rdev->notify = NULL;
	rdev->common = NULL;
}

static void roc_write_address(u64 addr, void __iomem *low, void __iomem *high)
{
	iowrite32(lower_32_bits(addr), low);
	iowrite32(upper_32_bits(addr), high);
}

/* Tell the device where a ring lies, and enable its virtqueue. */
int roc_queue_enable(struct roc_ring *ring)
{
	struct roc_dev *rdev = ring->rdev;
	struct virtio_pci_common_cfg __iomem *cfg = rdev->common;
	u64 doorbell;
	int err = 0;

	mutex_lock(&rdev->select_lock);
	if (rdev->dead) {
		err = -EIO;
		goto out;
	}
	iowrite16(ring->index, &cfg->queue_select);
	if (ioread16(&cfg->queue_size) < ring->num || ioread16(&cfg->queue_enable)) {
		err = -EINVAL;
		goto out;
	}
	iowrite16(ring->num, &cfg->queue_size);
	iowrite16(ring->vector, &cfg->queue_msix_vector);
	if (ring->vector != VIRTIO_MSI_NO_VECTOR &&
	    ioread16(&cfg->queue_msix_vector) != ring->vector) {
		err = -EBUSY;
		goto out;
	}
	roc_write_address(ring->desc_dma, &cfg->queue_desc_lo, &cfg->queue_desc_hi);
	roc_write_address(ring->shared_dma, &cfg->queue_avail_lo, &cfg->queue_avail_hi);
	roc_write_address(ring->shared_dma + ring->used_offset, &cfg->queue_used_lo,
			  &cfg->queue_used_hi);
	doorbell = (u64)ioread16(&cfg->queue_notify_off) * rdev->notify_multiplier;
	/* One of four bytes arms a CQ. */
	if (doorbell + 4 > rdev->notify_len) {
		err = -EINVAL;
		goto out;
	}
	ring->doorbell = doorbell;
	iowrite16(1, &cfg->queue_enable);
out:
	mutex_unlock(&rdev->select_lock);
	return err;
}

/* Reset one virtqueue; the device does not look at its memory any more when this returns 0. */
int roc_queue_reset(struct roc_dev *rdev, u16 index)
{
	struct virtio_pci_common_cfg __iomem *cfg = rdev->common;
	int tries, err = -EIO;

	if (READ_ONCE(rdev->dead)) {
		flush_work(&rdev->fatal_work); /* which resets the device */
		return 0;
	}
	mutex_lock(&rdev->select_lock);
	iowrite16(index, &cfg->queue_select);
	iowrite16(1, rdev->queue_reset);
	for (tries = 0; tries < ROC_RESET_TRIES; tries++) {
		u16 value = ioread16(rdev->queue_reset);

		if (value == 0xffff) {
			err = 0; /* unplugged */
			break;
		}
		if (!value && !ioread16(&cfg->queue_enable)) {
			err = 0;
			break;
		}
		usleep_range(20, 100);
	}
	mutex_unlock(&rdev->select_lock);
	return err;
}

static irqreturn_t roc_vector_interrupt(int irq, void *data)
{
	struct roc_vector *vector = data;
	struct roc_dev *rdev = vector->rdev;

	if (vector == &rdev->vectors[rdev->event_vector])
		return roc_event_interrupt(irq, data);
	return roc_cq_interrupt(irq, data);
}

/*
 * Reset the virtqueues of the holders, and take their interrupts. The last one is that of events.
 */
int roc_own_vectors(struct roc_dev *rdev, struct virtqueue **holders, int num)
{
	int i, err;

	for (i = 0; i < num; i++) {
		struct roc_vector *vector = &rdev->vectors[i];

		err = roc_queue_reset(rdev, holders[i]->index);
		if (err)
			return err;
		vector->rdev = rdev;
		vector->holder = holders[i];
		/* Vector 0 is that of configuration changes, 1 that of the control queue. */
		vector->irq = pci_irq_vector(rdev->pdev, i + 2);
		spin_lock_init(&vector->lock);
		INIT_LIST_HEAD(&vector->cqs);
		if (vector->irq < 0)
			return -ENOSPC;
		snprintf(vector->name, sizeof(vector->name), "rocinante-%s-%d",
			 dev_name(&rdev->vdev->dev), i);
	}
	rdev->num_vectors = num - 1;
	rdev->event_vector = num - 1;
	for (i = 0; i < num; i++) {
		struct roc_vector *vector = &rdev->vectors[i];

		free_irq(vector->irq, vector->holder);
		vector->own = true;
		err = request_irq(vector->irq, roc_vector_interrupt, 0, vector->name, vector);
		if (err) {
			vector->own = false;
			return request_irq(vector->irq, vring_interrupt, 0, vector->name,
					   vector->holder) ?: err;
		}
	}
	return 0;
}

/* virtio-pci frees the interrupts of its virtqueues: they are what it asked for again. */
void roc_return_vectors(struct roc_dev *rdev)
{
	int i;

	for (i = 0; i < ROC_MAX_VECTORS; i++) {
		struct roc_vector *vector = &rdev->vectors[i];

		if (!vector->own)
			continue;
		free_irq(vector->irq, vector);
		vector->own = false;
		if (request_irq(vector->irq, vring_interrupt, 0, vector->name, vector->holder))
			dev_warn(&rdev->vdev->dev, "vector %d is lost\n", i + 2);
	}
}
