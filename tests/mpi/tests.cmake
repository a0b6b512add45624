# A rank that dies: mpirun goes on with --enable-recovery and reports nothing, so the verdict is the printed line.
if(TARGET kvgrid_mpi)
  kvg_add_program(mpi_death ${CMAKE_CURRENT_LIST_DIR}/mpi_death.c)
  target_link_libraries(mpi_death PRIVATE kvgrid_mpi)
  add_test(NAME mpi_death
    COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --enable-recovery --mca mpi_yield_when_idle 1 -n 3 $<TARGET_FILE:mpi_death>)
  kvg_add_program(mpi_rebuild ${CMAKE_CURRENT_LIST_DIR}/mpi_rebuild.c)
  target_link_libraries(mpi_rebuild PRIVATE kvgrid_mpi)
  foreach(case "joins;5;4" "alone;4;3")
    list(GET case 0 how)
    list(GET case 1 ranks)
    list(GET case 2 expected)
    add_test(NAME mpi_rebuild_${how}
      COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --enable-recovery --mca mpi_yield_when_idle 1 -n ${ranks} $<TARGET_FILE:mpi_rebuild> ${how})
    set_tests_properties(mpi_rebuild_${how} PROPERTIES TIMEOUT 60 LABELS mpi RUN_SERIAL ON
      PASS_REGULAR_EXPRESSION "${expected} of ${expected} ranks went on"
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()
  set_tests_properties(mpi_death PROPERTIES TIMEOUT 60 LABELS mpi RUN_SERIAL ON
    PASS_REGULAR_EXPRESSION "2 of 2 survivors are well"
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
