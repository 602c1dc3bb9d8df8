"""How ``make docs`` builds the site. A broken link is an error."""

project = "gelu_kernels"
extensions = ["myst_parser", "sphinx_external_toc"]
external_toc_path = "toc.yml"
myst_heading_anchors = 3
html_theme = "furo"
html_title = "gelu_kernels"
