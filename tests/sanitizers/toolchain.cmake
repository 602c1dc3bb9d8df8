# CMakeLists.txt does not know this processor's name, so it builds the loops once, for the processor
# that CXXFLAGS names. CXXFLAGS also sets the optimisation. FORCE replaces the flags that an earlier
# run left in the cache.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR any)
set(CMAKE_CXX_FLAGS "$ENV{CXXFLAGS}" CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_DEBUG "" CACHE STRING "")
