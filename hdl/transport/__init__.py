"""Room ``transport``: requester, responder, completer, retry."""
