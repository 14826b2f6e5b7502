"""The stage preprocess: turns validated text into memory-mappable token ids."""
