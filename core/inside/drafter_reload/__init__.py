"""A worker extension for vLLM that replaces the weights of a running server's drafter, and can undo it.

Runs inside vLLM's workers: this folder's parent stands on their PYTHONPATH, and
``--worker-extension-cls drafter_reload.extension.DrafterReload`` names the class. Written for and run with
vLLM 0.32.0. It uses vLLM's record of the checkpoint's layout (``model_loader/reload/layerwise.py``) but not
its reload, which moves the live weights away first, keeps a layer silently where tensors are missing and has
no way back.
"""
