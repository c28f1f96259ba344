"""The listeners of a broker. Each translates between its protocol and the values of `broker/apis`."""
