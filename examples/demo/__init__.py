"""The demo: commit real rows with Spark, kill a driver in the middle of a commit, check the output.

`story` runs the demo, `inputs` finds the rows, `driver` runs a Spark driver as a separate process, and
`crash` kills that process at a chosen request.
"""
