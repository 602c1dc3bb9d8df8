"""The package as a kernel repository for the Hugging Face Hub: the sources for its builder, and a
build that `kernels` loads."""
