# Comms that carry records on devices (kernels/comm_*.c). Their state machines need no GPU.
target_sources(test_comm_carried PRIVATE ${PROJECT_SOURCE_DIR}/kernels/comm_carried.c ${PROJECT_SOURCE_DIR}/kernels/comm_gather.c
  ${PROJECT_SOURCE_DIR}/kernels/comm_board.c ${PROJECT_SOURCE_DIR}/kernels/vote_send_ref.c)

# The command's votes, with libraries that call themselves NCCL in its way.
set(kvg_fake_nccls "")
if(TARGET kvgrid_nccl AND NOT KVG_SANITIZE) # a sanitizer wants to be loaded first
  foreach(kind whole part)
    add_library(fake_nccl_${kind} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/comm/fake_nccl.c)
    target_compile_definitions(fake_nccl_${kind} PRIVATE FAKE_VERSION=20107 $<$<STREQUAL:${kind},whole>:FAKE_WHOLE>)
    list(APPEND kvg_fake_nccls $<TARGET_FILE:fake_nccl_${kind}>)
  endforeach()
endif()
add_test(NAME vote_command COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/comm/vote_command.sh $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA}
  "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>" $<TARGET_EXISTS:kvgrid_nccl> ${kvg_fake_nccls})
set_tests_properties(vote_command PROPERTIES TIMEOUT 120 LABELS replay RUN_SERIAL ON)

# Between two GPUs: ranks are forked, so that one can be killed.
if(TARGET kvgrid_nccl)
  kvg_add_program(gpu_comm ${CMAKE_CURRENT_SOURCE_DIR}/kernels/gpu_comm.c)
  target_link_libraries(gpu_comm PRIVATE kvgrid_nccl CUDA::cudart_static)
  set_target_properties(gpu_comm PROPERTIES LINKER_LANGUAGE CXX)
  add_test(NAME gpu_comm COMMAND gpu_comm)
  set_tests_properties(gpu_comm PROPERTIES TIMEOUT 300 LABELS gpu RUN_SERIAL ON SKIP_RETURN_CODE 77 ENVIRONMENT "NCCL_NVLS_ENABLE=0")
endif()
add_test(NAME vote_gpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/comm/vote_gpu.sh $<TARGET_FILE:kvgrid_command> ${KVG_TEST_DATA}
  "$<$<BOOL:${MPI_C_FOUND}>:${MPIEXEC_EXECUTABLE}>")
set_tests_properties(vote_gpu PROPERTIES TIMEOUT 300 LABELS "replay;gpu" RUN_SERIAL ON SKIP_RETURN_CODE 77)
