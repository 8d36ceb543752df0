"""``./rocinante sequences``: who tells whom what when a message goes from one host to another."""
