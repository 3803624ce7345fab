"""The embedded control plane; needs the extra ``local``."""

from mooring.extras import require

require("local", "the embedded control plane", ("cel_expr_python", "re2"))
