"""Speech commands: which command was spoken, in noise. `clips` and `noise` make the data, `operators` the pipeline."""
