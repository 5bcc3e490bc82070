"""How Sphinx builds these pages; run it with `./dev docs`."""

import gantrymq

project = "Gantry"
author = "the Gantry authors"
project_copyright = "the Gantry authors"
version = release = gantrymq.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Gantry {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f6b", "color-brand-content": "#0b5f6b"},
    "dark_css_variables": {"color-brand-primary": "#6cc5d1", "color-brand-content": "#6cc5d1"},
}
