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
kvg_add_replay_test(test_replay_options replay_options.c replay_fault.c replay_sight.c replay_planes.c replay_recurrent.c replay_generator.c replay_schedule.c
  options.c)
kvg_add_replay_test(test_replay_recurrent replay_recurrent.c replay_planes.c replay_generator.c)
kvg_add_replay_test(test_replay_digest replay_digest.c)
kvg_add_replay_test(test_replay_memory replay_memory.c)
kvg_add_replay_test(test_replay_mpi replay_mpi.c slurm.c)
kvg_add_replay_test(test_replay_fork replay_fork.c replay_fork_watch.c replay_fork_tell.c replay_mpi.c slurm.c)
kvg_add_replay_test(test_replay_series replay_series.c replay_metrics.c whole_file.c)
kvg_add_replay_test(test_html_write html_write.c)
kvg_add_replay_test(test_whole_file whole_file.c)
kvg_add_replay_test(test_replay_report replay_report.c replay_run.c replay_lane.c replay_series.c replay_metrics.c whole_file.c replay_trail.c replay_digest.c replay_mpi.c slurm.c replay_planes.c
  replay_recurrent.c replay_write.c replay_device.c replay_gpu.c replay_place.c replay_sight.c replay_generator.c replay_schedule.c replay_verify.c replay_fault.c plan_words.c)
foreach(name memory report)
  target_link_libraries(test_replay_${name} PRIVATE kvg_rank)
endforeach()

# Each list of runs must end in one digest; RUN_SERIAL since the ranks of a run take turns on few cores.
foreach(set grids shapes kinds memory faults use)
  add_test(NAME replay_${set}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/run_replay.sh ${set} $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA}
            "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>")
  set_tests_properties(replay_${set} PROPERTIES TIMEOUT 300 LABELS replay RUN_SERIAL ON SKIP_RETURN_CODE 77)
endforeach()

# Replay on GPUs: on a machine with some. The same runs go over a device whose memory the host cannot touch, on any machine: a command whose GPU is
# that one.
file(GLOB kvg_replay_command CONFIGURE_DEPENDS ${kvg_command_dir}/*.c)
list(REMOVE_ITEM kvg_replay_command ${kvg_command_dir}/replay_gpu.c)
add_executable(kvgrid_indirect ${kvg_replay_command} ${CMAKE_CURRENT_SOURCE_DIR}/replay/indirect_gpu.c ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
target_link_libraries(kvgrid_indirect PRIVATE kvg_options kvg_rank kvgrid_static PkgConfig::CHECK PkgConfig::JANSSON PkgConfig::XXHASH)
if(TARGET kvgrid_mpi)
  target_link_libraries(kvgrid_indirect PRIVATE kvgrid_mpi)
endif()
set(kvg_replay_gpu_arguments ${KVG_TEST_DATA} "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>")
add_test(NAME replay_indirect COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/gpu.sh $<TARGET_FILE:kvgrid_indirect> ${kvg_replay_gpu_arguments} --indirect)
add_test(NAME replay_gpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/gpu.sh $<TARGET_FILE:kvgrid_command> ${kvg_replay_gpu_arguments})
set_tests_properties(replay_gpu replay_indirect PROPERTIES TIMEOUT 300 LABELS replay RUN_SERIAL ON SKIP_RETURN_CODE 77)
set_tests_properties(replay_gpu PROPERTIES LABELS "replay;gpu" TIMEOUT 300)

# What is written of a run: counters for Prometheus while it goes on, a page at its end.
add_test(NAME replay_observe COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/replay/observe.sh $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA})
set_tests_properties(replay_observe PROPERTIES TIMEOUT 300 LABELS replay RUN_SERIAL ON)
