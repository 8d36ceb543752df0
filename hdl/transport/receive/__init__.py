"""Received packets and pokes: responder, completer, and the commit of what they bring about."""
