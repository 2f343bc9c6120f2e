"""Plans live ML queries: order of filters, placement over tiers, configuration, within accuracy and latency objectives.

Method: Vulcan (chapter 4 of its author's thesis; section numbers in the modules refer to it), its baselines, and a searcher
of our own. `model` has the words, `formats` the files, `cli` the command line (`python -m isolane.planner plan query.yaml
--infra tiers.yaml`). Needs the extra `plan` (numpy, PyYAML).
"""
