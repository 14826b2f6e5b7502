"""validate: raw text becomes three checked tables, a quarantine and a report; or the run stops here."""

import logging

# Great Expectations logs hundreds of lines about itself while it is imported, so this must come first.
logging.getLogger("great_expectations").setLevel(logging.ERROR)
