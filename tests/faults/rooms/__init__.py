"""One table of faults for each room: ``FAULTS``, in the order in which they are tried."""
