"""Labels for choices of a whole graph: small graphs, configurations of each, and seconds of all of them.

Files are in TpuGraphs' layout format (`wmsched.graph.tpugraphs`).
"""
