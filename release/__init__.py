"""What a release is made of and checked by: wheels, an sdist, and other versions of torch."""
