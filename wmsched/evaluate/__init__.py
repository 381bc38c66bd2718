"""Offline evaluation of a bundle: :func:`wmsched.evaluate.run.evaluate`; needs no TVM."""
