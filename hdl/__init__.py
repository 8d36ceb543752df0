"""The hardware description: one folder for each room of the data path."""
