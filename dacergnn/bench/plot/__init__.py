"""Draws the figures of the suite of caching strategies: `dacergnn plot FILE`."""
