"""The cluster's controller: one broker, elected, that decides who leads which partition and tells everybody."""
