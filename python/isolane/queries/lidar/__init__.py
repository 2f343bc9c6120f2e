"""Driving perception: objects around a vehicle in laser scans. `scan` makes the data, `operators` the pipeline, `query`
the measure.
"""
