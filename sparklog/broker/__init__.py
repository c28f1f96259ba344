"""One broker: an API for each thing that can be asked of it, and the node that puts the parts together."""
