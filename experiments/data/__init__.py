"""The data sets of the paper, read from their owners' files, and what stands in for them."""
