"""Models to compare fine-tuned encoders with. They are trained with Spark's MLlib, at least in part."""
