"""The kernels of the core operators in Triton: the same functions and the same bits as in C++.

``operators`` has the operators, ``launch`` compiles and starts kernels; these two work without
importing Triton, which takes a third of a second. The rest are kernels: ``map`` and
``column_sums``, over the formulas of ``normal`` and ``sigmoid``.
"""
