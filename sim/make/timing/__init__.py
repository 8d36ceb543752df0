"""``./rocinante timing``: an estimate of each board's clock, by ``sim.make.sta``."""
