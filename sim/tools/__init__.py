"""What a user calls: the command line and its commands. Nothing else imports them."""
