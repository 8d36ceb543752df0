"""Pins of P-Tile's interfaces to its user, by their names (UG683059, "Interfaces")."""

from amaranth.lib.wiring import In, Member, Out

from hdl.pcie.descriptors import WIDTH

from .tlp import HEADER_BITS

__all__ = [
    "FLR_FUNCTIONS",
    "RX_LATENCY",
    "SEGMENT",
    "SEGMENTS",
    "TX_LATENCY",
    "config_pins",
    "stream_pins",
]

#: Segments of a stream: a packet begins with a segment.
SEGMENTS = 2
SEGMENT = WIDTH // SEGMENTS
#: Cycles from the ready of a stream to the beat that it is for (UG683059, 4.4.3 and 4.4.4).
RX_LATENCY, TX_LATENCY = 27, 3
#: Physical functions that a function-level reset may be for.
FLR_FUNCTIONS = 8
PREFIX_BITS = 32


def stream_pins() -> dict[str, Member]:
    """Members for what joins the Avalon streams and the credits of the link partner."""
    return {
        "rx_st_data": In(WIDTH),
        "rx_st_empty": In(3 * SEGMENTS),
        "rx_st_sop": In(SEGMENTS),
        "rx_st_eop": In(SEGMENTS),
        "rx_st_valid": In(SEGMENTS),
        "rx_st_ready": Out(1),
        "rx_st_hdr": In(HEADER_BITS * SEGMENTS),
        "rx_st_tlp_prfx": In(PREFIX_BITS * SEGMENTS),
        "rx_st_bar_range": In(3 * SEGMENTS),
        "rx_st_func_num": In(3 * SEGMENTS),
        "rx_st_tlp_abort": In(SEGMENTS),
        "tx_st_data": Out(WIDTH),
        "tx_st_sop": Out(SEGMENTS),
        "tx_st_eop": Out(SEGMENTS),
        "tx_st_valid": Out(SEGMENTS),
        "tx_st_ready": In(1),
        "tx_st_err": Out(SEGMENTS),
        "tx_st_hdr": Out(HEADER_BITS * SEGMENTS),
        "tx_st_tlp_prfx": Out(PREFIX_BITS * SEGMENTS),
        "tx_cdts_limit": In(16),
        "tx_cdts_limit_tdm_idx": In(3),
    }


def config_pins() -> dict[str, Member]:
    """Members for what joins the configuration output interface: a word of 16 bits of a function's
    configuration space at a time."""
    return {"tl_cfg_func": In(3), "tl_cfg_add": In(5), "tl_cfg_ctl": In(16)}
