# CUDA: suites that need a device skip themselves without one (77). The suites of sequence state are built twice more: for a device whose memory
# the host cannot touch, which runs anywhere, and for CUDA. A CUDA context does not cross fork: CK_FORK=no.

add_executable(plane_host ${CMAKE_CURRENT_LIST_DIR}/plane_host.cpp)
target_link_libraries(plane_host PRIVATE kvg_options kvgrid_static PkgConfig::JANSSON PkgConfig::XXHASH)
target_compile_options(plane_host PRIVATE -ffp-contract=off -Wno-unknown-pragmas)
add_test(NAME plane_host COMMAND plane_host)
set_tests_properties(plane_host PROPERTIES TIMEOUT 120 LABELS unit)

if(NOT KVG_SANITIZE) # it changes stacks under way
  add_executable(vote_host ${CMAKE_CURRENT_LIST_DIR}/vote_host.cpp)
  target_link_libraries(vote_host PRIVATE kvg_options kvgrid_static PkgConfig::JANSSON PkgConfig::XXHASH)
  target_compile_options(vote_host PRIVATE -U_FORTIFY_SOURCE -Wno-unknown-pragmas
    -Wno-missing-field-initializers -Wno-unused-function)
  add_test(NAME vote_host COMMAND vote_host)
  set_tests_properties(vote_host PROPERTIES TIMEOUT 120 LABELS unit)
endif()

function(kvg_use_cuda name)
  target_link_libraries(${name} PRIVATE kvgrid_cuda CUDA::cudart_static)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

set(kvg_state_suites runtime/test_state_life runtime/test_cache_kinds runtime/test_latent_snapshot pp/test_kinds pp/test_rebuild pp/test_stats)
foreach(source IN LISTS kvg_state_suites)
  get_filename_component(suite ${source} NAME)
  kvg_add_program(indirect_${suite} ${CMAKE_CURRENT_SOURCE_DIR}/${source}.c ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
  target_compile_definitions(indirect_${suite} PRIVATE KVG_TEST_INDIRECT=1)
  add_test(NAME indirect_${suite} COMMAND indirect_${suite})
  set_tests_properties(indirect_${suite} PROPERTIES TIMEOUT 300 LABELS unit ENVIRONMENT "KVG_TEST_STEPS=1500")
  if(TARGET kvgrid_cuda)
    kvg_add_program(cuda_${suite} ${CMAKE_CURRENT_SOURCE_DIR}/${source}.c)
    target_compile_definitions(cuda_${suite} PRIVATE KVG_TEST_CUDA=1)
    kvg_use_cuda(cuda_${suite})
    add_test(NAME cuda_${suite} COMMAND cuda_${suite})
    set_tests_properties(cuda_${suite} PROPERTIES TIMEOUT 300 LABELS gpu RUN_SERIAL ON SKIP_RETURN_CODE 77
      ENVIRONMENT "CK_FORK=no;KVG_TEST_STEPS=1500")
  endif()
endforeach()

file(GLOB kvg_cuda_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_cuda_*.c)
foreach(source IN LISTS kvg_cuda_tests)
  get_filename_component(name ${source} NAME_WE)
  set_tests_properties(${name} PROPERTIES LABELS gpu RUN_SERIAL ON ENVIRONMENT "CK_FORK=no")
  if(TARGET kvgrid_cuda)
    target_compile_definitions(${name} PRIVATE KVG_TEST_CUDA=1)
    kvg_use_cuda(${name})
  endif()
endforeach()

# The vote between two ranks on two GPUs needs MPI, CUDA and NCCL.
if(TARGET kvgrid_nccl AND TARGET kvgrid_mpi)
  kvg_add_program(gpu_vote ${CMAKE_CURRENT_LIST_DIR}/gpu_vote.c)
  kvg_use_cuda(gpu_vote)
  target_link_libraries(gpu_vote PRIVATE kvgrid_nccl kvgrid_mpi MPI::MPI_C)
  add_test(NAME gpu_vote COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -n 2 $<TARGET_FILE:gpu_vote>)
  set_tests_properties(gpu_vote PROPERTIES TIMEOUT 300 LABELS "gpu;mpi" RUN_SERIAL ON SKIP_RETURN_CODE 77
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;NCCL_NVLS_ENABLE=0")
endif()

# An engine's attention over views: on the host device, lane by lane the kernels' own code, and on CUDA.
kvg_add_program(host_attend ${CMAKE_CURRENT_LIST_DIR}/gpu_attend.c ${CMAKE_CURRENT_LIST_DIR}/attention_host.cpp ${PROJECT_SOURCE_DIR}/kernels/rows_ref.c)
target_compile_options(host_attend PRIVATE -Wno-unknown-pragmas)
add_test(NAME host_attend COMMAND host_attend)
set_tests_properties(host_attend PROPERTIES TIMEOUT 300 LABELS unit)
if(TARGET kvgrid_cuda)
  kvg_add_program(gpu_attend ${CMAKE_CURRENT_LIST_DIR}/gpu_attend.c ${CMAKE_CURRENT_LIST_DIR}/attention.cu)
  target_compile_definitions(gpu_attend PRIVATE KVG_TEST_CUDA=1)
  kvg_use_cuda(gpu_attend)
  set_target_properties(gpu_attend PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static)
  add_test(NAME gpu_attend COMMAND gpu_attend)
  set_tests_properties(gpu_attend PROPERTIES TIMEOUT 300 LABELS gpu RUN_SERIAL ON SKIP_RETURN_CODE 77 ENVIRONMENT "CK_FORK=no")
endif()

# Captured runs on one GPU and on two.
if(TARGET kvgrid_nccl AND TARGET kvgrid_mpi)
  kvg_add_program(gpu_run ${CMAKE_CURRENT_LIST_DIR}/gpu_run.c ${CMAKE_CURRENT_LIST_DIR}/run_nodes.cu ${CMAKE_CURRENT_LIST_DIR}/attention.cu)
  kvg_use_cuda(gpu_run)
  set_target_properties(gpu_run PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static)
  target_link_libraries(gpu_run PRIVATE kvgrid_nccl kvgrid_mpi MPI::MPI_C)
  foreach(ranks 1 2)
    add_test(NAME gpu_run_${ranks} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -n ${ranks} $<TARGET_FILE:gpu_run>)
    set_tests_properties(gpu_run_${ranks} PROPERTIES TIMEOUT 300 LABELS "gpu;mpi" RUN_SERIAL ON SKIP_RETURN_CODE 77
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;NCCL_NVLS_ENABLE=0")
  endforeach()
endif()

# NVTX: what a tool hears of the library's ranges, without a GPU.
if(TARGET kvgrid_cuda)
  add_library(nvtx_tool MODULE ${CMAKE_CURRENT_LIST_DIR}/nvtx_tool.c)
  target_link_libraries(nvtx_tool PRIVATE kvg_options)
  target_include_directories(nvtx_tool SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  kvg_add_program(nvtx_ranges ${CMAKE_CURRENT_LIST_DIR}/nvtx_ranges.c ${PROJECT_SOURCE_DIR}/kernels/cuda_tracer.c)
  target_include_directories(nvtx_ranges SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(nvtx_ranges PRIVATE ${CMAKE_DL_LIBS})
  add_test(NAME nvtx_ranges COMMAND nvtx_ranges $<TARGET_FILE:nvtx_tool>)
  set_tests_properties(nvtx_ranges PROPERTIES TIMEOUT 60 LABELS unit)
endif()
