"""What the commands that name a region's memory have in common."""

from hdl.abi.layout import le32, le64

__all__ = ["REGION_MEMORY"]

#: The memory of a region: its bytes, the address that they have for users, and its page list.
REGION_MEMORY = (
    le64("start", "its offset in a page is the offset in the first page"),
    le64("length", "bytes"),
    le64("virt_addr", "the address that SGEs and peers use"),
    le64("pages", "address of npages le64 page addresses"),
    le32("npages"),
)
