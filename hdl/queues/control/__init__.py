"""Control requests and events: the control queue and the event queue."""
