"""Inference with a trained model: the forms in which it computes, and the runner that labels texts with any of them."""
