"""Campaigns: thousands of random scenarios on a Dask cluster."""
