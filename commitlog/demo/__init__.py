"""The main job: real rows, one committed output, and a driver killed at the worst moment.

`story` tells it, `inputs` finds the rows, `driver` is the Spark driver that is run as a process of its
own so that it can be killed, `crash` kills it. Nothing below imports this package.
"""
