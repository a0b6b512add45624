# `cmake --install` gives what an outside project needs: headers that stand alone, both libraries, CMake package, pkg-config.
# A build of sanitizers is not installed: an outside program would have to link their runtimes.
if(NOT KVG_SANITIZE)
  add_test(NAME install_outside_project
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_outside.sh ${PROJECT_BINARY_DIR} $<BOOL:${MPI_C_FOUND}>)
  set_tests_properties(install_outside_project PROPERTIES TIMEOUT 300 LABELS install
    ENVIRONMENT "CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};NVCC=${CMAKE_CUDA_COMPILER};OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
# What the libraries export is listed; sanitizers add names of their own.
if(NOT KVG_SANITIZE)
  add_test(NAME install_symbols COMMAND ${CMAKE_CURRENT_LIST_DIR}/symbols.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(install_symbols PROPERTIES TIMEOUT 60 LABELS install)
endif()
