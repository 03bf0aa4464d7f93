"""How the documentation site is built: `make docs`."""

import logging
import os
import sys
from pathlib import Path

from jupyter_client.manager import KernelManager

import batchlens

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Code of the pages runs in processes of its own: one thread each, figures as matplotlibrc says, tables without colours.
os.environ.update(MATPLOTLIBRC=str(HERE / "matplotlibrc"), OMP_NUM_THREADS="1", NO_COLOR="1")
KernelManager.transport_encryption.default_value = "auto"  # kernels warn otherwise
logging.getLogger("traitlets").setLevel(logging.WARNING)

project = "batchlens"
author = project_copyright = "The batchlens authors"
version = release = batchlens.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_pages",
    "door_pages",
    "mathml",
    "verdicts",
]
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!batchlens\.).*"), (r"py:.*", r".*\._.*")]  # names of others, and private ones

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
default_role = "code"
smartquotes = False
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"batchlens {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
