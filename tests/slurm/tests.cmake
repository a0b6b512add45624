# Jobs of a SLURM that the test starts and stops itself, where SLURM is installed. Once: the sanitizers see the same ranks in the tests of replay.
set(kvg_slurm_environment "")
if(KVG_SANITIZE)
  set(kvg_slurm_environment "KVG_SANITIZED=1")
endif()
add_test(NAME slurm COMMAND ${CMAKE_CURRENT_LIST_DIR}/slurm.sh $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA})
set_tests_properties(slurm PROPERTIES TIMEOUT 240 LABELS slurm RUN_SERIAL ON SKIP_RETURN_CODE 77 ENVIRONMENT "${kvg_slurm_environment}")

# What the job scripts refuse before they start anything needs no SLURM.
add_test(NAME slurm_refused COMMAND ${CMAKE_CURRENT_LIST_DIR}/refused.sh)
set_tests_properties(slurm_refused PROPERTIES TIMEOUT 60 LABELS slurm)
