"""From the syntax tree of model texts to graph IR: names, modules, types, shapes and elaboration.

`dlc.frontend.elaborate.elaborate` is the way in. Each `export fn` becomes one function; everything it
calls is elaborated in place, like a trace that also knows where each value comes from.
"""
