"""The commands of `quarterdeck`, one module each; imported only when asked for."""
