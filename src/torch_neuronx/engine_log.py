"""How much the engine's library writes to stderr: imported before jaxlib, which reads it once."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
