"""Video monitoring: red vehicles on a road camera. `scene` makes the data, `operators` the pipeline, `query` the
measure.
"""
