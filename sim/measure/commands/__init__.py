"""``./rocinante commands``: how many control commands a second driver, firmware and card do."""
