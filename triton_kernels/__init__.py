"""The kernels of the core operators in Triton: the same functions and the same bits as in C++.

Each family of operators has a folder. Its ``operators`` check and allocate tensors and start
kernels; they work without importing Triton, which takes a third of a second. The other modules of
the folder are its kernels.
"""
