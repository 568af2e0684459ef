"""One flight: launch, wait, send traffic, measure, sum up, stop. The command line and the panel drive it."""
