"""The stages that record, publish and clean up."""
