# Faults of real processes: a handful here, hundreds by command (kill_ranks KVGRID DATA --trials N).
file(GLOB kvg_kill_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kill_*.c)
kvg_add_program(kill_ranks ${kvg_kill_sources})
if(KVG_SANITIZE)
  set(kvg_fault_options --trials 10 --seed 2420 --requests 50 --no-limit)
else()
  set(kvg_fault_options --trials 14 --seed 10470 --requests 50) # every kind of fault in the midst of a run, each grid in each layout
endif()
add_test(NAME faults COMMAND kill_ranks $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA} ${kvg_fault_options})
set_tests_properties(faults PROPERTIES TIMEOUT 180 LABELS replay RUN_SERIAL ON)
