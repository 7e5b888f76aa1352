"""The kubernetes tier: a guest is a pod.

driver     the tier's face
cluster    the connection to the API server
names      what objects are called, and their labels
pods       a launch as a pod
claims     a user's volumes
policies   who may connect to whom
watching   how pods are, as the API server tells
streams    the envelope in, the output out
leadership one active runner per namespace
"""
