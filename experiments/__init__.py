"""The experiments of the GELU paper (Hendrycks and Gimpel, 2016), on these operators.

The settings are the paper's and, where it is silent, the authors' scripts'
(https://github.com/hendrycks/GELUs). ``python -m experiments --help`` lists them.
"""
