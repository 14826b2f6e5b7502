"""The check of a machine with a GPU: is the engine correct there, and how fast is it?

It needs no network and no environment of this checkout: torch, transformers (with tokenizers and safetensors), pyarrow,
numpy, pydantic, PyYAML, joblib, tqdm, scikit-learn, SciPy, pytest, and for Trainer accelerate are enough. The encoder
has random weights, and the rows have the lengths of SST-2's.
"""
