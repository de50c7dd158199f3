"""Figures of the suite of caching strategies: `dacergnn plot FILE`."""
