"""The listeners of a broker: each translates between its protocol and the values of `broker/apis`, and does no more."""
