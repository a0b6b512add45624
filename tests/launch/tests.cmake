# Parts of the command that are tested alone: each with its own source, which no library carries.
foreach(part trace options slurm)
  kvg_add_program(unit_${part} ${CMAKE_CURRENT_LIST_DIR}/unit_${part}.c ${PROJECT_SOURCE_DIR}/launch/command/${part}.c)
  add_test(NAME unit_${part} COMMAND unit_${part})
  set_tests_properties(unit_${part} PROPERTIES TIMEOUT 60 LABELS unit)
endforeach()

# Runs the built command.
add_dependencies(test_plan_command kvgrid_command)
