"""The encoder with its head, and the token ids that go in: shared by train, evaluate and predict."""
