"""Dynamically connected queue pairs: who connects to whom, and when (docs/extensions.md).

``packets`` has the packets that open and close a connection, ``channel`` an initiator's end of one,
``context`` a target's end and what a target answers. These are pure: time and random numbers are
arguments, and what is to be done is returned.
"""
