"""Offline evaluation of a bundle: :func:`wmsched.learn.evaluate.evaluate.evaluate`; needs no TVM."""
