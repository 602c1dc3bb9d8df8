"""What build.toml and each build's metadata.json say alike."""

from gelu_kernels import __version__

GENERAL = {
    "name": "gelu-kernels",  # the Hub allows no underscore
    "version": int(__version__.split(".")[0]),  # of the interface; the Hub has a branch for each
    "license": "mit",
}
