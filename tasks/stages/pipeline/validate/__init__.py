"""The stage validate: turns raw text into three checked tables, a quarantine and a report, or stops the run."""

import logging

# Great Expectations logs hundreds of lines while it is imported, so this must come first.
logging.getLogger("great_expectations").setLevel(logging.ERROR)
