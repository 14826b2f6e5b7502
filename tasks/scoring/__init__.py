"""What predictions are worth: metrics, intervals, slices, and the gate's verdict."""
