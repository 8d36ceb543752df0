"""The firmware as a process of its own on a host: ``rocinante firmware``, docs/firmware_service.md.

Standard library only, so that a host needs Python and nothing else.
"""
