# A processor that CMakeLists.txt has no name for: of the loops one build, for the processor that
# CXXFLAGS names. The optimisation is theirs as well, and they are those of this run, though an
# earlier one had others.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR any)
set(CMAKE_CXX_FLAGS "$ENV{CXXFLAGS}" CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_DEBUG "" CACHE STRING "")
