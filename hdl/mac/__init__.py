"""Room ``mac``: MAC-side stream, pause, pacing, time stamps."""
