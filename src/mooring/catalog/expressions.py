"""Regular expressions of entries: RE2, since an entry's author must not be able to stop the console."""

from mooring.extras import require

require("console", "the console", ("re2",))

import re2  # noqa: E402

__all__ = ["re2"]
