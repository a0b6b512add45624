# The engine loop: one source, compiled as C11 and as C++17, without extensions, against the public headers and the shared library alone.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/engine_loop.cpp.in "#include \"${CMAKE_CURRENT_LIST_DIR}/engine_loop.c\"\n")
configure_file(${CMAKE_CURRENT_BINARY_DIR}/engine_loop.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/engine_loop.cpp COPYONLY)
add_executable(engine_loop_c11 ${CMAKE_CURRENT_LIST_DIR}/engine_loop.c)
add_executable(engine_loop_cpp17 ${CMAKE_CURRENT_BINARY_DIR}/engine_loop.cpp)
foreach(program engine_loop_c11 engine_loop_cpp17)
  target_link_libraries(${program} PRIVATE kvgrid m)
  target_compile_options(${program} PRIVATE -Wall -Wextra -Werror -pedantic-errors -ffp-contract=off)
  set_target_properties(${program} PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF CXX_STANDARD 17 CXX_EXTENSIONS OFF)
  if(KVG_SANITIZE)
    target_compile_options(${program} PRIVATE -fsanitize=${KVG_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(${program} PRIVATE -fsanitize=${KVG_SANITIZE})
  endif()
  add_test(NAME ${program} COMMAND ${program})
  set_tests_properties(${program} PROPERTIES TIMEOUT 120 LABELS unit)
endforeach()

# Their device is one whose memory the host cannot touch, without a GPU.
target_sources(test_serving PRIVATE ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
target_sources(test_sleep_kinds PRIVATE ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)

# Captured runs on a device of the tests' own: the host twins of the kernels that write rows.
foreach(suite test_run test_run_device test_run_faults test_run_refused test_run_joint test_run_rebuild test_traced)
  target_sources(${suite} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
endforeach()
target_sources(test_device_faults PRIVATE ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
