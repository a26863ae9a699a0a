"""Why a group gets a message or not: the evaluated expression, the filter that stops it, and what would have passed."""
