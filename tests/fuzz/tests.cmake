# Fuzz targets. Here each is a program that replays its corpus and neighbours of it, without libFuzzer. run.sh configures another build with
# clang and KVG_FUZZ, in which each is a libFuzzer target too, and runs those for a time; fuzz_short makes the same runs each time.
option(KVG_FUZZ "Build the libFuzzer targets (clang; tests/fuzz/run.sh does)" OFF)

set(kvg_fuzz_dir ${CMAKE_CURRENT_LIST_DIR})
set(kvg_fuzz_command ${PROJECT_SOURCE_DIR}/launch/command)
set(kvg_fuzz_trace_sources trace.c plan_trace.c)
set(kvg_fuzz_plan_sources plan_trace.c)
set(kvg_fuzz_options_sources options.c plan_arguments.c replay_options.c replay_fault.c replay_sight.c replay_planes.c replay_recurrent.c
  replay_generator.c replay_schedule.c)
set(kvg_fuzz_wire_sources ../embed/wire.c)
set(kvg_fuzz_rendezvous_link -Wl,--wrap=connect)
set(kvg_fuzz_config_seeds ${KVG_TEST_DATA}/models)

add_custom_target(fuzzers)
foreach(name fuzz_config fuzz_gguf fuzz_trace fuzz_options fuzz_plan fuzz_placement fuzz_records fuzz_messages fuzz_join fuzz_frames fuzz_rendezvous fuzz_wire fuzz_guests)
  string(REPLACE fuzz_ "" short ${name})
  set(source ${kvg_fuzz_dir}/${name}.c)
  set(sources ${kvg_fuzz_${short}_sources})
  list(TRANSFORM sources PREPEND ${kvg_fuzz_command}/)
  kvg_add_program(replay_${name} ${source} ${kvg_fuzz_dir}/replay.c ${sources})
  target_link_options(replay_${name} PRIVATE ${kvg_fuzz_${short}_link})
  add_test(NAME ${name} COMMAND replay_${name} ${kvg_fuzz_dir}/corpus/${short} ${kvg_fuzz_${short}_seeds})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS unit)
  if(KVG_FUZZ)
    kvg_add_program(${name} ${source} ${sources})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer ${kvg_fuzz_${short}_link})
    add_dependencies(fuzzers ${name})
  endif()
endforeach()

if(NOT KVG_FUZZ AND NOT KVG_SANITIZE) # once a suite is enough: it brings its own sanitizers
  add_test(NAME fuzz_short COMMAND ${kvg_fuzz_dir}/run.sh --runs 3000 --dir ${PROJECT_BINARY_DIR}/fuzz)
  set_tests_properties(fuzz_short PROPERTIES TIMEOUT 600 LABELS fuzz SKIP_RETURN_CODE 77 PROCESSORS 2)
endif()
