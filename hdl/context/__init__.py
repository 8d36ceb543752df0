"""Room ``context``: the tables (QP, CQ, MR, GID); each with one owner component."""
