"""A cluster for tests: a real API server, scheduler and controllers, and a stand-in for the kubelet
that runs pods as containers of the local engine."""
