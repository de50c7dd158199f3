"""Collects samples, and trains and judges models that learn how long compiled programs take: `benchmarks model`.

The graph convolutions of the networks are compiled layers themselves. A search uses trained networks by
`dacergnn.tuning.predictor`.
"""
