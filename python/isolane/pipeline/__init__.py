"""Runs the pipelines that `isolane edge plan` decides on: operators as processes with an HTTP contract, on one machine or several."""
