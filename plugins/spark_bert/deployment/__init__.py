"""Where things lie and what containers may use in this deployment."""
