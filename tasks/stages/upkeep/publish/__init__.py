"""The stage publish: uploads a model that has passed the gate, with its model card, to the Hugging Face hub."""
