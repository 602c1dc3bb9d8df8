"""Builds and checks a release: wheels, an sdist, other releases of torch, the Hugging Face Hub."""
