"""The screens of `bench look`: job directories of benchmarks, what became of their trials, and whether B beat A."""
