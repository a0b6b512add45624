# The vectors runner, at build/tests/vectors, and one test a file of vectors.
file(GLOB kvg_vectors_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/vectors/*.c)
kvg_add_program(vectors ${kvg_vectors_sources})
set_target_properties(vectors PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

file(GLOB kvg_vector_files CONFIGURE_DEPENDS ${KVG_TEST_DATA}/vectors/*.jsonl)
foreach(file IN LISTS kvg_vector_files)
  get_filename_component(name ${file} NAME_WE)
  add_test(NAME vectors_${name} COMMAND vectors ${file})
  set_tests_properties(vectors_${name} PROPERTIES TIMEOUT 300 LABELS unit)
endforeach()

# The runner itself can fail: a wrong line, a line that is no vector, and a file without lines.
add_test(NAME vectors_runner_finds_faults
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/vectors/runner_finds_faults.sh $<TARGET_FILE:vectors>)
set_tests_properties(vectors_runner_finds_faults PROPERTIES TIMEOUT 60 LABELS unit)
