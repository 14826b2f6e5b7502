"""The stage teach: computes the logits of the teacher, from which train learns."""
