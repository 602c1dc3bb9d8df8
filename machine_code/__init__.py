"""The machine code of the CUDA and the Triton kernels, read without a GPU."""
