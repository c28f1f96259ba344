"""The listeners of a broker. Each only translates between its protocol and the values of `broker/apis`."""
