"""A folder put on ``PYTHONPATH`` of TVM's builder and runner processes, for the ``sitecustomize.py`` in
it."""
