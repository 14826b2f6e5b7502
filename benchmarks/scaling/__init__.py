"""How training scales with ranks: calibrated on two, predicted, measured on up to sixteen, then extrapolated."""
