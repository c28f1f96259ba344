"""The documentation as tests see it: its pages, their links and their blocks of code."""
