"""The outcome vocabulary, and the rules that classify a trial from its evidence. Pure; training and bench share it."""
