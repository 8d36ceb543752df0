"""What kernel module and provider share: both must agree on where a slot lies, and on its class."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sim.rtl.env import REPO

HEADER = REPO / "sim/guest/linux/include/rocinante-abi.h"
PROGRAM = r"""
#include <assert.h>
#include "rocinante-abi.h"

int main(void)
{
	for (unsigned max = 0; max <= 32; max++) {
		unsigned last = rocinante_classes(max) - 1;
		unsigned stride = rocinante_stride(75, max), page = ROCINANTE_PAGE_SIZE;

		assert(rocinante_class_sges(0, max) == 0);
		assert(rocinante_class_sges(last, max) == max);
		for (unsigned num = 0; num <= max; num++) {
			unsigned class = rocinante_class_of(num);
			unsigned sges = rocinante_class_sges(class, max);

			assert(class <= last && sges >= num && sges <= max);
			assert(!class || rocinante_class_sges(class - 1, max) < num);
		}
		assert(stride >= 75 + 16 * max && stride % ROCINANTE_WQE_ALIGN == 0);
		for (unsigned slot = 0; slot < 100; slot++) {
			unsigned begin = rocinante_slot_offset(slot, stride), end = begin + stride;

			assert(begin / page == (end - 1) / page);
			assert(!slot || begin >= rocinante_slot_offset(slot - 1, stride) + stride);
			assert(end <= rocinante_slots_size(slot + 1, stride));
			assert(rocinante_slots_size(slot + 1, stride) % page == 0);
		}
	}
	/* Behind what the kernel's own structures hold, which end at a multiple of 8 bytes. */
	assert(sizeof(struct rocinante_ring) % 8 == 0);
	assert(sizeof(struct rocinante_create_cq_req) % 8 == 0);
	assert(sizeof(struct rocinante_create_cq_resp) % 8 == 0);
	assert(sizeof(struct rocinante_create_qp_resp) == 2 * sizeof(struct rocinante_ring));
	assert(sizeof(struct rocinante_create_srq_req) % 8 == 0);
	assert(sizeof(struct rocinante_create_srq_resp) % 8 == 0);
	return 0;
}
"""


def test_slots_and_classes(tmp_path: Path) -> None:
    """A class has room for each number of SGEs, and no slot crosses a page or another slot."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    source, program = tmp_path / "check.c", tmp_path / "check"
    source.write_text(PROGRAM)
    build = ["gcc", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", source, "-o", program]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if "linux/types.h: No such file" in done.stderr:
        pytest.skip("there are no headers of the kernel here")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
