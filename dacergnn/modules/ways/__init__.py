"""Ways to run a program: over several processes, range by range, in races of builds, or at once."""
