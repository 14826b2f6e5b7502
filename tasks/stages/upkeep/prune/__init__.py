"""The stage prune: finds folders of a home that nothing refers to any more, and optionally removes them."""
