"""The dual-prompt SFT stage: what is trained, how it is mixed, what is watched."""
