# Parts of the command that are tested alone: each with its own source, which no library carries.
foreach(part trace options slurm)
  kvg_add_program(unit_${part} ${CMAKE_CURRENT_LIST_DIR}/unit_${part}.c ${PROJECT_SOURCE_DIR}/launch/command/${part}.c)
  add_test(NAME unit_${part} COMMAND unit_${part})
  set_tests_properties(unit_${part} PROPERTIES TIMEOUT 60 LABELS unit)
endforeach()

# Runs the built command.
add_dependencies(test_plan_command kvgrid_command)
add_dependencies(test_command kvgrid_command)

# A rank's place: pure parts, and topologies that are recorded or made up.
foreach(part index_set local_rank device_choice memory_limit binding place_rank doctor_table)
  target_link_libraries(test_${part} PRIVATE kvg_rank)
endforeach()
set_tests_properties(test_binding test_place_rank PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0") # hwloc's PCI plugin keeps some, and is unloaded then
target_sources(test_doctor_table PRIVATE ${PROJECT_SOURCE_DIR}/launch/command/doctor_table.c ${PROJECT_SOURCE_DIR}/launch/command/doctor_host.c
  ${PROJECT_SOURCE_DIR}/launch/command/plan_words.c)
add_test(NAME rank_command COMMAND ${CMAKE_CURRENT_LIST_DIR}/rank_command.sh $<TARGET_FILE:kvgrid_command> $<TARGET_FILE:kvgrid_indirect> ${KVG_TEST_DATA}
  "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>" $<BOOL:${HWLOC_FOUND}>)
set_tests_properties(rank_command PROPERTIES TIMEOUT 120 LABELS replay RUN_SERIAL ON)

# The manual pages against what the command prints.
add_test(NAME man_pages COMMAND ${CMAKE_CURRENT_LIST_DIR}/man.sh ${PROJECT_BINARY_DIR})
set_tests_properties(man_pages PROPERTIES TIMEOUT 60 LABELS docs)

# What launch/demo and launch/check say while they build.
add_test(NAME launch_setup COMMAND ${CMAKE_CURRENT_LIST_DIR}/setup.sh)
set_tests_properties(launch_setup PROPERTIES TIMEOUT 60 LABELS docs)
