# The simulator: build/tests/simulate --seed N --steps N. CI runs it for at most half a minute, and every mutant of mutants/ (mutants.sh); ten million steps
# are run by command.
file(GLOB simulate_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(simulate ${simulate_sources})
target_link_libraries(simulate PRIVATE kvg_options kvgrid_static PkgConfig::JANSSON PkgConfig::XXHASH)
add_test(NAME simulate COMMAND ${CMAKE_CURRENT_LIST_DIR}/ci.sh $<TARGET_FILE:simulate>)
set_tests_properties(simulate PROPERTIES TIMEOUT 300 LABELS simulate)
if(NOT KVG_SANITIZE) # it links objects of the build with its own
  add_test(NAME simulate_mutants COMMAND ${CMAKE_CURRENT_LIST_DIR}/mutants.sh ${PROJECT_BINARY_DIR} --steps 40000)
  set_tests_properties(simulate_mutants PROPERTIES TIMEOUT 600 LABELS simulate)
endif()
