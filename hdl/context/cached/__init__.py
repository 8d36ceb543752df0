"""The context of the QPs as a cache: hot rows on chip, all rows in a backing store."""
