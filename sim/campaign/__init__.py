"""Campaigns: thousands of random scenarios on a Dask cluster."""

COMMANDS = {
    "campaign": ("sim.campaign.command", "Play thousands of random scenarios, on a cluster."),
}
