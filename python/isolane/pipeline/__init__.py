"""Runs the pipelines that `isolane plan` decides on: operators as processes with an HTTP contract, on one machine or several."""
