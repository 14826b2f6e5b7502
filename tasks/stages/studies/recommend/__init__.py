"""The stage recommend: compares the winner of a search with the default on seeds that the search has not seen."""
