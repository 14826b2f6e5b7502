"""The stage rollback: undoes a promotion."""
