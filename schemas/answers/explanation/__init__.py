"""Why a message reached a consumer group or did not."""
