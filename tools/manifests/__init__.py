"""The manifests and the chart for Kubernetes, from one source.

`python -m tools.manifests` rewrites what is in `deploy/kubernetes/plain` and
`deploy/kubernetes/chart`; a test compares them. No name of the cluster's libraries is taken:
everything beside this folder can be imported in tests.

nodes      content that is written twice, with default values and as a template
values     the values of the chart: defaults, what they mean, what is accepted
settings   `runner.toml`
objects    what stands in the cluster
files      what is in which file
"""
