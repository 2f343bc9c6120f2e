"""Training of the queries' small models; for development only, needs JAX and onnx.

    python -m isolane.queries.training traffic     # writes traffic/models/*.onnx again
    python -m isolane.queries.training lidar
    python -m isolane.queries.training speech      # needs a built espeak-ng library

Problem: weights in a repository are only trustworthy if every user can make them again. Method: data from the
generators with seeds of their own (never those of the profiles), a fixed number of steps, fixed seeds of weights and
batches, Adam with a falling rate. Limits: the same versions on the same machine give the same bytes; other versions
of JAX add numbers in another order and give weights that differ in the last digits. Each training takes one to five
minutes on one core.
"""
