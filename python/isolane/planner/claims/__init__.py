"""What Vulcan's author states in numbers and orderings, and how ours compare: `isolane edge plan --check-claims`.

The statements are the files `claims/vulcan/*.toml`, of the form that `docs/internals/claims.md` describes. `files` reads them,
`metric` evaluates their formulas, `experiments` runs what they need, `check` judges and prints.
"""
