// SPDX-License-Identifier: GPL-2.0
/* Counters of the device as hw_counters of its port. */
#include "rocinante.h"

#define ROC_COUNTER(name, words)	{ #name, words },

static const struct {
	const char *name;
	u32 words;
} roc_counter_list[] = { VIRTIO_RDMA_COUNTERS(ROC_COUNTER) };

/* Words of a counter are read low half first; a carry between them makes it read again. */
static u64 roc_counter(struct roc_dev *rdev, u32 word, u32 words)
{
	u32 __iomem *first = rdev->counters + sizeof(struct virtio_rdma_counter_window);
	u32 low, high, again;

	low = ioread32(first + word);
	if (words == 1)
		return low;
	high = ioread32(first + word + 1);
	again = ioread32(first + word);
	if (again < low)
		high = ioread32(first + word + 1);
	return (u64)high << 32 | again;
}

static u32 roc_counters_known(struct roc_dev *rdev)
{
	u32 known = 0, word = 0;

	while (known < ARRAY_SIZE(roc_counter_list) &&
	       word + roc_counter_list[known].words <= rdev->num_counters)
		word += roc_counter_list[known++].words;
	return known;
}

struct rdma_hw_stats *roc_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	static struct rdma_stat_desc descs[ARRAY_SIZE(roc_counter_list)];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(descs); i++)
		descs[i].name = roc_counter_list[i].name;
	return rdma_alloc_hw_stats_struct(descs, roc_counters_known(to_rdev(ibdev)),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int roc_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index)
{
	struct roc_dev *rdev = to_rdev(ibdev);
	u32 i, word = 0;

	if (!port || !rdev->counters)
		return -EOPNOTSUPP;
	for (i = 0; i < stats->num_counters; i++) {
		stats->value[i] = roc_counter(rdev, word, roc_counter_list[i].words);
		word += roc_counter_list[i].words;
	}
	return stats->num_counters;
}
