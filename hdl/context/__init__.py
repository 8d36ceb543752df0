"""Room ``context``: the tables (QP, CQ, MR, GID); one owner component each."""
