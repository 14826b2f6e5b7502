"""The sources and the bookkeeping of streams of rows."""
