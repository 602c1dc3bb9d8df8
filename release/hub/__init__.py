"""The package as a repository of kernels for the Hugging Face Hub: what its builder takes, and a
build that `kernels` loads."""
