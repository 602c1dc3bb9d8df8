"""The kernels of the core operators in Triton: the same functions and the same bits as in C++.

Each family of operators has a folder. Its ``operators`` module checks and allocates tensors and
starts kernels; it does not import Triton, which takes a third of a second. The other modules of the
folder are its kernels.
"""
