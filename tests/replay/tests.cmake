# Tests of `kvgrid replay`: its pure parts with their sources compiled in, and runs of the command on several grids.

set(kvg_command_dir ${PROJECT_SOURCE_DIR}/launch/command)

function(kvg_add_replay_test name)
  list(TRANSFORM ARGN PREPEND ${kvg_command_dir}/ OUTPUT_VARIABLE sources)
  kvg_add_program(${name} ${CMAKE_CURRENT_SOURCE_DIR}/replay/${name}.c ${sources})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS unit)
endfunction()

kvg_add_replay_test(test_replay_generator replay_generator.c)
kvg_add_replay_test(test_replay_schedule replay_schedule.c)
kvg_add_replay_test(test_replay_options replay_options.c replay_fault.c replay_planes.c replay_recurrent.c replay_generator.c replay_schedule.c
  options.c)
kvg_add_replay_test(test_replay_recurrent replay_recurrent.c replay_planes.c replay_generator.c)
kvg_add_replay_test(test_replay_digest replay_digest.c)
kvg_add_replay_test(test_replay_memory replay_memory.c)
kvg_add_replay_test(test_replay_mpi replay_mpi.c)
kvg_add_replay_test(test_replay_report replay_report.c replay_run.c replay_lane.c replay_digest.c replay_mpi.c replay_planes.c
  replay_recurrent.c replay_write.c replay_device.c replay_generator.c replay_schedule.c replay_verify.c replay_fault.c plan_words.c)

# Each list of runs must end in one digest; RUN_SERIAL since the ranks of a run take turns on few cores.
foreach(set grids shapes kinds memory faults use)
  add_test(NAME replay_${set}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/run_replay.sh ${set} $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA}
            "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>")
  set_tests_properties(replay_${set} PROPERTIES TIMEOUT 300 LABELS replay RUN_SERIAL ON SKIP_RETURN_CODE 77)
endforeach()

add_test(NAME replay_gpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/gpu.sh $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA}
  "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>")
set_tests_properties(replay_gpu PROPERTIES TIMEOUT 300 LABELS "replay;gpu" RUN_SERIAL ON SKIP_RETURN_CODE 77)
