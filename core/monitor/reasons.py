"""Why a figure of a Frame is absent, in the words that stand in its place."""

NO_DRAFTER = "no drafter"
NO_DRAFTS_YET = "no drafts yet"
NO_COUNT = "the metrics hold no usable count of drafts and accepted tokens"
FIRST_SCRAPE = "waiting for a second scrape"
INCONSISTENT = "multi-process metrics inconsistent"
CACHE_USAGE_WRONG = "the server exports {value:g}, which is no share of a cache"
NO_DRAFTS_LATELY = "no drafts in the last {seconds:.0f} s"
