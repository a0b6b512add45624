# The Python module (launch/python): tests/python/test_<what>.py by the python3 that is here. Without one, or without NumPy where a test writes
# rows with it, they are skipped; .ci/run installs both.

add_executable(python_reference ${CMAKE_CURRENT_LIST_DIR}/reference.c)
target_link_libraries(python_reference PRIVATE kvg_options kvgrid_static)

set(kvg_python_library $<TARGET_FILE:kvgrid>)
if(TARGET kvgrid_gpu)
  set(kvg_python_library $<TARGET_FILE:kvgrid_gpu>)
endif()
file(GLOB kvg_python_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.py)
foreach(source IN LISTS kvg_python_tests)
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "test_" "python_" name ${name})
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh ${source})
  set_tests_properties(${name} PROPERTIES TIMEOUT 180 LABELS python SKIP_RETURN_CODE 77
    ENVIRONMENT "KVGRID_BUILD=${PROJECT_BINARY_DIR};KVGRID_LIBRARY=${kvg_python_library};CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};SANITIZE=${KVG_SANITIZE}")
endforeach()

# A build of sanitizers is not installed, as with tests/install.
if(NOT KVG_SANITIZE)
  add_test(NAME python_installed COMMAND ${CMAKE_CURRENT_LIST_DIR}/installed.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(python_installed PROPERTIES TIMEOUT 120 LABELS python SKIP_RETURN_CODE 77)
endif()
