"""The benchmark: data -> scores -> engine -> report, every arrow this way; and ``perf``, apart from them."""
