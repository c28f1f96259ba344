"""One broker: an API for each kind of request, and the node that runs its parts."""
