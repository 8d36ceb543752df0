"""The calls of libmlx5 that go beyond verbs, and that this card has a counterpart of."""
