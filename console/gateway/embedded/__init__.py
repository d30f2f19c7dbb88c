"""The embedded CPU gateway: the Tinker wire protocol over a small Qwen3 model, in one child process.

It really samples, computes the losses, takes Adam steps on LoRA weights and keeps checkpoints. `launch` starts it as a
child (no torch needed there), `serve` is its command line, the other modules live in the child.

One event loop owns sessions and requests; one compute thread owns tensors. They meet in `engine`.
"""
