"""Figures of benchmark runs: accounting modes, standard errors, intervals, pass@k, tables. scipy is used only here."""
