"""Three live queries with ground truth, to plan, profile and run: traffic, lidar (driving perception) and speech.

Problem: a planner of live ML pipelines is judged by real operators on data whose truth is known. Each query is a
generator of labelled data (a road camera, a spinning laser scanner, spoken commands), operators with knobs, small
models in ONNX trained by `isolane.queries.training`, and a measure of accuracy. Accuracy comes from the generator's
truth alone, never from a table.

    python -m isolane.queries list
    python -m isolane.queries profile traffic

Units: milliseconds, bytes, pixels, metres, hertz; every name says which. Limits: the data are synthetic, sparse and
small (384x224 pixels, 32 beams, 33-word vocabulary), so absolute accuracies and times say nothing about other
cameras or machines; what carries over is how they change with a knob. Method and knobs follow the evaluation of the
Vulcan system (chapter 4 and appendix C of the dissertation that describes it). Needs the extra `plan`
(numpy, onnxruntime).
"""
